"""One benchmark from its start to its report: the model, the processes that measure it, and the conditions."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from mtplx.contracts.errors import BackendError
from mtplx.contracts.inspection import Inspection, inspect_folder
from mtplx.runtime.bench import measurer
from mtplx.runtime.bench.conditions import Moment, now, read_conditions
from mtplx.runtime.bench.lengths import fit_lengths, misfit
from mtplx.runtime.bench.measurer import Measurer
from mtplx.runtime.bench.part import LeftOut, Options
from mtplx.runtime.bench.tasks import Task
from mtplx.runtime.bench.texts import Texts, read_texts

MLX_LM = "mlx-lm"

Progress = Callable[[str, float], None]


@dataclass(slots=True)
class Session:
    """A model that is being measured. `stock` is None where mlx-lm is not compared, or refused the model."""

    inspection: Inspection
    identity: str
    texts: Texts
    options: Options
    started: Moment
    own: Measurer
    stock: Measurer | None = None
    left_out: list[LeftOut] = field(default_factory=list)
    warnings: list[str] = field(default_factory=list)

    @property
    def has_head(self) -> bool:
        """Whether drafts can be made."""
        return bool(self.own.about["has_head"])

    def leave_out(self, name: str, reason: str) -> None:
        """Report that something is not measured."""
        self.left_out.append(LeftOut(name=name, reason=reason))

    def leave_out_head(self, name: str) -> None:
        """Report what needs a head, of a model that has none to run."""
        self.leave_out(name, f"no MTP head that can be used ({self.inspection.head.state})")

    def fit(self, lengths: Sequence[int], answer: int, *, insist: bool) -> list[int]:
        """The lengths that there is room for; see `fit_lengths`."""
        kept, left_out = fit_lengths(
            lengths,
            answer,
            context=self.inspection.context_length,
            room=self.own.room(),
            insist=insist,
        )
        self.left_out += left_out
        return kept

    def require_room(self, prompts: dict[str, list[int]], answer: int) -> None:
        """Raise PromptTooLongError or ResourceError unless every answer fits behind its prompt."""
        longest = max(map(len, prompts.values()))
        context, room = self.inspection.context_length, self.own.room()
        error = misfit(longest, answer, context=context, room=room)
        if error is not None:
            raise error

    def answering_stock(self, tasks: Sequence[Task], where: str = "") -> Measurer | None:
        """mlx-lm, if it can do the tasks, which it does once; if not it is left out from here on, and says why."""
        if self.stock is None:
            return None
        try:
            for task in tasks:
                self.stock.answer(task)
        except BackendError as error:
            self.leave_out(f"{MLX_LM}{where}", error.message)
            self.stock = None
        return self.stock

    def close(self, *, is_timed: bool = True) -> dict[str, Any]:
        """The fields that every report has; measuring has ended. Other work matters where time `is_timed`."""
        conditions = read_conditions(
            self.inspection, self.identity, self.own.about, self.options, self.started, now()
        )
        notes = list(self.warnings)
        if is_timed and conditions.busy is not None:
            notes.append(
                f"the machine was busy: {conditions.busy}; expect low and scattered figures"
            )
        return {
            "conditions": conditions,
            "left_out": tuple(self.left_out),
            "warnings": tuple(dict.fromkeys(notes)),
        }


@contextmanager
def open_session(
    folder: Path, options: Options, *, with_stock: bool, on_progress: Progress
) -> Iterator[Session]:
    """Start a process that decodes with mtplx and, `with_stock`, one that decodes with mlx-lm.

    This process reads the tokenizer and hashes the files, both before anything is measured.

    Raises:
        MTPLXError: the folder can't be run, or has no tokenizer.
    """
    started = now()
    inspection = inspect_folder(folder)
    inspection.raise_if_unrunnable()
    texts = read_texts(inspection)
    identity = inspection.compute_identity(
        lambda done, total: on_progress("hashing the model", done / max(total, 1))
    )
    on_progress("loading the model", 0.0)
    with ExitStack() as stack:
        own = stack.enter_context(measurer.open_own(folder, options.kv_bits))
        session = Session(inspection, identity.combined, texts, options, started, own)
        session.warnings += own.about["warnings"]
        if texts.note is not None:
            session.warnings.append(texts.note)
        if with_stock and options.kv_bits is not None:
            session.warnings.append(
                f"kv_bits {options.kv_bits} concerns mtplx alone: mlx-lm keeps its cache as computed"
            )
        if with_stock:
            try:
                session.stock = stack.enter_context(measurer.open_stock(folder))
            except BackendError as error:
                session.leave_out(MLX_LM, error.message)
        yield session
