"""`mtplx_runtime.json`: what an artifact claims, parsed and judged, never obeyed.

The names of the spine are those of the public format, so that artifacts work in both directions;
`schema_version`, `content`, `head`, `exactness` and `calibration` are additions of this project.
A contract describes. It cannot set environment variables or engine switches: keys that would are
kept and listed like any other unknown key.
"""

import re
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from mtplx.contracts.errors import CorruptModelError, UnsupportedModelError
from mtplx.contracts.family import Wiring
from mtplx.contracts.identity import CONTRACT_NAME, Identity
from mtplx.contracts.json_object import read_object
from mtplx.version import __version__

SCHEMA_VERSION = 1
# Contracts without schema_version are of the public project, whose releases count by themselves:
# its format is read as of this one.
PUBLIC_ENGINE_VERSION = "2.12.2"

_ENVIRONMENT_KEYS = frozenset({"runtime_env_overrides", "env", "environment"})

Sha256 = Annotated[str, Field(pattern=r"^[0-9a-f]{64}$")]


class _Part(BaseModel):
    model_config = ConfigDict(extra="allow", frozen=True, strict=True, protected_namespaces=())


class Sampler(_Part):
    """Sampling values the publisher recommends."""

    temperature: float | None = Field(default=None, ge=0)
    top_p: float | None = Field(default=None, gt=0, le=1)
    top_k: int | None = Field(default=None, ge=0)


class Content(_Part):
    """sha256 of every file the artifact was verified with, and all of them combined."""

    identity: Sha256
    files: dict[str, Sha256]


class HeadContract(_Part):
    """How the head is stored and wired."""

    layout: str
    feed: Literal["pre", "post"]
    recycle: Literal["pre", "post"]
    concat: Literal["embedding_hidden", "hidden_embedding"]
    norm_encoding: Literal["absolute", "delta"]
    mtp_layers: int = Field(default=1, ge=1)
    layer_per_depth: bool = False
    mask_position0: bool = False
    quantization: dict[str, Any] | None = None


class Exactness(_Part):
    """Result of comparing MTP output with plain decoding, token by token."""

    passed: bool
    tokens: int = Field(ge=0)
    differences: int = Field(ge=0)
    numeric_ties: int = Field(default=0, ge=0)
    tested_on: dict[str, Any] = {}

    @property
    def holds(self) -> bool:
        """Whether something was compared and nothing differed."""
        return self.passed and self.tokens > 0 and self.differences == 0


class SpeedEvidence(_Part):
    """Measured speed against plain decoding; `gain_interval` is the 95 % interval of the ratio."""

    depth: int | None = None
    gain: float | None = None
    gain_interval: tuple[float, float] | None = Field(default=None, strict=False)

    @property
    def is_significant(self) -> bool:
        """Whether the whole interval of the gain lies above 1."""
        interval = self.gain_interval
        return interval is not None and 1 < interval[0] <= interval[1] < float("inf")


class PublicWiring(_Part):
    """The public format's `mtp_contract`."""

    base_hidden_variant: str | None = None
    hidden_variant: str | None = None
    concat_order: str | None = None


class RuntimeContract(_Part):
    """A parsed contract. Keys it does not know are kept; `unknown_keys` names them."""

    schema_version: int | None = Field(default=None, ge=1)
    mtplx_version: str | None = None
    arch_id: str | None = None
    mtp_depth_max: int | None = Field(default=None, ge=0)
    recommended_profile: Any = None
    sampler: Sampler | None = None
    verified_on: Any = None
    exactness_baseline: Any = None
    speed_evidence: SpeedEvidence | None = None
    mtp_contract: PublicWiring | None = None
    forge_provenance: Any = None
    min_engine_version: str | None = None
    content: Content | None = None
    head: HeadContract | None = None
    exactness: Exactness | None = None
    calibration: dict[str, Any] | None = None

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
            head = self.head
            return Wiring(
                head.feed, head.recycle, head.concat, head.layer_per_depth, head.mask_position0
            )
        return _public_wiring(self.mtp_contract) if self.mtp_contract else None

    def unproven(self) -> tuple[str, ...]:
        """Why the contract's own evidence does not make the artifact verified; empty if it does.

        The content still has to match: see `content_differences`.
        """
        faults: list[str] = []
        if self.exactness is None or not self.exactness.holds:
            faults.append("the contract records no passed exactness test")
        if self.speed_evidence is None or not self.speed_evidence.is_significant:
            faults.append("the contract records no significant speed gain")
        if self.content is None:
            faults.append("the contract records no content hashes")
        return tuple(faults)

    def content_differences(self, identity: Identity) -> tuple[str, ...]:
        """Names of files that were changed, added or removed since the contract was written."""
        recorded = self.content.files if self.content else {}
        found = identity.hashes()
        names = sorted(recorded.keys() | found.keys())
        return tuple(name for name in names if recorded.get(name) != found.get(name))


def read_contract(folder: Path) -> RuntimeContract | None:
    """The contract of the model in `folder`, None when it has none.

    Raises CorruptModelError when the file is no contract, UnsupportedModelError when it asks for a
    newer mtplx.
    """
    path = folder / CONTRACT_NAME
    if not path.exists():
        return None
    data = read_object(path, hint="Fetch the file again, or delete it to run without a contract.")
    _refuse_newer(path, data)
    try:
        return RuntimeContract.model_validate(data)
    except ValidationError as cause:
        first = cause.errors(include_url=False, include_input=False)[0]
        where = ".".join(str(part) for part in first["loc"])
        raise CorruptModelError(
            f"{path} has a bad value at {where}: {first['msg']}.",
            hint="Fetch the file again, or delete it to run without a contract.",
        ) from None


def _refuse_newer(path: Path, data: dict[str, Any]) -> None:
    """Versions are judged first: a newer format may have changed every other field."""
    schema = data.get("schema_version")
    if type(schema) is int and schema > SCHEMA_VERSION:
        raise UnsupportedModelError(
            f"{path} has schema_version {schema}; mtplx {__version__} reads up to "
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
            f"{path} has the min_engine_version {wanted!a}, expected a version like 1.2.3.",
            hint="Fetch the file again, or delete it to run without a contract.",
        )
    if needed > (_version(ours) or ()):
        meaning = f"the public contract format of {ours}" if schema is None else f"mtplx {ours}"
        raise UnsupportedModelError(
            f"{path} asks for engine version {wanted} or newer; this is {meaning}.",
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


_PUBLIC_POINTS: dict[str | None, Literal["pre", "post"]] = {"pre_norm": "pre", "post_norm": "post"}


def _public_wiring(public: PublicWiring) -> Wiring | None:
    feed = _PUBLIC_POINTS.get(public.base_hidden_variant)
    recycle = _PUBLIC_POINTS.get(public.hidden_variant)
    if feed is None or recycle is None:
        return None
    if public.concat_order == "embedding_hidden":
        return Wiring(feed, recycle, "embedding_hidden")
    if public.concat_order == "hidden_embedding":
        return Wiring(feed, recycle, "hidden_embedding")
    return None
