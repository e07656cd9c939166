"""The reports of the benchmarks, one model each, and the JSON Schema of them all.

`python -m mtplx.runtime.bench.report` prints the schema.
"""

from __future__ import annotations

import json
import sys
from importlib.resources import files
from typing import Annotated, Any, Final, Literal

from pydantic import Field, TypeAdapter

from mtplx.runtime.bench.part import (
    SCHEMA_VERSION,
    Count,
    Interval,
    LeftOut,
    MachineConditions,
    Part,
    Report,
    Sampling,
    Share,
)

SCHEMA_NAME: Final = "bench.schema.json"

PromptTokens = Annotated[dict[str, int], Field(description="Tokens of each prompt.")]


class SpeedRow(Part):
    """One way of decoding. Speeds count tokens a second after the first, over all prompts of a repeat."""

    name: str = Field(description="plain, mtp-N, mtp-auto or mlx-lm.")
    tok_s: Interval
    tok_s_by_repeat: tuple[float, ...]
    tok_s_by_domain: dict[str, float] = Field(description="Medians.")
    over_plain: Interval = Field(description="Ratio to plain decoding, paired by repeat.")
    over_mlx_lm: Interval | None = Field(description="The same to mlx-lm; null where it is absent.")
    verdict: Literal["faster", "slower", "open"] | None = Field(
        description="Against plain decoding: the whole interval lies above or below 1 and signed "
        "ranks agree, so that all verdicts of a part together err in fewer than 5 % of runs. Null "
        "for plain decoding itself."
    )
    ttft_s: Interval = Field(description="Seconds to the first token, mean of the prompts.")
    peak_bytes: int | None = Field(
        description="Most that all arrays of MLX took, weights included."
    )
    tokens_per_round: float = Field(description="Tokens that one forward of the trunk gave.")
    acceptance: tuple[Share, ...] = Field(
        description="Share of the drafts of each depth that stayed, whatever came of those before."
    )
    acceptance_by_domain: dict[str, tuple[Share, ...]]
    text_equals_plain: dict[str, bool] = Field(description="By prompt, over all repeats.")


class SpeedPart(Part):
    """All systems on the same prompts."""

    context: int | None = Field(
        description="Tokens of each prompt; null for the prompts of the suite as they are."
    )
    prompt_tokens: PromptTokens
    rows: tuple[SpeedRow, ...]


class SpeedReport(Report):
    """`mtplx bench speed`."""

    kind: Literal["speed"] = "speed"
    repeats: Count
    repeats_needed: Count = Field(description="Fewest repeats that can carry a verdict.")
    confidence: Share = Field(description="Of each interval and verdict.")
    max_tokens: Count
    sampling: Sampling
    parts: tuple[SpeedPart, ...]


class VerifyCost(Part):
    """A forward over so many rows."""

    rows: Count
    seconds: Interval
    v: Interval = Field(description="In forwards over one row, paired by repeat.")


class DraftCost(Part):
    """A chain of so many drafts."""

    depth: Count
    c: Interval = Field(description="The whole chain, in forwards over one row.")
    c_per_draft: float


class RoundCost(Part):
    """A whole round at a depth."""

    depth: Count
    seconds: Interval
    o: Interval = Field(
        description="What it took beside its forward and its drafts, in forwards over one row."
    )


class VerifyCostPart(Part):
    """Costs behind a context of so many tokens."""

    context: Count
    verify: tuple[VerifyCost, ...]
    drafts: tuple[DraftCost, ...]
    rounds: tuple[RoundCost, ...]


class VerifyCostReport(Report):
    """`mtplx bench verify-cost`."""

    kind: Literal["verify-cost"] = "verify-cost"
    repeats: Count
    repeats_needed: Count
    confidence: Share
    parts: tuple[VerifyCostPart, ...]


class AcceptRow(Part):
    """What became of the drafts under one law, in one domain or in `all`."""

    setting: str = Field(description="greedy, coupled, rejection or block.")
    domain: str
    prompts: Count
    rounds: Count
    tokens: Count = Field(description="After the first of each answer.")
    tokens_per_round: float
    drafted: tuple[Count, ...] = Field(description="By depth.")
    accepted: tuple[Count, ...]
    acceptance: tuple[Share, ...] = Field(description="Whatever came of the drafts before.")
    over_coupled: Interval | None = Field(
        description="Tokens per round over those of coupled, paired by prompt; null for greedy and "
        "coupled, and where prompts are too few for an interval."
    )


