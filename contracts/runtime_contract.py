"""`mtplx_runtime.json`: what an artifact claims, parsed and judged, never obeyed.

The names of the spine are those of the public format, so that artifacts work in both directions;
`schema_version`, `content`, `head`, `exactness`, `calibration` and `labels` are additions of this
project. A contract describes. It cannot set environment variables or engine switches: keys that
would are kept and listed like any other unknown key.
"""

import re
from pathlib import Path
from typing import Any, Final, Literal

from pydantic import Field, ValidationError

from mtplx.contracts.contract_part import Part
from mtplx.contracts.contract_parts import (
    WINNING_VERDICT,
    Calibration,
    Content,
    Exactness,
    ForgeProvenance,
    HeadContract,
    Object,
    Sampler,
    SpeedEvidence,
)
from mtplx.contracts.errors import CorruptModelError, UnsupportedModelError
from mtplx.contracts.family import Wiring
from mtplx.contracts.files import write_json
from mtplx.contracts.identity import CONTRACT_NAME
from mtplx.contracts.json_object import read_object
from mtplx.contracts.paths import resolve_inside
from mtplx.contracts.plain_json import check_plain
from mtplx.contracts.public_format import (
    MIN_ENGINE_VERSION,
    PUBLIC_ENGINE_VERSION,
    PublicWiring,
    public_wiring,
)
from mtplx.contracts.tensor_header import shortened
from mtplx.version import __version__

__all__ = [
    "MIN_ENGINE_VERSION",
    "PUBLIC_ENGINE_VERSION",
    "SCHEMA_VERSION",
    "Calibration",
    "Content",
    "Exactness",
    "ForgeProvenance",
    "HeadContract",
    "PublicWiring",
    "RuntimeContract",
    "Sampler",
    "SpeedEvidence",
    "public_wiring",
    "read_contract",
    "write_contract",
]

SCHEMA_VERSION: Final = 1

_ENVIRONMENT_KEYS = frozenset({"runtime_env_overrides", "env", "environment"})
_HINT = "Fetch the file again, or delete it to run without a contract."


class RuntimeContract(Part):
    """A parsed contract. Keys it does not know are kept; `unknown_keys` names them."""

    schema_version: int | None = Field(
        default=None, ge=1, description="1; absent in contracts of the public tool (brand)."
    )
    mtplx_version: str | None = Field(default=None, description="The mtplx that wrote it (brand).")
    min_engine_version: str | None = Field(
        default=None, description="The oldest engine that may run the artifact (brand)."
    )
    arch_id: str | None = Field(
        default=None, description="The architecture, by the public project's ids (brand)."
    )
    labels: list[str] = Field(
        default=[], description="What users must be told, such as `degraded-mtp` (brand)."
    )
    mtp_depth_max: int | None = Field(
        default=None, ge=0, le=64, description="The greatest depth that was tested (verify)."
    )
    recommended_generation_mode: Literal["mtp", "ar"] | None = Field(
        default=None, description="`mtp` where it was faster (verify)."
    )
    recommended_profile: str | None = Field(
        default=None, description="`sustained`, for the public tool; not read here (brand)."
    )
    sampler: Sampler | None = Field(default=None, description="Recommended sampling (brand).")
    vision: Object | None = Field(
        default=None, description="The vision tower; null: text only (brand)."
    )
    head: HeadContract | None = Field(
        default=None, description="How the head is stored and wired (brand)."
    )
    mtp_contract: PublicWiring | None = Field(
        default=None, description="The wiring under the public format's names (brand)."
    )
    calibration: Calibration | None = Field(
        default=None, description="How the wiring was found (calibrate)."
    )
    exactness: Exactness | None = Field(
        default=None, description="Output with MTP compared with output without (verify)."
    )
    exactness_baseline: Object | None = Field(
        default=None, description="Summary of the exactness test for the public tool (verify)."
    )
    speed_evidence: SpeedEvidence | None = Field(
        default=None, description="Measured speed against plain decoding (verify)."
    )
    verified_on: Object | None = Field(
        default=None, description="The machine on which it was verified (verify)."
    )
    forge_provenance: ForgeProvenance | None = Field(
        default=None, description="Where the artifact comes from (brand)."
    )
    content: Content | None = Field(
        default=None, description="Hashes of every file that decides the output (brand)."
    )

    @property
    def is_public(self) -> bool:
        """Whether the contract is of the public project's format."""
        return self.schema_version is None

    @property
    def unknown_keys(self) -> tuple[str, ...]:
        """Top-level keys this version does not read, sorted."""
        return tuple(sorted(self.model_extra or {}))

    @property
    def refused_keys(self) -> tuple[str, ...]:
        """Keys that try to set the environment, which no contract can."""
        return tuple(key for key in self.unknown_keys if key in _ENVIRONMENT_KEYS)

    @property
    def wiring(self) -> Wiring | None:
        """The recorded wiring of the head, None when it is not recorded completely."""
        if self.head is not None:
            return self.head.wiring
        return self.mtp_contract.wiring if self.mtp_contract else None

    def unproven(self) -> tuple[str, ...]:
        """Why the contract's own evidence does not make the artifact verified; empty if it does.

        The content still has to match: see `mtplx.contracts.content_check`.
        """
        faults: list[str] = []
        if self.exactness is None or not self.exactness.holds:
            faults.append("the contract records no passed exactness test")
        if self.speed_evidence is None or not self.speed_evidence.is_significant:
            faults.append("the contract records no significant speed gain")
        verdict = self.speed_evidence.verdict if self.speed_evidence else None
        if verdict not in (None, WINNING_VERDICT):
            faults.append(f"the contract records the verdict {shortened(ascii(verdict))}")
        if self.content is None:
            faults.append("the contract records no content hashes")
        return tuple(faults)

    def to_json(self) -> dict[str, Any]:
        """JSON values in a fixed order: declared fields first, unknown keys as they were read.

        A contract of ours is complete, a public one has the keys that it came with.
        """
        return self.model_dump(mode="json", exclude_unset=self.is_public)


