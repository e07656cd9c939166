"""A contract against the model it lies beside, from metadata only.

A contract that describes another head than the one in the folder is worse than none: the head
would be run in the wrong way, silently. So every contradiction ends the inspection.
"""

from typing import TYPE_CHECKING

from mtplx.contracts.arch_ids import ARCH_IDS, arch_id
from mtplx.contracts.errors import CorruptModelError, MTPLXError, UnsupportedModelError
from mtplx.contracts.family import Family
from mtplx.contracts.head_names import HeadTensors
from mtplx.contracts.identity import CONTRACT_NAME
from mtplx.contracts.tensor_header import TensorInfo, shortened
from mtplx.contracts.tensors import TensorIndex

if TYPE_CHECKING:
    from mtplx.contracts.contract_parts import HeadContract, ModuleQuantization
    from mtplx.contracts.runtime_contract import RuntimeContract

_OWN_EMBEDDING = ("embed_tokens.weight",)
_OWN_OUTPUT = ("shared_head.head.weight", "lm_head.weight")
_PACKED_BITS = 32


def check_contract(
    contract: "RuntimeContract", family: Family, head: HeadTensors | None, index: TensorIndex
) -> None:
    """Raise when `contract` contradicts `family` or the head's tensors.

    Raises UnsupportedModelError for another architecture, layout or wiring than mtplx runs here,
    CorruptModelError for everything else; the message names both values.
    """
    _check_architecture(contract, family)
    if contract.head is None:
        return
    recorded = contract.head
    _check_layout(recorded, family)
    if head is None:
        raise _contradiction(
            f"records a head of {recorded.mtp_layers} MTP layer(s)", "the weights hold none"
        )
    if contract.mtp_depth_max is None or contract.mtp_depth_max < 1:
        raise _contradiction(
            f"gives mtp_depth_max {contract.mtp_depth_max}",
            "it records a head, which can draft 1 token or more",
        )
    _check_tensors(recorded, head)
    _check_quantization(recorded, head, index)
    _check_both_wirings(contract)


def _check_architecture(contract: "RuntimeContract", family: Family) -> None:
    found, expected = contract.arch_id, arch_id(family)
    if found is None or found == expected:
        return
    # The public project has names for families that mtplx does not know.
    if contract.is_public and (expected is None or found not in ARCH_IDS.values()):
        return
    raise _contradiction(
        f"is for the architecture {shortened(ascii(found))}",
        f"config.json is of {family.title} ({expected or 'which has no architecture id'})",
        UnsupportedModelError,
    )


def _check_layout(recorded: "HeadContract", family: Family) -> None:
    if recorded.layout != family.layout:
        raise _contradiction(
            f"records a head of layout {shortened(ascii(recorded.layout))}",
            f"heads of {family.title} have the layout '{family.layout}'",
            UnsupportedModelError,
        )
    if recorded.norm_encoding == "delta" and not family.zero_centred_norms:
        raise _contradiction(
            "records norm gains stored minus one (norm_encoding 'delta')",
            f"{family.title} stores them as they are ('absolute')",
        )
    if recorded.layer_per_depth and not family.wiring.layer_per_depth:
        raise _contradiction(
            "records one MTP layer per depth (layer_per_depth true)",
            f"mtplx runs {family.title} with its first layer at every depth",
            UnsupportedModelError,
        )


def _check_tensors(recorded: "HeadContract", head: HeadTensors) -> None:
    if recorded.mtp_layers > head.num_layers:
        raise _contradiction(
            f"records {recorded.mtp_layers} MTP layers", f"the weights hold {head.num_layers}"
        )
    if recorded.prefix is not None and recorded.prefix != head.prefix:
        raise _contradiction(
            f"records the head under {shortened(ascii(recorded.prefix))}",
            f"the weights hold it under '{head.prefix}'",
        )
    for key, value, endings in (
        ("own_embedding", recorded.own_embedding, _OWN_EMBEDDING),
        ("own_output", recorded.own_output, _OWN_OUTPUT),
    ):
        found = any(name.endswith(endings) for name in head.names.values())
        if value is not found:
            raise _contradiction(
                f"records {key} {str(value).lower()}",
                f"the head holds {'such' if found else 'no such'} a tensor "
                f"({' or '.join(endings)})",
            )


def _check_quantization(recorded: "HeadContract", head: HeadTensors, index: TensorIndex) -> None:
    """Modules with scales are those that the contract names, packed as it says."""
    tensors = {relative: index.tensors[name] for name, relative in head.names.items()}
    packed = {name.removesuffix(".scales") for name in tensors if name.endswith(".scales")}
    described = recorded.quantization or {}
    for module in sorted(packed ^ described.keys()):
        is_packed = module in packed
        raise _contradiction(
            f"records {'no ' if is_packed else ''}quantisation of the head's {shortened(module)}",
            f"the weights hold {'' if is_packed else 'no '}scales for it",
        )
    for module, spec in described.items():
        _check_packing(module, spec, tensors)


def _check_packing(module: str, spec: "ModuleQuantization", tensors: dict[str, TensorInfo]) -> None:
    """Packed width and number of scales must give the same number of inputs."""
    weight, scales = tensors.get(f"{module}.weight"), tensors[f"{module}.scales"]
    if weight is None or not weight.shape or not scales.shape:
        raise _contradiction(
            f"records quantisation of the head's {shortened(module)}",
            "the weights hold no matrix for it",
        )
    inputs = weight.shape[-1] * _PACKED_BITS // spec.bits
    if inputs != scales.shape[-1] * spec.group_size:
        raise _contradiction(
            f"records {spec.bits} bits in groups of {spec.group_size} for the head's "
            f"{shortened(module)}",
            f"its weight {list(weight.shape)} and scales {list(scales.shape)} do not fit that",
        )


def _check_both_wirings(contract: "RuntimeContract") -> None:
    public = contract.mtp_contract.wiring if contract.mtp_contract else None
    own = contract.wiring
    if public is None or own is None:
        return
    for key in ("feed", "recycle", "concat"):
        if getattr(public, key) != getattr(own, key):
            raise _contradiction(
                f"records head.{key} '{getattr(own, key)}'",
                f"its mtp_contract says '{getattr(public, key)}'",
            )


def _contradiction(
    claim: str, fact: str, error: type[MTPLXError] = CorruptModelError
) -> MTPLXError:
    return error(
        f"{CONTRACT_NAME} {claim}, and {fact}.",
        hint=f"Fetch the model again, or delete {CONTRACT_NAME} to run it unverified.",
    )
