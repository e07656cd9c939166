"""The parameters that mlx-lm will have for the tensors of a checkpoint, from headers only.

Published names become module paths, experts are stacked, latent attention's `kv_b_proj` is split,
and packings are seen through, so that sizes and shapes can be told before anything is read.
"""

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

from mtplx.contracts.families import text_config
from mtplx.contracts.family import Family
from mtplx.contracts.inspection_checks import find_vision
from mtplx.contracts.inspection_report import Inspection
from mtplx.contracts.packed_scheme import read_scheme
from mtplx.contracts.packed_tensors import ACTIVATION_SUFFIXES, packed_layers, plain_name
from mtplx.contracts.tensor_header import TensorInfo

_EXPERT = re.compile(r"(.*mlp)\.experts\.(\d+)\.(.+)")
_FUSED = re.compile(r"(.*mlp)\.experts\.(gate_up_proj|down_proj)(?:\.weight)?")
_NO_LINEAR_ROUTER = ("deepseek_v3", "glm4_moe")
_SCHEME_PARTNERS = (
    *(".scales", ".qzeros", ".g_idx"),
    *(".weight_scale", ".weight_zero_point", ".weight_shape", ".weight_g_idx"),
)


@dataclass(frozen=True, slots=True)
class Parameter:
    """One parameter: its name, its shape without packing, and what it is read from.

    `nbytes` are the stored bytes that go into it, `read_bytes` those that must be in memory for
    it. `is_packed`: the stored bytes are no plain floats; `is_mlx`: they are MLX's own packing,
    whose `shape` is that of the stored words.
    """

    name: str
    shape: tuple[int, ...]
    dtype: str
    nbytes: int
    read_bytes: int
    is_packed: bool = False
    is_mlx: bool = False
    is_matrix: bool = False

    @property
    def module(self) -> str:
        """The module that the parameter belongs to."""
        return self.name.rpartition(".")[0]

    @property
    def count(self) -> int:
        """Numbers in the parameter."""
        count = 1
        for size in self.shape:
            count *= size
        return count

    @property
    def is_norm(self) -> bool:
        """Whether it is the gain of a norm."""
        return len(self.shape) == 1 and "norm" in self.module.rpartition(".")[2]


class _Stored(NamedTuple):
    """One plain tensor as it is stored: shape without packing, and all its bytes."""

    shape: tuple[int, ...]
    dtype: str
    nbytes: int
    is_packed: bool = False
    is_mlx: bool = False


class Parts(NamedTuple):
    """The parameters of a checkpoint.

    Those of `trunk` have the names of mlx-lm; those of `head` are named relative to the head, as
    published.
    """

    trunk: tuple[Parameter, ...] = ()
    head: tuple[Parameter, ...] = ()

    @property
    def is_mlx(self) -> bool:
        """Whether MLX packed the trunk, which is then copied as it is."""
        return any(parameter.is_mlx for parameter in self.trunk)

    @property
    def matrices(self) -> list[Parameter]:
        """Weights of the trunk that a recipe can quantise."""
        return [parameter for parameter in self.trunk if parameter.is_matrix]


def read_parts(inspection: Inspection) -> Parts:
    """Trunk and head of an inspected folder; a vision tower's tensors are left out.

    Raises CorruptModelError when packed tensors lack what gives them values.
    """
    index, family = inspection.index, inspection.family
    if index is None or family is None:
        return Parts()
    names = inspection.head_tensors.names if inspection.head_tensors else {}
    trunk = {
        name: tensor
        for name, tensor in index.tensors.items()
        if name not in names and not find_vision(index.folder, (name,))
    }
    head = {names[name]: index.tensors[name] for name in names}
    return Parts(
        _parameters(trunk, inspection, family),
        _parameters(head, inspection, family, is_head=True),
    )


def _parameters(
    tensors: Mapping[str, TensorInfo], inspection: Inspection, family: Family, is_head: bool = False
) -> tuple[Parameter, ...]:
    stored = _without_packing(tensors, inspection.quantization)
    plain: dict[str, Parameter] = {}
    for name, tensor in stored.items():
        if name.endswith("rotary_emb.inv_freq"):
            continue
        path = name if is_head else _mlx_lm_name(name, family)
        for parameter in _unfused(path, tensor):
            plain[parameter.name] = parameter
    text = text_config(inspection.config)
    split = [part for p in _stacked(plain.values()) for part in _split_latent(p, text)]
    return tuple(replace(p, is_matrix=_is_matrix(p, family)) for p in split)


