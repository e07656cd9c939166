"""Which contexts a model and the memory of this machine have room for."""

from __future__ import annotations

from collections.abc import Sequence

from mtplx.contracts.errors import MTPLXError, PromptTooLongError, ResourceError
from mtplx.runtime.bench.part import LeftOut
from mtplx.runtime.bench.tasks import Room

# A buffer that is full moves to one half as large again, and both exist for a moment.
_GROWTH = 2.5
_GIB = 2**30


def misfit(length: int, answer: int, *, context: int | None, room: Room) -> MTPLXError | None:
    """What keeps a prompt of `length` tokens and `answer` more from being measured; None when nothing does."""
    total = length + answer
    if context is not None and total > context:
        return PromptTooLongError(
            f"{length} tokens and {answer} after them do not fit the context of {context} tokens",
            hint=f"Up to {max(context - answer, 0)} tokens do.",
        )
    needed = _GROWTH * total * room.bytes_per_token
    if needed > room.free_bytes:
        return ResourceError(
            f"{length} tokens and {answer} after them need about {needed / _GIB:.1f} GiB of caches, and "
            f"{room.free_bytes / _GIB:.1f} GiB are free",
            hint="Measure shorter contexts, or free some memory.",
        )
    return None


def fit_lengths(
    lengths: Sequence[int], answer: int, *, context: int | None, room: Room, insist: bool
) -> tuple[list[int], list[LeftOut]]:
    """The lengths that there is room for, and the others with the reason; each once, the shortest first.

    Raises:
        PromptTooLongError, ResourceError: one has no room and the user insists, or none has.
    """
    kept: list[int] = []
    left_out: list[LeftOut] = []
    for length in sorted(set(lengths)):
        error = misfit(length, answer, context=context, room=room)
        if error is None:
            kept.append(length)
        elif insist or (not kept and length == max(lengths)):
            raise error
        else:
            left_out.append(LeftOut(name=f"{length} tokens", reason=error.message))
    return kept, left_out
