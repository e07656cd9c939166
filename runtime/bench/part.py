"""What every report of `mtplx bench` has: conditions, figures with intervals, and what was left out."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from typing import Annotated, Any, Final, Literal, Self

from pydantic import BaseModel, ConfigDict, Field

from mtplx.runtime.tuning.statistics import CONFIDENCE, Gain, gain

SCHEMA_VERSION: Final = 1

Share = Annotated[float, Field(ge=0, le=1)]
Count = Annotated[int, Field(ge=0)]


class Part(BaseModel):
    """A piece of a report."""

    model_config = ConfigDict(extra="forbid", frozen=True, allow_inf_nan=False)


class Interval(Part):
    """A median and the bootstrap interval around it."""

    median: float
    low: float
    high: float

    @classmethod
    def of(cls, found: Gain) -> Self:
        """A gain as part of a report."""
        return cls(median=found.median, low=found.low, high=found.high)

    @classmethod
    def around(cls, values: Sequence[float], confidence: float = CONFIDENCE) -> Self:
        """The median of repeated measurements."""
        return cls.of(gain(values, [1.0] * len(values), confidence=confidence))

    @classmethod
    def of_ratio(
        cls, values: Sequence[float], base: Sequence[float], confidence: float = CONFIDENCE
    ) -> Self:
        """The median of paired ratios."""
        return cls.of(gain(values, base, confidence=confidence))


class LeftOut(Part):
    """A system, length or setting that was not measured."""

    name: str = Field(description="What was left out.")
    reason: str = Field(description="Why.")


class Sampling(Part):
    """How tokens are chosen; temperature 0 is greedy, top_p 1 and top_k 0 are off."""

    temperature: float = Field(default=0.0, ge=0)
    top_p: float = Field(default=1.0, gt=0, le=1)
    top_k: int = Field(default=0, ge=0)
    seed: int = Field(default=0, ge=0, lt=2**64)


class Options(Part):
    """Settings of mtplx that bear on the figures."""

    profile: str = Field(default="none", description="The profile they come from, or none.")
    acceptance: str = Field(default="coupled", description="Law by which drafts are accepted.")
    prefill_chunk: int = Field(default=512, ge=1, description="Prompt tokens read at a time.")
    kv_bits: int | None = Field(
        default=None, description="Bits of the attention cache; null: as computed."
    )


class MachineConditions(Part):
    """The machine while it was measured."""

    started: datetime
    ended: datetime
    platform: str
    processor: str
    cores: Count
    memory_gib: float
    versions: dict[str, str]
    load_start: tuple[float, float, float] = Field(description="Load over 1, 5 and 15 minutes.")
    load_end: tuple[float, float, float]
    other_cores: float = Field(
        ge=0, description="Processors that other processes kept busy, on average."
    )
    busy: str | None = Field(
        description="Why the machine counts as busy with other work; null if not."
    )


class Conditions(MachineConditions):
    """What the figures of a model hold for."""

    model: str = Field(description="Name of the model's folder.")
    identity: str = Field(description="sha256 over every file that decides the model's output.")
    family: str
    tier: str = Field(description="What inspection concluded.")
    head: str = Field(description="Whether the MTP head is declared, and present.")
    weight_bytes: Count = Field(description="Size of the weight files.")
    device: str = Field(description="cpu or gpu.")
    back_end: str
    chip: str
    blas: str | None = Field(description="Library of float32 products on the CPU; null elsewhere.")
    dtypes: tuple[str, ...] = Field(description="Types that mtplx computes in.")
    options: Options


class Report(Part):
    """The beginning of every report."""

    schema_version: Literal[1] = Field(default=1, description="Version of this format.")
    conditions: Conditions
    left_out: tuple[LeftOut, ...] = Field(description="What was not measured, and why.")
    warnings: tuple[str, ...] = Field(description="What a reader of the figures should know.")

    def to_json(self) -> dict[str, Any]:
        """A JSON-serialisable account."""
        return self.model_dump(mode="json")
