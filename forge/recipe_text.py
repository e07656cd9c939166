"""Reading the text of a recipe, and saying what is wrong with it."""

import difflib
import errno
import json
import re
from collections.abc import Collection, Iterable
from importlib import resources
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import yaml

from mtplx.contracts.errors import InvalidRequestError
from mtplx.contracts.json_object import parse_object
from mtplx.contracts.tensor_header import shortened

if TYPE_CHECKING:
    from pydantic import ValidationError

PRESETS = ("bare-speed", "optimized-speed", "optimized-quality", "lossless")
MAX_RECIPE_BYTES = 256 * 1024

_SUFFIXES = (".yaml", ".yml", ".json")
_UNFIT = re.compile(r"[^A-Za-z0-9._-]+")
_DOCUMENTED = "docs/forge-recipes.md describes every key; `lossless` is the shortest example."


class Origin(NamedTuple):
    """Where a recipe comes from, for messages, and its name if it gives none."""

    label: str
    default_name: str


def bad_recipe(
    origin: Origin, fault: str, *, key: str = "recipe", hint: str = ""
) -> InvalidRequestError:
    """The error of a recipe: where it is from, what was found and what was expected."""
    stop = "" if fault.endswith("?") else "."
    label = shortened(origin.label)
    return InvalidRequestError(f"{label}: {fault}{stop}", key=key, hint=hint or _DOCUMENTED)


def nearest(word: str, known: Collection[str]) -> str:
    """`; did you mean 'x'?` for the known word most like `word`, or nothing."""
    close = difflib.get_close_matches(word, list(known), n=1)
    return f"; did you mean {close[0]!r}?" if close else ""


def preset_bytes(name: str) -> bytes:
    """The file of a preset, as it is shipped."""
    return (resources.files("mtplx.forge.recipes") / f"{name}.yaml").read_bytes()


def read_recipe(text: str) -> tuple[dict[str, Any], Origin]:
    """The keys of the recipe in the file `text`, or in `text` itself when it is JSON.

    Raises InvalidRequestError when it is neither, too large, or no mapping.
    """
    if text.lstrip().startswith("{"):
        origin = Origin("--recipe", "custom")
        return parse_json(text.encode(), origin), origin
    path = Path(text)
    origin = Origin(text, _UNFIT.sub("-", path.stem).strip("-._")[:48] or "custom")
    if path.suffix.lower() not in _SUFFIXES:
        raise bad_recipe(
            Origin("--recipe", ""),
            f"{text!r} is no preset{nearest(text, PRESETS)}",
            hint=f"Presets: {', '.join(PRESETS)}. Or give a {', '.join(_SUFFIXES)} file, or JSON.",
        )
    data = _read(path, origin)
    return (parse_json if path.suffix.lower() == ".json" else parse_yaml)(data, origin), origin


def parse_json(data: bytes, origin: Origin) -> dict[str, Any]:
    """The JSON object in `data`; a key may occur once."""
    _check_size(len(data), origin)
    try:
        return parse_object(data, unique_keys=True)
    except json.JSONDecodeError as cause:
        raise bad_recipe(origin, f"no valid JSON: {cause}") from cause
    except ValueError as cause:
        raise bad_recipe(origin, str(cause)) from cause


def parse_yaml(data: bytes, origin: Origin) -> dict[str, Any]:
    """The YAML mapping in `data`: plain values only, no aliases, and a key may occur once."""
    _check_size(len(data), origin)
    try:
        value = yaml.load(data, Loader=_UniqueKeys)
    except (yaml.YAMLError, ValueError, RecursionError) as cause:
        reason = " ".join(str(cause).split()) or type(cause).__name__
        raise bad_recipe(origin, f"no valid YAML: {reason}") from cause
    if not isinstance(value, dict):
        raise bad_recipe(origin, f"expected keys and values, found {type(value).__name__}")
    return value


def explain(
    error: "ValidationError", origin: Origin, known: Collection[str]
) -> InvalidRequestError:
    """The first fault that pydantic found, in words: key, found, expected, nearest known key."""
    faults = error.errors(include_url=False)
    # A misspelt key is the cause where another one is missing.
    fault = next((f for f in faults if f["type"] == "extra_forbidden"), faults[0])
    path = _readable(fault["loc"])
    key = path or "recipe"
    found = f"found {_shown(fault.get('input'))}"
    if fault["type"] == "extra_forbidden":
        inner = len(fault["loc"]) > 1
        choices = ("bits", "group_size", "mode") if inner else known
        word, place = str(fault["loc"][-1]), _readable(fault["loc"][:-1])
        text = f"unknown key {word!r}" + (f" in {place}" if inner else "")
        return bad_recipe(
            origin, text + nearest(word, choices), key=key, hint=f"Keys: {', '.join(choices)}."
        )
    if fault["type"] == "missing":
        what = "a number of bits" + (", or null for none" if key == "body_bits" else "")
        return bad_recipe(origin, f"{key} is missing; expected {what}", key=key)
    if fault["type"] == "value_error":
        message = str(fault["ctx"]["error"])
        if path:
            return bad_recipe(origin, f"{path}: {message}", key=path)
        first = message.partition(" ")[0]
        return bad_recipe(origin, message, key=first if first in known else "recipe")
    return bad_recipe(origin, f"{key}: {found}; {_lower(fault['msg'])}", key=key)


def _readable(location: Iterable[int | str]) -> str:
    """A pydantic location without the names of unions' branches and of mapping keys."""
    hidden = ("[key]", "function-", "Quantization", "literal[")
    return ".".join(str(part) for part in location if not str(part).startswith(hidden))


def _lower(message: str) -> str:
    return message[:1].lower() + message[1:]


def _shown(value: Any, limit: int = 60) -> str:
    text = ascii(value)
    return text if len(text) <= limit else f"{text[:limit]}..."


def _read(path: Path, origin: Origin) -> bytes:
    try:
        _check_size(path.stat().st_size, origin)
        return path.read_bytes()
    except OSError as cause:
        reason = (
            "does not exist" if cause.errno == errno.ENOENT else f"cannot be read: {cause.strerror}"
        )
        raise bad_recipe(
            origin, reason, hint=f"Give an existing file or a preset: {', '.join(PRESETS)}."
        ) from cause
    except ValueError as cause:
        raise bad_recipe(origin, str(cause)) from cause


def _check_size(size: int, origin: Origin) -> None:
    if size > MAX_RECIPE_BYTES:
        raise bad_recipe(origin, f"{size} bytes; a recipe has {MAX_RECIPE_BYTES} at most")


class _UniqueKeys(yaml.SafeLoader):
    """Plain values, each key once, no aliases: two readers must see the same recipe."""

    def compose_node(self, parent: Any, index: Any) -> Any:
        if self.check_event(yaml.AliasEvent):
            mark = self.peek_event().start_mark  # type: ignore[no-untyped-call]
            raise yaml.constructor.ConstructorError(None, None, "aliases are not read", mark)
        return super().compose_node(parent, index)

    def construct_mapping(self, node: Any, deep: bool = False) -> dict[Any, Any]:
        seen: set[str] = set()
        for key, _ in node.value:
            if not isinstance(key, yaml.ScalarNode) or key.value in seen:
                what = (
                    f"key {key.value!r} occurs twice"
                    if isinstance(key, yaml.ScalarNode)
                    else ("a key is no text")
                )
                raise yaml.constructor.ConstructorError(None, None, what, key.start_mark)
            seen.add(key.value)
        return super().construct_mapping(node, deep)