class AcceptReport(Report):
    """`mtplx bench accept`: nothing here is a claim about time."""

    kind: Literal["accept"] = "accept"
    depth: Count
    max_tokens: Count
    sampling: Sampling = Field(description="Of all settings but greedy.")
    confidence: Share
    prompt_tokens: PromptTokens
    rows: tuple[AcceptRow, ...]


class PrefillRow(Part):
    """One system reading prompts of one length in chunks of one size."""

    name: str = Field(description="plain (no head), primed (the head reads along), or mlx-lm.")
    length: Count
    chunk: Count
    ttft_s: Interval = Field(description="Seconds to the first token.")
    tok_s: Interval = Field(description="Prompt tokens a second.")
    head_rest_s: Interval | None = Field(
        description="What the head still reads before its first draft: the last chunk."
    )
    over_plain: Interval | None = Field(description="Speed, paired by repeat; null for plain.")
    over_mlx_lm: Interval | None
    peak_bytes: Count


class PrefillReport(Report):
    """`mtplx bench prefill`."""

    kind: Literal["prefill"] = "prefill"
    repeats: Count
    repeats_needed: Count
    confidence: Share
    rows: tuple[PrefillRow, ...]


class WeightsRow(Part):
    """Bytes of the weights as they are computed with."""

    trunk_bytes: Count
    head_bytes: int | None


class MemoryRow(Part):
    """One system behind a context of so many tokens. Peaks count all arrays of MLX, weights included."""

    name: str = Field(description="mtplx or mlx-lm.")
    kv_bits: int | None
    context: Count
    prefill_peak_bytes: Count
    decode_peak_bytes: Count
    trunk_cache_bytes: Count = Field(description="As held after the answer, spare room included.")
    head_cache_bytes: int | None
    trunk_bytes_per_token: float | None = Field(
        description="What one more token adds to the rows in use; null where it is not known."
    )
    head_bytes_per_token: float | None


class MemoryReport(Report):
    """`mtplx bench memory`."""

    kind: Literal["memory"] = "memory"
    depth: Count
    max_tokens: Count
    weights: WeightsRow
    rows: tuple[MemoryRow, ...]


class ServeRow(Part):
    """So many clients at once. Streams are those of a load, one request of a client after the other."""

    clients: Count
    client_tok_s: Interval = Field(description="Of the slowest stream of a load, while it ran.")
    total_tok_s: Interval = Field(
        description="All tokens of a load, from the first request to the last answer."
    )
    first_byte_s: Interval = Field(
        description="From the end of the prompt to the first text at the client; medians of loads."
    )
    first_byte_p95_s: float = Field(description="Of all streams.")
    requests_s: Interval = Field(description="Answers in one piece a second.")
    server_cpu_s_per_1000_tokens: float
    clients_cpu_s_per_1000_tokens: float


class ServeReport(Part):
    """`mtplx bench serve`: what the server takes, in front of an engine that costs nothing."""

    schema_version: Literal[1] = Field(default=1, description="Version of this format.")
    kind: Literal["serve"] = "serve"
    conditions: MachineConditions
    left_out: tuple[LeftOut, ...] = ()
    warnings: tuple[str, ...]
    tokenizer: str = Field(description="Name of the folder whose tokenizer and template are used.")
    api: str
    requests: Count = Field(description="Of each client in a load.")
    max_tokens: Count = Field(description="Of a streamed answer.")
    whole_max_tokens: Count = Field(description="Of an answer in one piece.")
    burst: Count = Field(description="Tokens that the engine gives at once.")
    repeats: Count
    rows: tuple[ServeRow, ...]

    def to_json(self) -> dict[str, Any]:
        """A JSON-serialisable account."""
        return self.model_dump(mode="json")


AnyReport = Annotated[
    SpeedReport | VerifyCostReport | AcceptReport | PrefillReport | MemoryReport | ServeReport,
    Field(discriminator="kind"),
]


def report_schema() -> dict[str, Any]:
    """The schema, generated from the models."""
    adapter: TypeAdapter[Any] = TypeAdapter(AnyReport)
    return {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        **adapter.json_schema(mode="serialization"),
        "title": f"mtplx bench report, version {SCHEMA_VERSION}",
    }


def schema_text() -> str:
    """The schema as the shipped file holds it."""
    return json.dumps(report_schema(), indent=2, ensure_ascii=False) + "\n"


def shipped_schema() -> dict[str, Any]:
    """The schema that is installed with the package."""
    text = files("mtplx.runtime.bench").joinpath(SCHEMA_NAME).read_text(encoding="utf-8")
    schema: dict[str, Any] = json.loads(text)
    return schema


if __name__ == "__main__":
    sys.stdout.write(schema_text())
