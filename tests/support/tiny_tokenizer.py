"""Tokenizer files of tiny models: byte-level BPE without merges, one token a character."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

from tokenizers import AddedToken, Tokenizer, decoders, normalizers, pre_tokenizers
from tokenizers.models import BPE

if TYPE_CHECKING:
    from pathlib import Path

END_OF_TEXT, TURN_START, TURN_END, UNKNOWN = SPECIAL_TOKENS = (
    "<|endoftext|>",
    "<|im_start|>",
    "<|im_end|>",
    "<|unk|>",
)

CHAT_TEMPLATE = (
    "{%- for message in messages %}"
    "{{- '<|im_start|>' + message.role + '\\n' + message.content + '<|im_end|>\\n' }}"
    "{%- endfor %}"
    "{%- if add_generation_prompt %}{{- '<|im_start|>assistant\\n' }}{%- endif %}"
)

_COMMON = "\n etaoinshrdlucmfwypvbgkjqxz0123456789.,:;()[]{}=+-*/_'\"?!<>#"


def byte_characters() -> list[str]:
    """The printable character that stands for each byte in byte-level BPE, by byte value."""
    printable = [*range(33, 127), *range(161, 173), *range(174, 256)]
    others = [byte for byte in range(256) if byte not in set(printable)]
    names = {byte: chr(byte) for byte in printable}
    names |= {byte: chr(256 + i) for i, byte in enumerate(others)}
    return [names[byte] for byte in range(256)]


def special_ids(vocab: int) -> dict[str, int]:
    """Ids of the special tokens: the last four of the vocabulary."""
    first = vocab - len(SPECIAL_TOKENS)
    return {token: first + i for i, token in enumerate(SPECIAL_TOKENS)}


def make_tokenizer(vocab: int) -> Tokenizer:
    """Every byte is a token from 260 ids up (its value is the id); else lower case ASCII."""
    characters = byte_characters()
    if vocab < 256 + len(SPECIAL_TOKENS):
        room = vocab - len(SPECIAL_TOKENS)
        characters = [characters[ord(c)] for c in _COMMON[:room]]
    unused = range(len(characters), vocab - len(SPECIAL_TOKENS))
    characters += [f"<|unused_{i}|>" for i in unused]
    ids = {character: i for i, character in enumerate(characters)} | special_ids(vocab)
    tokenizer = Tokenizer(BPE(vocab=ids, merges=[], unk_token=UNKNOWN))
    if vocab < 256 + len(SPECIAL_TOKENS):
        tokenizer.normalizer = normalizers.Lowercase()
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    tokenizer.add_special_tokens(
        [AddedToken(token, special=True, normalized=False) for token in SPECIAL_TOKENS]
    )
    return tokenizer


def write_tokenizer(folder: Path, vocab: int, *, chat_template: bool | str) -> None:
    """Write `tokenizer.json` and its config; ``chat_template="jinja"`` puts it in its own file."""
    settings: dict[str, Any] = {
        "tokenizer_class": "PreTrainedTokenizerFast",
        "eos_token": TURN_END,
        "pad_token": END_OF_TEXT,
        "unk_token": UNKNOWN,
        "bos_token": None,
        "model_max_length": 4096,
        "clean_up_tokenization_spaces": False,
    }
    if chat_template == "jinja":
        (folder / "chat_template.jinja").write_text(CHAT_TEMPLATE)
    elif chat_template:
        settings["chat_template"] = CHAT_TEMPLATE
    write_json(folder / "tokenizer_config.json", settings)
    make_tokenizer(vocab).save(str(folder / "tokenizer.json"))


def write_generation_config(folder: Path, vocab: int) -> None:
    """Write `generation_config.json` with two end tokens and sampling defaults."""
    ids = special_ids(vocab)
    settings = {
        "eos_token_id": [ids[TURN_END], ids[END_OF_TEXT]],
        "pad_token_id": ids[END_OF_TEXT],
        "temperature": 0.6,
        "top_p": 0.95,
        "top_k": 20,
        "do_sample": True,
    }
    write_json(folder / "generation_config.json", settings)


def write_json(path: Path, value: Any) -> None:
    """Write one JSON file, indented."""
    path.write_text(json.dumps(value, indent=2))
