"""The seam for grammars: which tokens may come next."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

Mask = NDArray[np.bool_]


class Constraint(Protocol):
    """The tokens a grammar allows; one object serves one request.

    Only committed tokens advance it: what it says about drafts leaves it as it was.
    """

    def allowed(self, drafts: Sequence[int]) -> Mask | None:
        """Which tokens may follow the committed ones and `drafts`  # bool [V].

        None where `drafts` are not allowed themselves: that row decides nothing. At the end of the grammar the mask
        has the end tokens alone.
        """

    def commit(self, tokens: Sequence[int]) -> None:
        """Take committed tokens, end tokens among them. Raises InternalError for one that was not allowed."""