def read_contract(folder: Path) -> RuntimeContract | None:
    """The contract of the model in `folder`, None when it has none.

    Raises CorruptModelError when the file is no contract, UnsupportedModelError when it asks for a
    newer mtplx.
    """
    path = folder / CONTRACT_NAME
    if not path.exists():
        return None
    data = read_object(resolve_inside(folder, CONTRACT_NAME), unique_keys=True, hint=_HINT)
    try:
        check_plain(data)
    except ValueError as cause:
        raise CorruptModelError(f"{path} is not a contract: {cause}.", hint=_HINT) from None
    _refuse_newer(path, data)
    try:
        return RuntimeContract.model_validate(data)
    except ValidationError as cause:
        first = cause.errors(include_url=False, include_input=False)[0]
        where = ".".join(shortened(str(part)) for part in first["loc"]) or "its top level"
        raise CorruptModelError(
            f"{path} has a bad value at {where}: {first['msg']}.", hint=_HINT
        ) from None


def write_contract(folder: Path, contract: RuntimeContract) -> None:
    """Put `contract` into `folder`, atomically; the same contract gives the same bytes.

    Raises ResourceError when the disk is full, UsageError when the folder cannot be written.
    """
    write_json(folder / CONTRACT_NAME, contract.to_json())


def _refuse_newer(path: Path, data: dict[str, Any]) -> None:
    """Versions are judged first: a newer format may have changed every other field."""
    schema = data.get("schema_version")
    if type(schema) is int and schema > SCHEMA_VERSION:
        raise UnsupportedModelError(
            f"{path} has schema_version {shortened(str(schema))}; mtplx {__version__} reads up to "
            f"{SCHEMA_VERSION}.",
            hint="Upgrade mtplx.",
        )
    wanted = data.get("min_engine_version")
    if not isinstance(wanted, str):
        return
    ours = PUBLIC_ENGINE_VERSION if schema is None else __version__
    needed = _version(wanted)
    if needed is None:
        raise CorruptModelError(
            f"{path} has the min_engine_version {shortened(ascii(wanted))}, expected a version "
            "like 1.2.3.",
            hint=_HINT,
        )
    if needed > (_version(ours) or ()):
        meaning = f"the public contract format of {ours}" if schema is None else f"mtplx {ours}"
        raise UnsupportedModelError(
            f"{path} asks for engine version {shortened(wanted)} or newer; this is {meaning}.",
            hint="Upgrade mtplx.",
        )


def _version(text: str) -> tuple[int, ...] | None:
    """The release numbers of a version, trailing zeros dropped; suffixes do not count."""
    match = re.match(r"v?([0-9]{1,9}(?:\.[0-9]{1,9})*)", text.strip())
    if match is None:
        return None
    numbers = [int(part) for part in match[1].split(".")]
    while numbers and numbers[-1] == 0:
        numbers.pop()
    return tuple(numbers)
