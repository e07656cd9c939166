"""What contracts share with the public project's format: versions, profile, wiring.

Its releases count by themselves. Our `min_engine_version` is compared there with its version
numbers and here with ours, so it must be a version that both have reached (`MIN_ENGINE_VERSION`);
a change of the format that older readers must not see is told by `schema_version` instead.
"""

from typing import Final, Literal

from pydantic import Field

from mtplx.contracts.contract_part import Part
from mtplx.contracts.family import HiddenPoint, Wiring

# Contracts without schema_version are of the public project: its format is read as of this release.
PUBLIC_ENGINE_VERSION: Final = "2.12.2"
MIN_ENGINE_VERSION: Final = "0.1.0"
PUBLIC_PROFILE: Final = "sustained"
"""The profile that our contracts recommend to the public tool; mtplx has no profiles."""

PublicPoint = Literal["pre_norm", "post_norm"]
_TO_PUBLIC: dict[HiddenPoint, PublicPoint] = {"pre": "pre_norm", "post": "post_norm"}
_FROM_PUBLIC: dict[str | None, HiddenPoint] = {"pre_norm": "pre", "post_norm": "post"}


class PublicWiring(Part):
    """`mtp_contract`: the wiring of the head under the public format's names.

    Its values are wider than ours: what has no equivalent here is read and not used.
    """

    base_hidden_variant: str | None = Field(
        default=None, description="Trunk hidden fed to depth 1: `pre_norm` or `post_norm` (brand)."
    )
    hidden_variant: str | None = Field(
        default=None, description="Head hidden fed to the next depth, likewise (brand)."
    )
    concat_order: str | None = Field(
        default=None, description="`embedding_hidden` or `hidden_embedding` (brand)."
    )
    mtp_position_mode: str | None = Field(
        default=None, description="`cache`: positions count from the head's own cache (brand)."
    )

    @property
    def wiring(self) -> Wiring | None:
        """The same in our terms; None when it is not recorded completely or has no equivalent."""
        feed = _FROM_PUBLIC.get(self.base_hidden_variant)
        recycle = _FROM_PUBLIC.get(self.hidden_variant)
        if feed is None or recycle is None:
            return None
        if self.concat_order == "embedding_hidden":
            return Wiring(feed, recycle, "embedding_hidden")
        if self.concat_order == "hidden_embedding":
            return Wiring(feed, recycle, "hidden_embedding")
        return None


def public_wiring(wiring: Wiring) -> PublicWiring:
    """`wiring` as the public tool reads it."""
    return PublicWiring(
        base_hidden_variant=_TO_PUBLIC[wiring.feed],
        hidden_variant=_TO_PUBLIC[wiring.recycle],
        concat_order=wiring.concat,
        mtp_position_mode="cache",
    )
