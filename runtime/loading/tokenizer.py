"""The tokenizer of a folder, with the end tokens of all sources."""

from __future__ import annotations

import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from huggingface_hub.errors import StrictDataclassError
from mlx_lm.tokenizer_utils import TokenizerWrapper
from mlx_lm.tokenizer_utils import load as load_wrapper
from transformers.utils import logging

from mtplx.contracts.errors import (
    ChatTemplateMissingError,
    CorruptModelError,
    TokenizerMissingError,
)


def load_tokenizer(folder: Path, end_tokens: tuple[int, ...]) -> TokenizerWrapper:
    """The tokenizer of `folder` as mlx-lm wraps it.

    Raises:
        TokenizerMissingError: its files are there but can't be read.
        CorruptModelError: config.json holds a value that transformers does not take.
    """
    try:
        with _quiet_transformers():
            return load_wrapper(folder, eos_token_ids=list(end_tokens))
    except StrictDataclassError as error:
        # transformers reads config.json on its way to the tokenizer.
        raise CorruptModelError(
            f"{folder / 'config.json'}: {' '.join(str(error).split())}",
            hint="Compare config.json with the published one.",
        ) from error
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise TokenizerMissingError(
            f"{folder}: the tokenizer cannot be loaded: {error}",
            hint="download tokenizer.json and tokenizer_config.json of this model again",
        ) from error


@contextmanager
def _quiet_transformers() -> Iterator[None]:
    """transformers warns about every model type it has no class for, though only its tokenizer is wanted."""
    verbosity = logging.get_verbosity()
    logging.set_verbosity_error()
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", FutureWarning)
            yield
    finally:
        logging.set_verbosity(verbosity)


def encode(tokenizer: TokenizerWrapper, text: str) -> list[int]:
    """Token ids of plain text, with the tokenizer's own beginning token where it has one."""
    return list(tokenizer.encode(text))


def render_chat(
    tokenizer: TokenizerWrapper, messages: list[dict[str, Any]], folder: Path
) -> list[int]:
    """Token ids of a conversation through the model's chat template, ready for the answer.

    Raises:
        ChatTemplateMissingError: the model has none, or it refuses these messages.
    """
    if not tokenizer.has_chat_template:
        raise ChatTemplateMissingError(
            f"{folder} has no chat template (tokenizer_config.json, chat_template.jinja or chat_template.json)",
            hint="send the prompt without one: --raw, or raw=True",
        )
    try:
        return list(tokenizer.apply_chat_template(messages, add_generation_prompt=True))
    except Exception as error:  # a template is a program of the model's author
        raise ChatTemplateMissingError(
            f"{folder}: the chat template fails on these messages: {error}",
            hint="send the prompt without it: --raw, or raw=True",
        ) from error
