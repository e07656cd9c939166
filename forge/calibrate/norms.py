"""The norm gains of a loaded head, under their published names, and a way to shift them for a while."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager

import mlx.core as mx

from mtplx.contracts.errors import HeadMissingError, InternalError
from mtplx.contracts.head_names import HeadTensors
from mtplx.runtime.heads.head import Head, MTPModule
from mtplx.runtime.heads.layout import HeadLayout
from mtplx.runtime.heads.registry import find_layout
from mtplx.runtime.loading.arrays import named_parameters
from mtplx.runtime.loading.norms import norm_names
from mtplx.runtime.model import Model


class HeadNorms:
    """Every norm gain of a head. `names` are relative to the head as published: `0.enorm.weight`.

    `output` is the index of the norm that stands before the logits.
    """

    def __init__(self, module: MTPModule, names: dict[str, str]) -> None:
        """`names` maps a parameter path of `module` to its published name."""
        self._module = module
        self._parameters = norm_names(named_parameters(module))
        unnamed = [path for path in self._parameters if path not in names]
        if unnamed:
            raise InternalError(f"norms of the head without a published name: {unnamed}")
        self.names = tuple(names[path] for path in self._parameters)

        self.output = self._parameters.index("output_norm.weight")

    def __len__(self) -> int:
        return len(self.names)

    @contextmanager
    def shifted(self, shifts: Sequence[int]) -> Iterator[None]:
        """Add `shifts`, one a name, to the gains inside the block; afterwards the very same arrays are back.

        The sum is made in float32 and computed with in the type of the gain, as a loaded artifact would.
        """
        stored = named_parameters(self._module)
        moved = [
            (path, shift) for path, shift in zip(self._parameters, shifts, strict=True) if shift
        ]
        try:
            self._replace([(path, _add(stored[path], shift)) for path, shift in moved])
            yield
        finally:
            self._replace([(path, stored[path]) for path, _ in moved])

    def _replace(self, values: list[tuple[str, mx.array]]) -> None:
        self._module.load_weights(values, strict=False)


def head_norms(model: Model, head: Head) -> HeadNorms:
    """The norms of the head of `model`.

    Raises:
        HeadMissingError: inspection found no tensors of a head.
    """
    tensors, family = model.inspection.head_tensors, model.inspection.family
    if tensors is None or family is None:
        raise HeadMissingError(
            f"{model.path} has no MTP head", hint="forge it from a source with one"
        )
    return HeadNorms(head.module, published_names(find_layout(family.layout), tensors))


def published_names(layout: HeadLayout, tensors: HeadTensors) -> dict[str, str]:
    """Parameter path in `MTPModule` -> name relative to the head, for the first MTP layer."""
    names: dict[str, str] = {}
    for name in tensors.names.values():
        number, _, rest = name.partition(".")
        is_numbered = not layout.block_prefix
        if is_numbered and number != "0":
            continue
        parameter = layout.parameter(rest if is_numbered else name)
        if parameter is not None:
            names[parameter] = name
    return names


def _add(gain: mx.array, shift: int) -> mx.array:
    return (gain.astype(mx.float32) + shift).astype(gain.dtype)
