"""What the server takes, in front of an engine that costs nothing: speed of streams, and time to the first byte."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import asdict, dataclass
from pathlib import Path

from mtplx.runtime.bench.conditions import machine_conditions, now
from mtplx.runtime.bench.endpoint.tasks import Answered, Api, Load, LoadTask, ServerTold
from mtplx.runtime.bench.measurer import MeasuringProcess
from mtplx.runtime.bench.part import Interval
from mtplx.runtime.bench.protocol import raise_told
from mtplx.runtime.bench.report import ServeReport, ServeRow
from mtplx.runtime.bench.session import Progress
from mtplx.runtime.bench.settings import check

_PACKAGE = "mtplx.runtime.bench.endpoint"
_WHOLE_TOKENS = 16


@dataclass(frozen=True, slots=True, kw_only=True)
class ServeSettings:
    """Loads of so many clients at once, each asking `requests` times for `max_tokens`, in bursts of `burst`.

    Raises:
        InvalidRequestError: a value is out of its range; `key` names it.
    """

    clients: tuple[int, ...] = (1, 4, 16)
    requests: int = 4
    max_tokens: int = 1000
    burst: int = 1
    api: Api = "chat"
    repeats: int = 7

    def __post_init__(self) -> None:
        for count in self.clients:
            check("clients", count, 1, 128)
        check("requests", self.requests, 1)
        check("max_tokens", self.max_tokens, 2)
        check("burst", self.burst, 1, 64)
        check("repeats", self.repeats, 1)


@dataclass(frozen=True, slots=True)
class _Repeat:
    """One load from both sides."""

    load: Load
    told: ServerTold
    server_cpu_s: float


def measure_serve(
    folder: Path,
    settings: ServeSettings,
    on_progress: Progress = lambda _label, _fraction: None,
) -> ServeReport:
    """Load the server, streamed and not, with all counts of clients in turn.

    Raises:
        MTPLXError: the folder has no tokenizer or chat template.
        BackendError: the server or the clients failed.
    """
    started = now()
    with ExitStack() as stack:
        server = stack.enter_context(
            MeasuringProcess(
                "the server", f"{_PACKAGE}.server_process", folder, str(settings.burst)
            )
        )
        clients = stack.enter_context(
            MeasuringProcess("the clients", f"{_PACKAGE}.clients_process", Path("-"))
        )
        measured = _Loads(server, clients, settings).run(on_progress)
    conditions = machine_conditions(started, now(), ("uvicorn", "starlette", "pydantic"))
    busy = conditions.busy
    rows = tuple(
        _row(count, measured[count, True], measured[count, False]) for count in settings.clients
    )
    return ServeReport(
        conditions=conditions,
        warnings=()
        if busy is None
        else (f"the machine was busy: {busy}; expect low and scattered figures",),
        tokenizer=folder.resolve().name,
        api=settings.api,
        requests=settings.requests,
        max_tokens=settings.max_tokens,
        whole_max_tokens=_WHOLE_TOKENS,
        burst=settings.burst,
        repeats=settings.repeats,
        rows=rows,
    )


class _Loads:
    """Both processes, and the loads to run."""

    def __init__(
        self, server: MeasuringProcess, clients: MeasuringProcess, settings: ServeSettings
    ) -> None:
        self._server = server
        self._clients = clients
        self._settings = settings

    def run(self, on_progress: Progress) -> dict[tuple[int, bool], list[_Repeat]]:
        """All repeats by count of clients and by whether answers are streamed; a first round does not count."""
        counts = self._settings.clients
        measured: dict[tuple[int, bool], list[_Repeat]] = {
            (count, streams): [] for count in counts for streams in (True, False)
        }
        rounds = self._settings.repeats + 1
        for number in range(rounds):
            for count in counts:
                on_progress(f"{count} clients", number / rounds)
                for streams in (True, False):
                    repeat = self._repeat(count, streams=streams)
                    if number:
                        measured[count, streams].append(repeat)
        return measured

    def _repeat(self, count: int, *, streams: bool) -> _Repeat:
        settings = self._settings
        before = self._told().cpu_s
        task = LoadTask(
            url=self._server.about["url"],
            model=self._server.about["model"],
            api=settings.api,
            clients=count,
            requests=settings.requests,
            max_tokens=settings.max_tokens if streams else _WHOLE_TOKENS,
            streams=streams,
        )
        answer = self._clients.ask(asdict(task))
        raise_told(answer)
        load = Load([Answered(**one) for one in answer["answers"]], answer["cpu_s"])
        told = self._told()
        return _Repeat(load, told, told.cpu_s - before)

    def _told(self) -> ServerTold:
        return ServerTold(**self._server.ask({}))


def _row(clients: int, streamed: Sequence[_Repeat], whole: Sequence[_Repeat]) -> ServeRow:
    waits = sorted(wait for repeat in streamed for wait in _waits(repeat))
    tokens = [sum(one.tokens for one in repeat.load.answers) for repeat in streamed]
    return ServeRow(
        clients=clients,
        client_tok_s=Interval.around([_slowest(repeat.load.answers) for repeat in streamed]),
        total_tok_s=Interval.around(
            [count / _span(repeat.load) for count, repeat in zip(tokens, streamed, strict=True)]
        ),
        first_byte_s=Interval.around([_median(_waits(repeat)) for repeat in streamed]),
        first_byte_p95_s=waits[min(int(0.95 * len(waits)), len(waits) - 1)],
        requests_s=Interval.around(
            [len(repeat.load.answers) / _span(repeat.load) for repeat in whole]
        ),
        server_cpu_s_per_1000_tokens=_median(
            [1000 * r.server_cpu_s / n for r, n in zip(streamed, tokens, strict=True)]
        ),
        clients_cpu_s_per_1000_tokens=_median(
            [1000 * r.load.cpu_s / n for r, n in zip(streamed, tokens, strict=True)]
        ),
    )


def _waits(repeat: _Repeat) -> list[float]:
    """Seconds from the end of the prompt to the first text at the client."""
    return [one.first - repeat.told.read_at[one.id] for one in repeat.load.answers]


def _slowest(answers: Sequence[Answered]) -> float:
    """The speed of the slowest stream while it ran."""
    return min((one.tokens - 1) / max(one.last - one.first, 1e-9) for one in answers)


def _span(load: Load) -> float:
    """Seconds from the first request to the last answer."""
    return max(one.last for one in load.answers) - min(one.sent for one in load.answers)


def _median(values: Sequence[float]) -> float:
    return Interval.around(values).median
