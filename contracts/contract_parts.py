"""The parts of a contract. Each description ends with the phase of Forge that writes the field."""

from dataclasses import asdict
from typing import Annotated, Any, Final, Literal, Self

from pydantic import Field, model_validator

from mtplx.contracts.contract_part import Part
from mtplx.contracts.family import ConcatOrder, HiddenPoint, Wiring
from mtplx.contracts.identity import FileRecord, Identity

WINNING_VERDICT: Final = "mtp_depth_wins"
MIN_GAIN: Final = 1.05
"""A speed gain below 5 % is none."""

Sha256 = Annotated[str, Field(pattern=r"^[0-9a-f]{64}$")]
Count = Annotated[int, Field(ge=0)]
Share = Annotated[float, Field(ge=0, le=1)]
Ratio = Annotated[float, Field(gt=0)]
Object = dict[str, Any]


class Sampler(Part):
    """Sampling values the publisher recommends."""

    temperature: float | None = Field(default=None, ge=0, description="0 is greedy (brand).")
    top_p: float | None = Field(default=None, gt=0, le=1, description="Nucleus (brand).")
    top_k: int | None = Field(default=None, ge=0, description="0 is off (brand).")


class FileEntry(Part):
    """One file of the artifact."""

    sha256: Sha256 = Field(description="Of all its bytes (brand).")
    size: Count = Field(description="In bytes (brand).")
    header_sha256: Sha256 | None = Field(
        default=None,
        description="Of the length bytes and the header of a safetensors file; null for others "
        "(brand).",
    )

    @property
    def record(self) -> FileRecord:
        """The same as a plain value."""
        return FileRecord(self.size, self.sha256, self.header_sha256)


class Content(Part):
    """Hashes of every file that decides the output."""

    identity: Sha256 = Field(
        description="One hash of all files: sha256 over role, name and sha256 of each (brand)."
    )
    files: dict[str, FileEntry] = Field(
        description="By name inside the folder; the contract itself is not among them (brand)."
    )

    @model_validator(mode="after")
    def _check_headers(self) -> Self:
        for name, entry in self.files.items():
            if name.endswith(".safetensors") is (entry.header_sha256 is None):
                raise ValueError(f"header_sha256 of {name} must be there for safetensors, only")
        return self

    @classmethod
    def of(cls, identity: Identity) -> Self:
        """The content of a folder that was hashed."""
        files = {name: FileEntry(**asdict(rec)) for name, rec in identity.records().items()}
        return cls(identity=identity.combined, files=files)

    def records(self) -> dict[str, FileRecord]:
        """The files as plain values."""
        return {name: entry.record for name, entry in self.files.items()}


class ModuleQuantization(Part):
    """How one module of the head is packed."""

    bits: int = Field(ge=2, le=8, description="Bits of a weight (convert).")
    group_size: int = Field(ge=16, le=128, description="Weights that share a scale (convert).")
    mode: Literal["affine", "mxfp4", "nvfp4", "mxfp8"] = Field(
        default="affine", description="MLX's quantisation mode (convert)."
    )


class HeadContract(Part):
    """How the head is stored and wired."""

    layout: str = Field(description="Name of the head layout: `qwen`, `nextn`, `mimo` (brand).")
    prefix: str | None = Field(
        default=None, description="What the head's tensor names begin with (convert)."
    )
    feed: HiddenPoint = Field(
        description="Trunk hidden fed to depth 1: before or after the trunk's final norm "
        "(calibrate)."
    )
    recycle: HiddenPoint = Field(
        description="Head hidden fed to the next depth: before or after the head's output norm "
        "(calibrate)."
    )
    concat: ConcatOrder = Field(
        description="Order of the two halves that enter the projection (calibrate)."
    )
    norm_encoding: Literal["absolute", "delta"] = Field(
        description="Norm gains as they multiply, or minus one; Forge writes `absolute` (convert)."
    )
    mtp_layers: int = Field(default=1, ge=1, le=64, description="Physical MTP layers (convert).")
    layer_per_depth: bool = Field(
        default=False, description="Depth k runs through layer k, not always the first (brand)."
    )
    mask_position0: bool = Field(
        default=False, description="The embedding of position 0 is zeroed (brand)."
    )
    own_embedding: bool = Field(
        default=False, description="The head has an embedding unlike the trunk's (convert)."
    )
    own_output: bool = Field(
        default=False, description="The head has an output projection unlike the trunk's (convert)."
    )
    policy: Literal["keep_bf16", "q8", "requantize"] | None = Field(
        default=None, description="The recipe's `mtp_policy` (convert)."
    )
    quantization: dict[str, ModuleQuantization] | None = Field(
        default=None,
        description="By module name relative to the head; null when nothing is packed (convert).",
    )

    @property
    def wiring(self) -> Wiring:
        """The wiring as a plain value."""
        return Wiring(
            self.feed, self.recycle, self.concat, self.layer_per_depth, self.mask_position0
        )


