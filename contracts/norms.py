"""Whether norm gains are stored as they multiply, or zero-centred, decided by provenance.

A head read in the wrong convention is never right and raises no error, so nothing here looks at
MTP keys or guesses from single values: our own contract counts first, then the layout of the
depthwise convolution, which converters move from `[C, 1, K]` to `[C, K, 1]` when they also add
the 1. A pack that somebody else converted says nothing about its head.
"""

from typing import Literal

from mtplx.contracts.family import Family
from mtplx.contracts.head_names import HeadTensors
from mtplx.contracts.tensors import TensorIndex

NormEncoding = Literal["absolute", "delta", "undecided-needs-values"]


def norm_encoding(
    family: Family, index: TensorIndex, head: HeadTensors | None, recorded: NormEncoding | None
) -> NormEncoding:
    """The encoding of the head's norms, or of the trunk's where there is no head.

    `recorded` is what a contract of our own says. "undecided-needs-values": whoever reads the
    values must decide once for the whole head.
    """
    if not family.zero_centred_norms:
        return "absolute"
    if recorded is not None and head is not None:
        return recorded
    trunk = trunk_norm_encoding(family, index)
    if head is None:
        return trunk
    beside = any(index.tensors[name].file in index.sidecars for name in head.names)
    return "delta" if trunk == "delta" and not beside else "undecided-needs-values"


def trunk_norm_encoding(family: Family, index: TensorIndex) -> NormEncoding:
    """The encoding of the trunk's norms: raw releases are zero-centred, conversions are not."""
    if not family.zero_centred_norms:
        return "absolute"
    raw = {
        tensor.shape[-1] != 1
        for name, tensor in index.tensors.items()
        if name.endswith(".conv1d.weight") and len(tensor.shape) == 3
    }
    if not raw:
        formats = {metadata.get("format") for metadata in index.metadata.values()}
        raw = {True} if formats == {"pt"} else {False} if formats == {"mlx"} else set()
    if raw == {True}:
        return "delta"
    return "absolute" if raw == {False} else "undecided-needs-values"