def _without_packing(
    tensors: Mapping[str, TensorInfo], block: Mapping[str, Any] | None
) -> dict[str, _Stored]:
    """Each tensor, packed ones as the one plain tensor that they stand for."""
    scheme = read_scheme(block or {})
    layers = {layer.name: layer for layer in packed_layers(tensors, scheme)} if scheme else {}
    stored: dict[str, _Stored] = {}
    taken: set[str] = set()
    for name, tensor in tensors.items():
        layer = layers.get(name)
        is_mlx = layer is None and tensor.dtype == "U32"
        stem = layer.stem if layer is not None else name.removesuffix(".weight")
        partners = [p for p in _partners(name, stem, is_scheme=layer is not None) if p in tensors]
        if not partners:
            continue
        taken.update((name, *partners))
        nbytes = tensor.nbytes + sum(tensors[partner].nbytes for partner in partners)
        shape = tensor.shape if layer is None else (layer.outputs, layer.inputs)
        stored[plain_name(name)] = _Stored(shape, tensor.dtype, nbytes, True, is_mlx)
    for name, tensor in tensors.items():
        if name not in taken and not name.endswith(ACTIVATION_SUFFIXES):
            stored[name] = _Stored(tensor.shape, tensor.dtype, tensor.nbytes)
    return stored


def _partners(name: str, stem: str, *, is_scheme: bool) -> list[str]:
    """Names that the parts of the packed tensor `name` would have, beside its values."""
    if is_scheme:
        return [f"{stem}{suffix}" for suffix in _SCHEME_PARTNERS]
    return [f"{name}_scale_inv", f"{stem}.scales", f"{stem}.biases"]


def _mlx_lm_name(name: str, family: Family) -> str:
    """The published `name` as mlx-lm's class of the family has it; only Qwen3.5 has a wrapper."""
    if family.name != "qwen3_5":
        return name
    if name.startswith("model.language_model."):
        return name.replace("model.language_model.", "language_model.model.", 1)
    return name if name.startswith("language_model.") else f"language_model.{name}"


def _unfused(path: str, tensor: _Stored) -> list[Parameter]:
    """The tensor as one parameter, or as two where gate and up projections share it."""

    def make(name: str, shape: tuple[int, ...], nbytes: int) -> Parameter:
        return Parameter(
            name, shape, tensor.dtype, nbytes, tensor.nbytes, tensor.is_packed, tensor.is_mlx
        )

    fused = _FUSED.fullmatch(path)
    if fused is None or len(tensor.shape) != 3:
        return [make(path, tensor.shape, tensor.nbytes)]
    stem = f"{fused[1]}.switch_mlp"
    if fused[2] == "down_proj":
        return [make(f"{stem}.down_proj.weight", tensor.shape, tensor.nbytes)]
    experts, rows, columns = tensor.shape
    half = (experts, rows // 2, columns)
    return [
        make(f"{stem}.{part}.weight", half, tensor.nbytes // 2) for part in ("gate_proj", "up_proj")
    ]


def _stacked(parameters: Iterable[Parameter]) -> list[Parameter]:
    """`experts.0.X`, `experts.1.X`, ... as one `switch_mlp.X` with a leading expert axis."""
    out: list[Parameter] = []
    groups: dict[str, list[Parameter]] = {}
    for parameter in parameters:
        match = _EXPERT.fullmatch(parameter.name)
        if match is None:
            out.append(parameter)
        else:
            groups.setdefault(f"{match[1]}.switch_mlp.{match[3]}", []).append(parameter)
    for name, experts in groups.items():
        out.append(
            replace(
                experts[0],
                name=name,
                shape=(len(experts), *experts[0].shape),
                nbytes=sum(expert.nbytes for expert in experts),
                read_bytes=sum(expert.read_bytes for expert in experts),
            )
        )
    return out


def _split_latent(parameter: Parameter, text: Mapping[str, Any]) -> list[Parameter]:
    """`kv_b_proj` [heads * (nope + v), rank] as `embed_q` and `unembed_out`, as mlx-lm computes."""
    stem, found, _ = parameter.name.partition("kv_b_proj.weight")
    sizes = [
        text.get(key)
        for key in ("num_attention_heads", "qk_nope_head_dim", "v_head_dim", "kv_lora_rank")
    ]
    if not found or not all(type(size) is int and size > 0 for size in sizes):
        return [parameter]
    heads, nope, value, rank = (int(size or 0) for size in sizes)
    if parameter.shape != (heads * (nope + value), rank) and not parameter.is_mlx:
        return [parameter]
    share = parameter.nbytes * nope // (nope + value)
    return [
        replace(parameter, name=f"{stem}embed_q.weight", shape=(heads, rank, nope), nbytes=share),
        replace(
            parameter,
            name=f"{stem}unembed_out.weight",
            shape=(heads, value, rank),
            nbytes=parameter.nbytes - share,
        ),
    ]


def _is_matrix(parameter: Parameter, family: Family) -> bool:
    """Whether mlx-lm can quantise it: a matrix of a module that multiplies by it."""
    if len(parameter.shape) < 2 or not parameter.name.endswith(".weight"):
        return False
    if parameter.name.endswith("conv1d.weight"):
        return False
    return not (family.name in _NO_LINEAR_ROUTER and parameter.name.endswith("mlp.gate.weight"))
