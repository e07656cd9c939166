"""What the tokenizer files of a model folder hold: template, end tokens, and whether they suffice.

Precedence of chat templates, as transformers has it:
1. `chat_template.jinja`, with `additional_chat_templates/NAME.jinja` beside it under their names;
2. `chat_template` in `tokenizer_config.json`, a text or a list of named texts;
3. `chat_template.json`, which old multimodal releases used.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from mtplx.contracts.errors import CorruptModelError
from mtplx.contracts.json_object import read_object
from mtplx.contracts.tensor_header import shortened

_SOURCES_OF_WORDS = (
    ("tokenizer.model",),
    ("vocab.json", "merges.txt"),
    ("tiktoken.model",),
)


@dataclass(frozen=True, slots=True)
class ChatTemplate:
    """The chat templates of a model: Jinja text by name, "default" being the usual one."""

    source: str
    texts: dict[str, str]

    @property
    def default(self) -> str | None:
        """The template for ordinary conversations; the only one counts as it, too."""
        if "default" not in self.texts and len(self.texts) == 1:
            return next(iter(self.texts.values()))
        return self.texts.get("default")


def has_tokenizer(folder: Path) -> bool:
    """Whether a tokenizer can be built without running code from the repository."""
    if (folder / "tokenizer.json").is_file():
        return True
    needs_code = "auto_map" in _optional(folder / "tokenizer_config.json")
    return not needs_code and any(
        all((folder / name).is_file() for name in names) for names in _SOURCES_OF_WORDS
    )


def find_chat_template(folder: Path) -> ChatTemplate | None:
    """The chat template by the precedence above. Raises CorruptModelError on unreadable files."""
    texts = {
        path.name.removesuffix(".jinja"): _text(path)
        for path in sorted((folder / "additional_chat_templates").glob("*.jinja"))
    }
    if (folder / "chat_template.jinja").is_file():
        texts["default"] = _text(folder / "chat_template.jinja")
        return ChatTemplate("chat_template.jinja", texts)
    if texts:
        return ChatTemplate("additional_chat_templates", texts)
    for name in ("tokenizer_config.json", "chat_template.json"):
        texts = _named(_optional(folder / name).get("chat_template"))
        if texts:
            return ChatTemplate(name, texts)
    return None


def eos_token_ids(
    folder: Path, config: Mapping[str, Any], vocab_size: int | None
) -> tuple[tuple[int, ...], tuple[str, ...]]:
    """End tokens from every source, sorted, and warnings about values that are no token ids.

    Sources: config.json at both levels, generation_config.json, and the `eos_token` text of
    tokenizer_config.json or special_tokens_map.json looked up among the tokenizer's added tokens.
    """
    found: set[int] = set()
    warnings: list[str] = []
    text = config.get("text_config")
    generation = _optional(folder / "generation_config.json")
    for source, level in (
        ("config.json", config),
        ("config.json text_config", text if isinstance(text, Mapping) else {}),
        ("generation_config.json", generation),
    ):
        value = level.get("eos_token_id")
        for item in value if isinstance(value, list) else [value]:
            if type(item) is int and 0 <= item < (vocab_size or 2**31):
                found.add(item)
            elif item is not None:
                warnings.append(
                    f"{source} has an eos_token_id that is no token: {shortened(ascii(item))}."
                )
    for token in set(_eos_texts(folder)):
        number = _token_id(folder, token)
        if number is not None:
            found.add(number)
        else:
            warnings.append(
                f"The tokenizer has no token for its eos_token {shortened(ascii(token))}."
            )
    return tuple(sorted(found)), tuple(warnings)


def _eos_texts(folder: Path) -> Iterator[str]:
    for name in ("tokenizer_config.json", "special_tokens_map.json"):
        token = _optional(folder / name).get("eos_token")
        if isinstance(token, Mapping):
            token = token.get("content")
        if isinstance(token, str) and token:
            yield token


def _token_id(folder: Path, token: str) -> int | None:
    """The id of an added token, or of a vocabulary entry spelled exactly so."""
    decoder = _optional(folder / "tokenizer_config.json").get("added_tokens_decoder")
    if isinstance(decoder, Mapping):
        for number, entry in decoder.items():
            if isinstance(entry, Mapping) and entry.get("content") == token and number.isdecimal():
                return int(number)
    tokenizer = _optional(folder / "tokenizer.json")
    added = tokenizer.get("added_tokens")
    for entry in added if isinstance(added, list) else ():
        if isinstance(entry, Mapping) and entry.get("content") == token:
            number = entry.get("id")
            return number if type(number) is int else None
    model = tokenizer.get("model")
    vocabulary = model.get("vocab") if isinstance(model, Mapping) else None
    number = vocabulary.get(token) if isinstance(vocabulary, Mapping) else None
    return number if type(number) is int else None


def _named(value: Any) -> dict[str, str]:
    """Templates by name from a text, or from a list of `{name, template}`."""
    if isinstance(value, str) and value:
        return {"default": value}
    if not isinstance(value, list):
        return {}
    entries = [entry for entry in value if isinstance(entry, Mapping)]
    return {
        entry["name"]: entry["template"]
        for entry in entries
        if isinstance(entry.get("name"), str) and isinstance(entry.get("template"), str)
    }


def _optional(path: Path) -> dict[str, Any]:
    return read_object(path) if path.is_file() else {}


def _text(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as cause:
        raise CorruptModelError(
            f"{path} cannot be read as text: {cause}.", hint="Fetch the file again."
        ) from cause
