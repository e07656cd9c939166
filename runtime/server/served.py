"""What the server knows of the model it serves, apart from decoding with it."""

from __future__ import annotations

import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from mtplx.contracts.errors import TokenizerMissingError

if TYPE_CHECKING:
    from collections.abc import Mapping

    from mlx_lm.tokenizer_utils import TokenizerWrapper

    from mtplx.runtime.model import Model


@dataclass(frozen=True, slots=True, kw_only=True)
class ServedModel:
    """A loaded model as clients see it. `created` is when it was loaded, in seconds since 1970.

    `identity` is the content hash of its contract, None where it has no contract.
    """

    name: str
    path: Path
    tokenizer: TokenizerWrapper
    family: str
    tier: str
    vocab_size: int
    context_length: int | None
    eos_token_ids: tuple[int, ...]
    has_head: bool
    max_depth: int
    sampler_defaults: Mapping[str, float]
    aliases: tuple[str, ...] = ()
    identity: str | None = None
    warnings: tuple[str, ...] = ()
    device: Mapping[str, Any] = field(default_factory=dict)
    created: int = field(default_factory=lambda: int(time.time()))

    @property
    def has_chat_template(self) -> bool:
        """Whether it takes messages, and not prompts alone."""
        return bool(self.tokenizer.has_chat_template)

    @property
    def names(self) -> tuple[str, ...]:
        """Every id that requests may ask for."""
        return tuple(dict.fromkeys((self.name, *self.aliases)))


def describe(
    model: Model, *, aliases: tuple[str, ...] = (), context_length: int | None = None
) -> ServedModel:
    """`model` as it is served.

    A model without a chat template is served, too: it takes prompts, and refuses messages. Raises what
    `require_tokenizer` raises.
    """
    tokenizer = require_tokenizer(model.path, model.tokenizer)
    contract = model.inspection.contract
    content = None if contract is None else contract.content
    return ServedModel(
        name=model.name,
        path=model.path,
        tokenizer=tokenizer,
        family=model.family_name,
        tier=model.tier,
        vocab_size=model.trunk.vocab_size,
        context_length=context_length or model.context_length,
        eos_token_ids=model.eos_token_ids,
        has_head=model.has_head,
        max_depth=model.max_depth,
        sampler_defaults=model.sampler_defaults,
        aliases=aliases,
        identity=None if content is None else content.identity,
        warnings=(*model.warnings, *_missing(model.name, tokenizer)),
        device=model.device,
    )


def require_tokenizer(path: Path, tokenizer: TokenizerWrapper | None) -> TokenizerWrapper:
    """The tokenizer of the folder `path`. Raises TokenizerMissingError where there is none."""
    if tokenizer is None:
        raise TokenizerMissingError(
            f"{path} has no tokenizer, so no text can be sent to it.",
            hint="Add tokenizer.json and tokenizer_config.json.",
        )
    return tokenizer


def _missing(name: str, tokenizer: TokenizerWrapper) -> tuple[str, ...]:
    if tokenizer.has_chat_template:
        return ()
    return (f"{name} has no chat template: /v1/completions alone can be used",)
