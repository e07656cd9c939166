"""What a model and its caches take, by context and by bits of the attention cache."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from mtplx.contracts.errors import UnsupportedModelError
from mtplx.runtime.bench import measurer
from mtplx.runtime.bench.measurer import Measurer
from mtplx.runtime.bench.part import Options
from mtplx.runtime.bench.report import MemoryReport, MemoryRow, WeightsRow
from mtplx.runtime.bench.session import MLX_LM, Progress, open_session
from mtplx.runtime.bench.settings import check
from mtplx.runtime.bench.tasks import MemoryTask, MemoryUse
from mtplx.runtime.decode.depth import MAX_DEPTH

CONTEXTS = (128, 1024, 4096)
OWN = "mtplx"


@dataclass(frozen=True, slots=True, kw_only=True)
class MemorySettings:
    """Answers of `max_tokens` behind contexts of so many tokens, with each of `kv_bits` (None: as computed).

    Of the usual contexts (`contexts` None) those without room are left out; contexts that were asked for are insisted
    on.

    Raises:
        InvalidRequestError: a value is out of its range; `key` names it.
    """

    contexts: tuple[int, ...] | None = None
    kv_bits: tuple[int | None, ...] = (None, 8, 4)
    depth: int = 3
    max_tokens: int = 16

    def __post_init__(self) -> None:
        for context in self.contexts or ():
            check("contexts", context, 1)
        check("depth", self.depth, 0, MAX_DEPTH)
        check("max_tokens", self.max_tokens, 2)


def measure_memory(
    folder: Path,
    settings: MemorySettings,
    options: Options,
    *,
    with_stock: bool,
    on_progress: Progress = lambda _label, _fraction: None,
) -> MemoryReport:
    """Decode behind every context, in a fresh process for each number of bits.

    Raises:
        MTPLXError: the folder can't be run, or a context has no room.
    """
    plain = options.model_copy(update={"kv_bits": None})
    with open_session(folder, plain, with_stock=with_stock, on_progress=on_progress) as session:
        contexts = session.fit(
            settings.contexts or CONTEXTS,
            settings.max_tokens,
            insist=settings.contexts is not None,
        )
        depth = settings.depth if session.has_head else 0
        if settings.depth and not depth:
            session.leave_out_head("the head and its cache")
        tasks = {
            context: MemoryTask(
                session.texts.long_prompt(context),
                settings.max_tokens,
                options.prefill_chunk,
                depth,
            )
            for context in contexts
        }
        rows: list[MemoryRow] = []
        systems = len(settings.kv_bits) + with_stock
        for number, bits in enumerate(settings.kv_bits):
            on_progress(f"kv_bits {bits or 'off'}", number / systems)
            if bits is None:
                rows += _watch(session.own, tasks, OWN, None)
                continue
            try:
                with measurer.open_own(folder, bits) as own:
                    rows += _watch(own, tasks, OWN, bits)
            except UnsupportedModelError as error:
                session.leave_out(f"kv_bits {bits}", error.message)
        for context, task in tasks.items():
            on_progress(f"{MLX_LM} behind {context} tokens", (systems - 1) / systems)
            stock = session.answering_stock([task], f" from {context} tokens on")
            if stock is not None:
                rows += _watch(stock, {context: task}, MLX_LM, None)
        return MemoryReport(
            **session.close(is_timed=False),
            depth=depth,
            max_tokens=settings.max_tokens,
            weights=_weights(session.own),
            rows=tuple(rows),
        )


def _watch(
    own: Measurer, tasks: dict[int, MemoryTask], name: str, bits: int | None
) -> Sequence[MemoryRow]:
    return [_row(name, bits, context, own.memory(task)) for context, task in tasks.items()]


def _row(name: str, bits: int | None, context: int, use: MemoryUse) -> MemoryRow:
    return MemoryRow(
        name=name,
        kv_bits=bits,
        context=context,
        prefill_peak_bytes=use.prefill_peak_bytes,
        decode_peak_bytes=use.decode_peak_bytes,
        trunk_cache_bytes=use.trunk_cache_bytes,
        head_cache_bytes=use.head_cache_bytes,
        trunk_bytes_per_token=use.trunk_bytes_per_token,
        head_bytes_per_token=use.head_bytes_per_token,
    )


def _weights(own: Measurer) -> WeightsRow:
    found = own.about["weights"]
    return WeightsRow(trunk_bytes=found["trunk"], head_bytes=found["head"])
