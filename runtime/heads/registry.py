"""Head layouts by the name that the family registry gives them."""

from __future__ import annotations

from mtplx.contracts.errors import UnsupportedModelError
from mtplx.runtime.heads import mimo, nextn, qwen
from mtplx.runtime.heads.layout import HeadLayout

_LAYOUTS = {layout.name: layout for layout in (qwen.LAYOUT, nextn.LAYOUT, mimo.LAYOUT)}


def find_layout(name: str) -> HeadLayout:
    """The layout called `name`.

    Raises:
        UnsupportedModelError: no head of this layout can be run.
    """
    if name not in _LAYOUTS:
        raise UnsupportedModelError(
            f"no backend for MTP heads of layout {name!r}; runnable: {', '.join(sorted(_LAYOUTS))}"
        )
    return _LAYOUTS[name]
