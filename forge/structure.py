"""Whether the tensors of a checkpoint make a whole trunk and a whole head, from headers only.

What would make a conversion fail hours later is said here: parameters that are missing, of the
wrong shape or unknown, and experts that are not all there.
"""

import re
from collections.abc import Iterable, Mapping, Sequence
from itertools import islice

from mtplx.contracts.errors import CorruptModelError, HeadWeightsError, MTPLXError
from mtplx.contracts.families import text_config
from mtplx.contracts.inspection_checks import counted
from mtplx.contracts.inspection_report import Inspection
from mtplx.forge.expected import Geometry, Shapes, expected_block, expected_trunk
from mtplx.forge.parameters import Parameter, Parts

_EXPERT = re.compile(r"(.*mlp\.experts)\.(\d+)\.(.+)")
_FETCH = "Fetch the model again; its config.json and weights must be of one release."

# What holds the layer of a head together, relative to that layer, beside its block.
_FRAMES: dict[str, dict[str, int]] = {
    "qwen": {"fc": 2, "pre_fc_norm_embedding": 1, "pre_fc_norm_hidden": 1, "norm": 1},
    "nextn": {"eh_proj": 2, "enorm": 1, "hnorm": 1},
    "mimo": {"input_proj": 2, "token_layernorm": 1, "hidden_layernorm": 1, "final_layernorm": 1},
}
_OUTPUT_NORMS = ("shared_head.norm", "final_layernorm")
_OWN_VOCABULARY = ("embed_tokens.weight", "shared_head.head.weight", "lm_head.weight")


def check_structure(inspection: Inspection, parts: Parts) -> None:
    """Raise CorruptModelError or HeadWeightsError when trunk or head cannot be built."""
    _check_experts(inspection)
    _check_trunk(inspection, parts.trunk)
    _check_head(inspection, parts.head)


def is_vocabulary_copy(name: str) -> bool:
    """Whether a head-relative name is one of a head's own embedding or output head."""
    return name.partition(".")[2] in _OWN_VOCABULARY or name in _OWN_VOCABULARY


def first_layer(name: str, layout: str) -> str | None:
    """A head-relative name without the number of its layer; None for layers after the first."""
    if layout == "qwen":
        number = name.split(".")[1] if name.startswith("layers.") else "0"
        return name if number == "0" else None
    number, _, rest = name.partition(".")
    return rest if number == "0" else None


def _check_experts(inspection: Inspection) -> None:
    """The experts of every layer, of trunk and head, are numbered from 0 without a gap."""
    numbers: dict[tuple[str, str], set[int]] = {}
    for name in inspection.index.tensors if inspection.index else ():
        if match := _EXPERT.fullmatch(name):
            numbers.setdefault((match[1], match[3]), set()).add(int(match[2]))
    for (stem, part), found in numbers.items():
        last = max(found)
        absent = list(islice((k for k in range(last) if k not in found), 9))
        if absent:
            raise CorruptModelError(
                f"{stem} has {len(found)} experts numbered up to {last}; {part} of experts "
                f"{', '.join(map(str, absent))} is missing.",
                hint=_FETCH,
            )


def _check_trunk(inspection: Inspection, found: Sequence[Parameter]) -> None:
    if inspection.family is None:
        return
    expected = expected_trunk(inspection.family, inspection.config)
    if "lm_head.weight" not in {name.removeprefix("language_model.") for name in expected}:
        # Tied models may ship the copy; nothing reads it.
        found = [p for p in found if not p.module.endswith("lm_head")]
    named = {p.name: p for p in found}
    _compare(expected, named, f"The trunk ({inspection.family.title})", CorruptModelError)


def _check_head(inspection: Inspection, parameters: Sequence[Parameter]) -> None:
    family, head = inspection.family, inspection.head_tensors
    if family is None or head is None or family.layout not in _FRAMES:
        return
    geometry = Geometry(family.name, text_config(inspection.config))
    found = {
        rest: parameter
        for parameter in parameters
        if (rest := first_layer(parameter.name, family.layout)) is not None
    }
    at = "layers.0." if family.layout == "qwen" else ""
    is_sparse = any(".switch_mlp." in name for name in found)
    block = expected_block(geometry, is_linear=False, is_sparse=is_sparse)
    expected = {f"{at}{name}": shape for name, shape in block.items()}
    expected |= _frame(family.layout, geometry, found)
    vocabulary = (geometry.size("vocab_size"), geometry.hidden)
    expected |= {name: vocabulary for name in _OWN_VOCABULARY if name in found}
    _compare(expected, found, f"The MTP head under '{head.prefix}'", HeadWeightsError)


def _frame(layout: str, geometry: Geometry, found: Iterable[str]) -> Shapes:
    hidden = geometry.hidden
    shapes: Shapes = {
        f"{stem}.weight": (hidden,) if rank == 1 else (hidden, 2 * hidden if hidden else None)
        for stem, rank in _FRAMES[layout].items()
    }
    if layout == "nextn":
        named = [f"{stem}.weight" for stem in _OUTPUT_NORMS if f"{stem}.weight" in found]
        shapes[named[0] if named else f"{_OUTPUT_NORMS[0]}.weight"] = (hidden,)
    return shapes


def _compare(
    expected: Shapes, parameters: Mapping[str, Parameter], what: str, error: type[MTPLXError]
) -> None:
    missing = sorted(expected.keys() - parameters.keys())
    unknown = sorted(parameters.keys() - expected.keys())
    misshaped = [
        f"{name} {list(p.shape)} (expected {_shown(shape)})"
        for name, shape in expected.items()
        if (p := parameters.get(name)) and not p.is_mlx and not _fits(p.shape, shape)
    ]
    faults = [
        counted(names_of, text)
        for names_of, text in (
            (missing, "parameters are missing"),
            (misshaped, "have another shape than config.json says"),
            (unknown, "are unknown to the family"),
        )
        if names_of
    ]
    if faults:
        raise error(f"{what} is not whole: {' '.join(faults)}", hint=_FETCH)


def _fits(shape: tuple[int, ...], expected: tuple[int | None, ...]) -> bool:
    return len(shape) == len(expected) and all(
        want in (None, size) for size, want in zip(shape, expected, strict=True)
    )


def _shown(shape: tuple[int | None, ...]) -> str:
    return "[" + ", ".join("?" if size is None else str(size) for size in shape) + "]"
