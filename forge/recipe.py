"""What a build does to a checkpoint: bits of the body, exceptions by module, and of the head.

A recipe is a preset's name, a YAML or JSON file, or JSON text; see docs/forge-recipes.md.
"""

import hashlib
import json
from fnmatch import fnmatchcase
from functools import cache
from typing import Annotated, Any, Literal, NamedTuple, Self

from pydantic import (
    AfterValidator,
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    ValidationError,
    model_validator,
)

from mtplx.contracts.quantization import MODES
from mtplx.forge.recipe_text import (
    PRESETS,
    Origin,
    explain,
    nearest,
    parse_yaml,
    preset_bytes,
    read_recipe,
)

__all__ = ["PRESETS", "SELECTORS", "Quantization", "Recipe", "load_recipe"]

Mode = Literal["affine", "mxfp4", "nvfp4", "mxfp8"]
MTPPolicy = Literal["keep_bf16", "q8", "requantize"]

SELECTORS: dict[str, tuple[str, ...]] = {
    "embeddings": ("*embed_tokens",),
    "lm_head": ("lm_head", "*.lm_head"),
    "attention_output": ("*.self_attn.o_proj", "*.linear_attn.out_proj"),
    "router": ("*.mlp.gate", "*.mlp.shared_expert_gate"),
}
"""Names for groups of modules, and the module paths they stand for."""

_WRAPPER = "language_model."
_WILDCARDS = frozenset("*?[")
_DEFAULT_GROUP = {"affine": 64, "mxfp4": 32, "nvfp4": 16, "mxfp8": 32}
_NAME = r"^[A-Za-z0-9][A-Za-z0-9._-]{0,47}$"


class Quantization(BaseModel):
    """How one module is packed: bits a weight, weights a group, MLX mode."""

    model_config = ConfigDict(frozen=True, extra="forbid", strict=True)

    bits: int
    group_size: int = 64
    mode: Mode = "affine"

    @model_validator(mode="before")
    @classmethod
    def _default_group(cls, values: Any) -> Any:
        """Modes other than affine have one group size, so nobody needs to state it."""
        if isinstance(values, dict) and "group_size" not in values:
            group = _DEFAULT_GROUP.get(str(values.get("mode", "affine")))
            return {**values, "group_size": group} if group else values
        return values

    @model_validator(mode="after")
    def _has_kernels(self) -> Self:
        for key, allowed in zip(("bits", "group_size"), MODES[self.mode], strict=True):
            found = getattr(self, key)
            if found not in allowed:
                raise ValueError(
                    f"{key} is {found}; mode {self.mode} has {_choices(sorted(allowed))}"
                )
        return self

    def to_mlx(self) -> dict[str, Any]:
        """`bits`, `group_size` and `mode`, as a `quantization` block of config.json has them."""
        return self.model_dump()

    def fits(self, width: int) -> bool:
        """Whether rows of `width` weights divide into whole groups."""
        return width > 0 and width % self.group_size == 0

    def packed_bytes(self, shape: tuple[int, ...], item_size: int = 2) -> int:
        """Bytes of a packed weight of `shape` with its scales and biases.

        Affine groups have a scale and a bias of `item_size` bytes each, the others a scale of one.
        """
        count = _product(shape)
        per_group = 2 * item_size if self.mode == "affine" else 1
        return count * self.bits // 8 + count // self.group_size * per_group


class _Rank(NamedTuple):
    """How specific an override is; the greatest wins, then the alphabetically first."""

    is_path: bool
    is_pattern: bool
    literals: int


def _known_selector(key: str) -> str:
    if key not in SELECTORS and "." not in key and not _WILDCARDS & set(key):
        raise ValueError(
            f"{key!r} is no selector ({', '.join(SELECTORS)}), no module path and no pattern"
            + nearest(key, SELECTORS)
        )
    return key


def _listed(value: Any) -> Any:
    if value == "keep" or isinstance(value, dict | Quantization):
        return value
    raise ValueError(f"expected 'keep' or bits, group_size and mode, found {value!r}")


Override = Annotated[Quantization | Literal["keep"], BeforeValidator(_listed)]