class Exactness(Part):
    """Result of comparing MTP output with plain decoding, token by token."""

    passed: bool = Field(description="The verdict (verify).")
    tokens: Count = Field(description="Tokens compared (verify).")
    differences: Count = Field(description="Tokens that differed (verify).")
    numeric_ties: Count = Field(
        default=0,
        description="Places where two tokens were as likely as rounding can tell (verify).",
    )
    tested_on: Object = Field(
        default={}, description="Prompts, depths, chunk sizes, seeds, versions, device (verify)."
    )
    law: Object | None = Field(
        default=None, description="Statistical test of rejection sampling (verify)."
    )

    @property
    def holds(self) -> bool:
        """Whether something was compared and nothing differed."""
        law_fails = self.law is not None and self.law.get("passed") is False
        return self.passed and self.tokens > 0 and self.differences == 0 and not law_fails


class SpeedEvidence(Part):
    """Measured speed against plain decoding."""

    depth: int | None = Field(default=None, ge=0, le=64, description="The fastest depth (verify).")
    tok_s: float | list[Any] | None = Field(
        default=None,
        description="Tokens per second at `depth`; the public tool writes a list (verify).",
    )
    ar_tok_s: float | None = Field(
        default=None, ge=0, description="Tokens per second of plain decoding (verify)."
    )
    gain: Ratio | None = Field(default=None, description="Median ratio of the two (verify).")
    gain_interval: Annotated[tuple[Ratio, Ratio], Field(strict=False)] | None = Field(
        default=None, description="95 % confidence interval of the gain (verify)."
    )
    acceptance_by_depth: list[Any] | Object | None = Field(
        default=None, description="Share of drafts accepted at each drafted position (verify)."
    )
    acceptance_by_domain: dict[str, Any] | None = Field(
        default=None, description="Share of drafts accepted by kind of text (verify)."
    )
    forge_verify_rows: list[Any] | None = Field(
        default=None, description="One row for each depth measured (verify)."
    )
    verdict: str | None = Field(
        default=None, description="`mtp_depth_wins`, or why the artifact is not verified (verify)."
    )
    failure_reasons: list[Any] | None = Field(
        default=None, description="Why the verdict is not a win (verify)."
    )
    conditions: Object | None = Field(
        default=None, description="Prompts, repetitions, seeds, versions, device (verify)."
    )

    @property
    def is_significant(self) -> bool:
        """Whether the gain is at least 5 % and its whole interval lies above 1."""
        interval = self.gain_interval
        return (
            self.gain is not None
            and self.gain >= MIN_GAIN
            and interval is not None
            and 1 < interval[0] <= interval[1]
        )


class Calibration(Part):
    """How the wiring was found: by agreement of head and trunk on real text."""

    wiring: Object | None = Field(default=None, description="The winner (calibrate).")
    norm_shift: dict[str, int] | None = Field(
        default=None,
        description="What was added to stored norm gains, by tensor; empty if nothing (calibrate).",
    )
    scores: list[Any] | None = Field(
        default=None, description="Every candidate and its agreement (calibrate)."
    )
    decided_by: Object | None = Field(
        default=None, description="By axis: measurement, or why none was needed (calibrate)."
    )
    text: Object | None = Field(
        default=None, description="sha256, tokens and domains of the text used (calibrate)."
    )
    agreement: list[Any] | None = Field(
        default=None, description="Agreement of the winner by depth (calibrate)."
    )


class ForgeProvenance(Part):
    """Where the artifact comes from."""

    source_repo: str | None = Field(
        default=None, description="Hub repository; null for a local folder (brand)."
    )
    source_sha: str | None = Field(default=None, description="Its commit (brand).")
    source_format: str | None = Field(
        default=None, description="How the source was packed (brand)."
    )
    source_files: Object | list[Any] | None = Field(
        default=None, description="Files of the source (brand)."
    )
    forge_recipe: Object | str | None = Field(default=None, description="The recipe (brand).")
    forge_inputs: Object | str | None = Field(
        default=None, description="Digest of everything that decides the bytes (brand)."
    )
    mtplx_version: str | None = Field(default=None, description="The mtplx that made it (brand).")
    versions: dict[str, str] | None = Field(
        default=None, description="Packages that decide the bytes (brand)."
    )
    forged_locally: bool | None = Field(
        default=None, description="Made on the machine that holds it (brand)."
    )
    published_to_hf: Object | bool | None = Field(
        default=None,
        description="Repository, revision, visibility and licence once uploaded; no part of the "
        "content's identity (publish).",
    )
