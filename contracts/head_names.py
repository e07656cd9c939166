"""Finding an MTP head among the tensor names of a checkpoint."""

import re
from collections import defaultdict
from collections.abc import Iterable
from dataclasses import dataclass

from mtplx.contracts.family import Family, Layout
from mtplx.contracts.packed_tensors import plain_name

_WRAPPER = r"(?:model\.language_model\.|language_model\.model\.|language_model\.|model\.)?"
_LAYER = re.compile(rf"({_WRAPPER}layers\.)([0-9]{{1,9}})\.(.+)")
_MTP = re.compile(rf"({_WRAPPER}mtp\.)(.+)")
_MTP_LAYERS = re.compile(rf"({_WRAPPER}mtp_layers\.)([0-9]{{1,9}}\..+)")
_SIBLINGS = re.compile(
    rf"({_WRAPPER})((?:mtp_block|mtp_emb_norm|mtp_hidden_norm|mtp_linear_proj)\..+)"
)
_NUMBERED = re.compile(r"(?:layers?\.)?([0-9]{1,9})\.(.+)")
_SINGLE_LAYER = re.compile(r"layer\.(\D.*)")
_INNER_LAYER = re.compile(r"(?:layers\.|mtp_block\.)?([0-9]+)\.")
_LOOKS_LIKE_MTP = re.compile(r"(?:^|[._])(?:mtp|nextn)(?:[._]|\d|$)")

_NUMBERED_LAYOUTS: frozenset[Layout] = frozenset({"nextn", "mimo", "mimo_v2"})


@dataclass(frozen=True, slots=True)
class HeadTensors:
    """A head as it lies in a checkpoint.

    `names` maps each checkpoint name to the name relative to the head: `layers.0.self_attn...` in
    flat layouts (Qwen), `0.eh_proj.weight`, `1.…` in numbered ones (nextn, MiMo). `prefix` is what
    its checkpoint names begin with (those of the first layer, behind a trunk).
    """

    prefix: str
    names: dict[str, str]
    num_layers: int


def find_head_names(
    layout: Layout, num_layers: int, tensor_names: Iterable[str]
) -> HeadTensors | None:
    """The head of a `num_layers`-layer trunk among `tensor_names`, None when there is none.

    Where two places hold tensors, the layout's own place counts first, then the fuller one.
    """
    names = list(tensor_names)
    for found in _candidates(layout, num_layers, names):
        if found:
            prefix = max(found, key=lambda p: (len(found[p]), p))
            return HeadTensors(prefix, found[prefix], _count_layers(layout, found[prefix]))
    return None


def looks_like_mtp(name: str, num_layers: int | None) -> bool:
    """Whether a tensor name speaks of MTP, or of a layer behind the trunk's last."""
    if _LOOKS_LIKE_MTP.search(name):
        return True
    layer = _LAYER.fullmatch(name)
    return num_layers is not None and layer is not None and int(layer[2]) >= num_layers


def layer_number(name: str) -> int | None:
    """The trunk layer a tensor name belongs to."""
    layer = _LAYER.fullmatch(name)
    return int(layer[2]) if layer else None


def _candidates(
    layout: Layout, num_layers: int, names: list[str]
) -> Iterable[dict[str, dict[str, str]]]:
    """Maps prefix -> checkpoint name -> relative name, in order of preference."""
    if layout in _NUMBERED_LAYOUTS:
        yield from (
            _behind_trunk(num_layers, names),
            _grouped(_MTP_LAYERS, names),
            {prefix: _renumbered(group) for prefix, group in _grouped(_MTP, names).items()},
        )
    elif layout == "ernie":
        yield _grouped(_SIBLINGS, names)
    elif layout in ("qwen", "nemotron", "longcat"):
        yield _grouped(_MTP, names)


def _grouped(pattern: re.Pattern[str], names: list[str]) -> dict[str, dict[str, str]]:
    groups: dict[str, dict[str, str]] = defaultdict(dict)
    for name in names:
        if match := pattern.fullmatch(name):
            groups[match[1]][name] = match[2]
    return dict(groups)


def _behind_trunk(num_layers: int, names: list[str]) -> dict[str, dict[str, str]]:
    """Layers `num_layers`, `num_layers + 1`, ... without a gap; layer 610 is no head behind 61."""
    stacks: dict[str, dict[int, dict[str, str]]] = defaultdict(lambda: defaultdict(dict))
    for name in names:
        if (match := _LAYER.fullmatch(name)) and (number := int(match[2])) >= num_layers:
            stacks[match[1]][number][name] = f"{number - num_layers}.{match[3]}"
    groups: dict[str, dict[str, str]] = {}
    for prefix, layers in stacks.items():
        number = num_layers
        while number in layers:
            groups.setdefault(f"{prefix}{num_layers}.", {}).update(layers[number])
            number += 1
    return groups


def _renumbered(group: dict[str, str]) -> dict[str, str]:
    """`layers.0.x`, `layer.x` and bare `x` below an `mtp.` prefix as `0.x`."""
    return {name: _layer_first(rest) for name, rest in group.items()}


def _layer_first(rest: str) -> str:
    if match := _NUMBERED.fullmatch(rest):
        return f"{int(match[1])}.{match[2]}"
    if match := _SINGLE_LAYER.fullmatch(rest):
        return f"0.{match[1]}"
    return f"0.{rest}"


def _count_layers(layout: Layout, names: dict[str, str]) -> int:
    """Physical MTP layers; Nemotron stores one layer as several blocks."""
    if layout == "nemotron":
        return 1
    numbers = {int(m[1]) for rest in names.values() if (m := _INNER_LAYER.match(rest))}
    return max(1, len(numbers))


def missing_parts(family: Family, head: HeadTensors) -> tuple[str, ...]:
    """Essential tensors that `head` lacks, as head-relative names."""
    present = {plain_name(name) for name in head.names.values()}
    return tuple(part for part in family.essential if part not in present)
