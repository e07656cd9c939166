"""Loading a folder: inspect, read, bind trunk and head, fit them to the device."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import mlx.core as mx
import mlx.nn as nn
import psutil

from mtplx.contracts.errors import HeadMissingError, UnsupportedModelError, UsageError
from mtplx.contracts.families import Family, Wiring
from mtplx.contracts.identity import CONTRACT_NAME
from mtplx.contracts.inspection import Inspection, inspect_folder
from mtplx.contracts.packed_tensors import PACKED_SUFFIXES
from mtplx.contracts.quantization import summary
from mtplx.contracts.tensors import TensorIndex
from mtplx.kernels.backend import Backend, ensure_backend
from mtplx.runtime.heads.head import Head
from mtplx.runtime.heads.registry import find_layout
from mtplx.runtime.loading.arrays import Weights, named_parameters, read_arrays
from mtplx.runtime.loading.head_weights import HeadBinding, bind_head
from mtplx.runtime.loading.packed import unpack
from mtplx.runtime.loading.quantization import dequantize_modules, is_quantized
from mtplx.runtime.loading.tokenizer import load_tokenizer
from mtplx.runtime.loading.trunk_weights import build_trunk, widen
from mtplx.runtime.model import Model
from mtplx.runtime.trunks.gated_delta import install_gated_delta
from mtplx.runtime.trunks.plain import PlainTrunk
from mtplx.runtime.trunks.trunk import Trunk

Progress = Callable[[str, float], None]

# Float32 weights may take this share of the memory that is free.
_MEMORY_SHARE = 0.8
_SAMPLER_KEYS = ("temperature", "top_p", "top_k", "min_p", "repetition_penalty")


@dataclass(frozen=True, slots=True)
class Precision:
    """What weights are computed in: `dtype` None keeps the stored types; `note` says why."""

    dtype: mx.Dtype | None
    dequantize: bool
    note: str = ""


def load(
    path: str | Path,
    *,
    mtp: bool = True,
    wiring: Wiring | None = None,
    kv_bits: int | None = None,
    verify_hashes: bool = False,
    on_progress: Progress | None = None,
) -> Model:
    """Load a model folder: published Hugging Face layout or MLX, bf16 or quantised.

    `mtp=False` leaves the head on disk. `wiring` replaces the one of the contract or the family. `kv_bits`
    quantises the caches of plain attention layers. Files are compared with those that a contract records by sizes and
    headers, with `verify_hashes` by every byte. `on_progress(label, fraction)` is called while files are read.

    Raises:
        UsageError: `verify_hashes` was asked for and no hashes are recorded.
        MTPLXError: the folder can't be loaded; the class says whether it is absent, corrupt or unsupported.
    """
    backend = ensure_backend()
    report = on_progress or (lambda _label, _fraction: None)
    inspection = inspect_folder(
        path,
        verify_hashes=verify_hashes,
        on_progress=lambda done, total: report("checking files", done / max(total, 1)),
    )
    inspection.raise_if_unrunnable()
    if verify_hashes:
        _require_hashes(inspection)
    index = _index(inspection)
    precision = choose_precision(backend, index, inspection.quantization)
    weights = read_arrays(index, lambda file, done: report(f"reading {file}", done * 0.5))
    head_tensors = take_head(inspection, weights)

    report("building the model", 0.5)
    model, notes = build_trunk(
        inspection.path, weights, precision.dtype, model_type=_model_type(inspection)
    )
    notes = [*inspection.warnings, *notes]
    trunk = _trunk(inspection, model)
    if kv_bits is not None:
        # What can't be quantised is refused now rather than at the first request.
        trunk.make_caches(kv_bits=kv_bits)
    head, norm_encoding = None, None
    if mtp and head_tensors is not None:
        head, binding = _head(inspection, head_tensors, trunk, precision, wiring)
        norm_encoding = binding.norm_encoding
        notes += binding.notes
    modules = [model, head.module] if head is not None else [model]
    for module in modules:
        _fit(module, precision)
    report("reading weights", 0.7)
    mx.eval(*(named_parameters(module) for module in modules))
    install_gated_delta(model)
    if backend.device == "cpu":
        _prepare_for_cpu(trunk, head, backend)
    if kv_bits is not None:
        _try_quantized_cache(trunk, kv_bits, backend)
    report("loading the tokenizer", 0.95)
    tokenizer = None
    if inspection.has_tokenizer:
        tokenizer = load_tokenizer(inspection.path, inspection.eos_token_ids)
    report("ready", 1.0)
    if precision.note:
        notes.append(precision.note)
    return Model(
        inspection=inspection,
        trunk=trunk,
        head=head,
        tokenizer=tokenizer,
        device=_device(backend, model),
        sampler_defaults=read_sampler_defaults(inspection.path),
        warnings=tuple(dict.fromkeys([*notes, *backend.notes])),
        kv_bits=kv_bits,
        head_norm_encoding=norm_encoding,
    )


def choose_precision(
    backend: Backend, index: TensorIndex, quantization: Mapping[str, Any] | None = None
) -> Precision:
    """Float32 on the CPU, where 16-bit and quantised products are scalar loops; as stored elsewhere."""
    if backend.device != "cpu":
        return Precision(None, dequantize=False)
    needed = float32_bytes(index, quantization)
    free = psutil.virtual_memory().available
    if needed <= free * _MEMORY_SHARE:
        return Precision(mx.float32, dequantize=True)
    return Precision(
        None,
        dequantize=False,
        note=(
            f"float32 weights would take {needed / 2**30:.1f} GiB of {free / 2**30:.1f} GiB free: "
            "computing with the stored types, which is slow on the CPU"
        ),
    )


def float32_bytes(index: TensorIndex, quantization: Mapping[str, Any] | None = None) -> int:
    """Bytes of all weights as float32, packed ones counted by the values they hold.

    Where `quantization` mixes widths, every word counts as one of the narrowest.
    """
    settings = summary(quantization) or {"bits": [_USUAL_BITS]}
    per_word = 32 // min(settings["bits"])
    total = 0
    for name, tensor in index.tensors.items():
        count = tensor.nbytes // _ITEM_BYTES.get(tensor.dtype, 2)
        if name.endswith(PACKED_SUFFIXES) or (tensor.dtype == "U32" and name.endswith(".weight")):
            count *= per_word
        total += 4 * count
    return total


# The width of a packed head behind a plain trunk, where no configuration tells it.
_USUAL_BITS = 4
_ITEM_BYTES = {"F64": 8, "F32": 4, "U32": 4, "I32": 4, "F8_E4M3": 1, "U8": 1, "I8": 1}


def take_head(inspection: Inspection, weights: Weights) -> Weights | None:
    """The head's tensors by their names relative to the head, removed from `weights`.

    None when there is no head, or none that can be run: mlx-lm must not see its tensors either way.
    """
    found = inspection.head_tensors
    if found is None:
        return None
    tensors = {relative: weights.pop(name) for name, relative in found.names.items()}
    return tensors if inspection.can_use_head else None


def read_sampler_defaults(folder: Path) -> dict[str, float]:
    """Sampling values of generation_config.json; none when it asks for greedy decoding or is absent."""
    path = folder / "generation_config.json"
    if not path.is_file():
        return {}
    found = json.loads(path.read_text(encoding="utf-8"))
    if not isinstance(found, Mapping) or found.get("do_sample") is False:
        return {}
    return {k: found[k] for k in _SAMPLER_KEYS if isinstance(found.get(k), int | float)}


def _require_hashes(inspection: Inspection) -> None:
    if inspection.contract is None or inspection.contract.content is None:
        raise UsageError(
            f"verify_hashes was asked for, and {inspection.path} records no hashes: it has no {CONTRACT_NAME} with "
            "content.",
            hint="Load it without, or forge it, which records them.",
        )


def _index(inspection: Inspection) -> TensorIndex:
    if inspection.index is None:
        raise HeadMissingError(f"{inspection.path}: no weights were found")
    return inspection.index


def _model_type(inspection: Inspection) -> str:
    family = inspection.family
    return family.model_types[0] if family is not None else ""


def _trunk(inspection: Inspection, model: nn.Module) -> Trunk:
    family = inspection.family
    return Trunk(model) if family is not None and family.runnable else PlainTrunk(model)


def _head(
    inspection: Inspection,
    tensors: Weights,
    trunk: Trunk,
    precision: Precision,
    wiring: Wiring | None,
) -> tuple[Head, HeadBinding]:
    family = inspection.family
    assert family is not None  # take_head found tensors
    tensors = unpack(tensors, inspection.config, precision.dtype or mx.bfloat16)
    if precision.dtype is not None:
        tensors = widen(tensors, precision.dtype)
    module, binding = bind_head(
        find_layout(family.layout),
        tensors,
        trunk,
        raw_norms=_raw_norms(inspection),
    )
    return Head(module, trunk, wiring or _wiring(inspection, family)), binding


def _wiring(inspection: Inspection, family: Family) -> Wiring:
    """What the contract recorded for this artifact, else the default of its family."""
    recorded = inspection.contract.wiring if inspection.contract is not None else None
    return recorded or family.wiring


def _raw_norms(inspection: Inspection) -> bool | None:
    family = inspection.family
    if family is None or not family.zero_centred_norms:
        return False
    return {"delta": True, "absolute": False}.get(inspection.norm_encoding or "")


def _fit(module: nn.Module, precision: Precision) -> None:
    if precision.dequantize and is_quantized(module):
        dequantize_modules(module)
    if precision.dtype is not None:
        module.set_dtype(precision.dtype)
    else:
        _store_norms_like_weights(module)


def _store_norms_like_weights(module: nn.Module) -> None:
    """Norm gains that were shifted in float32 go back to the type of the weights beside them."""
    types = [
        value.dtype
        for name, value in named_parameters(module).items()
        if name.endswith("_proj.weight") and mx.issubdtype(value.dtype, mx.floating)
    ]
    if types:
        norms = [
            (name, value.astype(types[0]))
            for name, value in named_parameters(module).items()
            if name.endswith("norm.weight") and value.dtype == mx.float32
        ]
        module.load_weights(norms, strict=False)


def _prepare_for_cpu(trunk: Trunk, head: Head | None, backend: Backend) -> None:
    """The forms of products were measured with MKL; another BLAS keeps the stock ones."""
    with_few_rows = backend.blas is not None and backend.blas.name == "mkl"
    trunk.prepare_for_cpu(with_few_rows=with_few_rows)
    if head is not None:
        head.prepare_for_cpu(with_few_rows=with_few_rows)


def _try_quantized_cache(trunk: Trunk, kv_bits: int, backend: Backend) -> None:
    """Run a few rows: MLX has quantised products for some shapes only, which differ from back end to back end."""
    caches = trunk.make_caches(kv_bits=kv_bits)
    try:
        for rows in (3, 1):
            hidden = trunk.forward(mx.zeros((1, rows), mx.int32), caches)
            mx.eval(hidden.after_norm)
    except RuntimeError as error:
        raise UnsupportedModelError(
            f"kv_bits is {kv_bits}, and MLX cannot compute with such a cache of this model on the {backend.kind} "
            f"back end: {error}",
            hint="Run it without kv_bits.",
        ) from error


def _device(backend: Backend, model: nn.Module) -> dict[str, Any]:
    dtypes = sorted({str(v.dtype).rpartition(".")[2] for _, v in named_parameters(model).items()})
    blas = backend.blas
    return {
        "device": backend.device,
        "back_end": backend.kind,
        "mlx_version": backend.mlx_version,
        "blas": None if blas is None else blas.name,
        "dtypes": dtypes,
    }