class Recipe(BaseModel):
    """A whole recipe. `body_bits` None leaves the body as it is published."""

    model_config = ConfigDict(frozen=True, extra="forbid", strict=True)

    name: str = Field(pattern=_NAME)
    description: str = ""
    body_bits: int | None
    body_group_size: int = 64
    body_mode: Mode = "affine"
    body_dtype: Literal["bfloat16", "float16"] = "bfloat16"
    mtp_policy: MTPPolicy = "keep_bf16"
    module_overrides: dict[Annotated[str, AfterValidator(_known_selector)], Override] = Field(
        default_factory=dict
    )
    shard_size_gib: float = Field(default=5.0, gt=0, le=64)

    @model_validator(mode="before")
    @classmethod
    def _default_group(cls, values: Any) -> Any:
        if isinstance(values, dict) and "body_group_size" not in values:
            group = _DEFAULT_GROUP.get(str(values.get("body_mode", "affine")))
            return {**values, "body_group_size": group} if group else values
        return values

    @model_validator(mode="after")
    def _is_consistent(self) -> Self:
        if self.body_bits is None:
            packed = [k for k, v in self.module_overrides.items() if v != "keep"]
            if packed:
                raise ValueError(
                    f"module_overrides quantises {packed[0]!r} and body_bits is null, which leaves "
                    "the body as it is; give body_bits a number or remove the override"
                )
            if self.mtp_policy == "requantize":
                raise ValueError(
                    "mtp_policy requantize gives the head the bits of the body, and body_bits is "
                    "null; use keep_bf16 or q8"
                )
            return self
        for key, found, allowed in zip(
            ("body_bits", "body_group_size"),
            (self.body_bits, self.body_group_size),
            MODES[self.body_mode],
            strict=True,
        ):
            if found not in allowed:
                raise ValueError(
                    f"{key} is {found}; body_mode {self.body_mode} has {_choices(sorted(allowed))}"
                )
        return self

    @property
    def body(self) -> Quantization | None:
        """How modules without an override are packed; None leaves the whole body as it is."""
        if self.body_bits is None:
            return None
        return Quantization(
            bits=self.body_bits, group_size=self.body_group_size, mode=self.body_mode
        )

    @property
    def head(self) -> Quantization | None:
        """How the matrices of the MTP head are packed; None keeps them in bfloat16."""
        if self.mtp_policy == "requantize":
            return self.body
        return Quantization(bits=8) if self.mtp_policy == "q8" else None

    @property
    def is_lossless(self) -> bool:
        """Whether body and head keep every bit of a bfloat16 source."""
        return self.body is None and self.mtp_policy == "keep_bf16"

    @property
    def degrades_head(self) -> bool:
        """Whether the head gets so few bits that acceptance is known to collapse."""
        return self.mtp_policy == "requantize"

    def quantization_for(self, module_path: str) -> Quantization | None:
        """How the module at mlx-lm's `module_path` is packed, None when it is kept as it is.

        The most specific override that matches wins: a whole path, then the pattern with the most
        literal characters, then a selector, then the body.
        """
        if self.body is None:
            return None
        ranked = sorted(
            ((rank, key) for key in self.module_overrides if (rank := _rank(key, module_path))),
            key=lambda item: (tuple(-part for part in item[0]), item[1]),
        )
        if not ranked:
            return self.body
        chosen = self.module_overrides[ranked[0][1]]
        return None if chosen == "keep" else chosen

    def applied_to(self, module_path: str, width: int) -> Quantization | None:
        """`quantization_for` a module whose rows are `width` weights.

        None also where `width` does not divide into the groups of the body, which mlx-lm asks of
        every module, or into the module's own.
        """
        found = self.quantization_for(module_path)
        body = self.body
        if found is None or body is None or not (body.fits(width) and found.fits(width)):
            return None
        return found

    def unmatched(self, module_paths: list[str]) -> list[str]:
        """Overrides by path or pattern that concern none of the modules; selectors may be idle."""
        return [
            key
            for key in self.module_overrides
            if key not in SELECTORS and not any(_rank(key, path) for path in module_paths)
        ]

    def digest(self) -> str:
        """sha256 of what the recipe does; its name, description and spelling play no part."""
        values = self.model_dump(mode="json", exclude={"name", "description"})
        canonical = json.dumps(values, sort_keys=True, separators=(",", ":"))
        return hashlib.sha256(canonical.encode()).hexdigest()


def load_recipe(text: str) -> Recipe:
    """The recipe that `text` names or holds: a preset, the path of a file, or JSON.

    Raises:
        InvalidRequestError: there is no such recipe, or a value in it is wrong; `key` names it.
    """
    if text in PRESETS:
        return _preset(text)
    values, origin = read_recipe(text)
    return _validated(values, origin)


@cache
def _preset(name: str) -> Recipe:
    origin = Origin(f"preset {name}", name)
    return _validated(parse_yaml(preset_bytes(name), origin), origin)


def _validated(values: dict[str, Any], origin: Origin) -> Recipe:
    try:
        return Recipe.model_validate({"name": origin.default_name, **values})
    except ValidationError as error:
        raise explain(error, origin, Recipe.model_fields) from error


def _rank(key: str, path: str) -> _Rank | None:
    """How specifically override `key` names the module at `path`, None when it does not."""
    patterns = SELECTORS.get(key, (key,))
    if not any(fnmatchcase(p, pattern) for p in _spellings(path) for pattern in patterns):
        return None
    if key in SELECTORS:
        return _Rank(False, False, 0)
    is_pattern = bool(_WILDCARDS & set(key))
    return _Rank(not is_pattern, is_pattern, sum(c not in _WILDCARDS for c in key))


def _spellings(path: str) -> tuple[str, ...]:
    """`path`, and `path` without the wrapper that multimodal models have around their text model."""
    bare = path.removeprefix(_WRAPPER)
    return (path,) if bare == path else (path, bare)


def _choices(values: list[int]) -> str:
    return ", ".join(map(str, values))


def _product(shape: tuple[int, ...]) -> int:
    count = 1
    for size in shape:
        count *= size
    return count
