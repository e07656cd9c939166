"""A scripted model for tests of the command line: no weights, no mlx."""

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

from mtplx.contracts.errors import MTPLXError

STATS = {
    "prompt_tokens": 3,
    "completion_tokens": 4,
    "ttft_s": 0.01,
    "prefill_tok_s": 300.0,
    "decode_tok_s": None,
    "rounds": 2,
    "drafted_by_depth": [2, 2],
    "accepted_by_depth": [2, 0],
    "acceptance_by_depth": [1.0, 0.0],
    "v": [1.0, 1.2],
    "c": 0.1,
    "o": None,
}


@dataclass
class FakeGeneration:
    text: str
    seed: int = 7
    warnings: tuple[str, ...] = ()

    def to_json(self) -> dict[str, Any]:
        return {
            "text": self.text,
            "prompt_token_ids": [1, 2, 3],
            "token_ids": [4, 5, 6, 7],
            "finish_reason": "stop",
            "stop_sequence": None,
            "seed": self.seed,
            "model": "fake",
            "tier": "verified",
            "generation_mode": "mtp",
            "depth": 2,
            "acceptance": "coupled",
            "stats": STATS,
            "warnings": list(self.warnings),
        }


@dataclass
class FakeEvent:
    text: str
    generation: FakeGeneration | None = None


@dataclass
class FakeSession:
    model: "FakeModel"
    messages: list[str] = field(default_factory=list)
    is_interrupted: bool = False

    def interrupt(self) -> None:
        self.is_interrupted = True

    def send(self, text: str, **options: Any) -> Iterator[FakeEvent]:
        self.is_interrupted = False
        self.messages.append(text)
        for event in self.model.stream(f"{len(self.messages)}:{text}", **options):
            yield event
            if self.is_interrupted:
                return

    def reset(self) -> None:
        self.messages.clear()

    def totals(self) -> dict[str, Any]:
        return {"turns": len(self.messages), "acceptance": None, "decode_tok_s": 1.5}


@dataclass
class FakeModel:
    """Answers with its pieces, in which `{}` stands for the prompt; an error piece is raised."""

    pieces: tuple[str | BaseException, ...] = ("echo ", "{}")
    has_head: bool = True
    warnings: tuple[str, ...] = ()
    answer_warnings: tuple[str, ...] = ()
    name: str = "fake"
    load_arguments: dict[str, Any] = field(default_factory=dict)
    calls: list[tuple[Any, dict[str, Any]]] = field(default_factory=list)
    load_error: MTPLXError | None = None

    def load(self, path: Any, **arguments: Any) -> Any:
        """What the command line calls to open a model."""
        if self.load_error is not None:
            raise self.load_error
        self.load_arguments = {"path": path, **arguments}
        arguments["on_progress"]("loading", 1.0)
        return self

    @property
    def device(self) -> dict[str, Any]:
        return {"device": "cpu", "back_end": "cpu", "blas": "mkl", "dtypes": ["float32"]}

    def costs(self) -> None:
        """Nothing to measure; what a report shows comes with the generation."""

    def stream(self, prompt: str, **options: Any) -> Iterator[FakeEvent]:
        on_prefill = options.pop("on_prefill", lambda _done, _total: None)
        self.calls.append((prompt, options))
        on_prefill(3, 3)
        text = ""
        for piece in self.pieces:
            if isinstance(piece, BaseException):
                raise piece
            text += piece.format(prompt)
            yield FakeEvent(piece.format(prompt))
        warnings = (*self.warnings, *self.answer_warnings)
        yield FakeEvent("", FakeGeneration(text, warnings=warnings))

    def generate(self, prompt: str, **options: Any) -> FakeGeneration:
        events = list(self.stream(prompt, **options))
        generation = events[-1].generation
        assert generation is not None
        return generation

    def session(self, **options: Any) -> FakeSession:
        self.calls.append(("session", options))
        return FakeSession(self)
