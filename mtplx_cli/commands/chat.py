"""`mtplx chat`: a conversation in the terminal."""

import sys
from typing import TYPE_CHECKING, Annotated

import typer

from mtplx.answer import StopRequest, show_answer
from mtplx.commands.flags import GenerationFlags, with_generation_flags
from mtplx.contracts.errors import UsageError
from mtplx.opening import open_model
from mtplx.render import Row, generation_rows, print_error
from mtplx.screen import Screen
from mtplx.tuned import use_tuning

if TYPE_CHECKING:
    from mtplx.runtime.decode.result import Generation
    from mtplx.runtime.sessions.chat import ChatSession

COMMANDS = {
    "/reset": "forget the conversation",
    "/stats": "show speed and acceptance so far",
    "/help": "show these commands",
    "/exit": "leave (as does Ctrl-D)",
}


@with_generation_flags
def chat(
    context: typer.Context,
    flags: GenerationFlags,
    quiet: Annotated[bool, typer.Option("--quiet", help="Show no notes and no progress.")] = False,
) -> None:
    """Talk with a model; Ctrl-C stops an answer and keeps the conversation.

    Piped input is taken as one message a line.
    """
    config = flags.config()
    screen = Screen(quiet=quiet)
    flags.tell_overridden(config, screen)
    model = open_model(
        context.obj,
        screen,
        config.model,
        mtp=flags.mtp,
        kv_bits=config.kv_cache_bits,
        verify_hashes=flags.verify_hashes,
    )
    options = flags.options(config, has_head=model.has_head)
    tuning = use_tuning(model, screen, chosen=flags.depth_choice(config), mtp=flags.mtp)
    session = model.session(**{**options, **tuning.options})
    is_terminal = sys.stdin.isatty() and sys.stdout.isatty()
    if is_terminal:
        screen.note(f"talking with {model.name}; /help lists the commands")
    told = set(model.warnings)
    Conversation(session, screen, told=told, is_terminal=is_terminal).run()


class Conversation:
    """Reads messages, answers them, and carries out commands until the user leaves."""

    def __init__(
        self, session: "ChatSession", screen: Screen, *, told: set[str], is_terminal: bool
    ) -> None:
        self._session = session
        self._screen = screen
        self._told = told
        self._is_terminal = is_terminal
        self._last: Generation | None = None

    def run(self) -> None:
        """Take messages until /exit, the end of the input, or Ctrl-C twice."""
        if self._is_terminal:
            _enable_line_editing()
        while (line := self._ask()) is not None:
            if _is_command(line):
                if line.strip() == "/exit":
                    return
                self._obey(line.strip())
            elif line.strip():
                self._answer_or_explain(line)
        if self._is_terminal:
            print(file=sys.stderr)

    def _ask(self) -> str | None:
        """The next line, or None when the user leaves."""
        was_interrupted = False
        while True:
            try:
                return input("> " if self._is_terminal else "")
            except EOFError:
                return None
            except UnicodeDecodeError as error:
                raise UsageError(
                    "a message on standard input is not UTF-8", hint="Convert it to UTF-8 first."
                ) from error
            except KeyboardInterrupt:
                if was_interrupted:
                    return None
                was_interrupted = True
                print(file=sys.stderr)
                self._screen.note("Ctrl-C once more, Ctrl-D or /exit leaves")

    def _answer_or_explain(self, text: str) -> None:
        """Answer; on a terminal a refused message is explained and the conversation goes on."""
        try:
            self._answer(text)
        except UsageError as error:
            if not self._is_terminal:
                raise
            print_error(sys.stderr, error)

    def _answer(self, text: str) -> None:
        session = self._session
        with self._screen.progress() as progress, StopRequest(session.interrupt) as stop:

            def on_prefill(done: int, total: int) -> None:
                stop.check()
                progress.prefill(done, total)

            try:
                events = session.send(text, on_prefill=on_prefill)
                self._last = show_answer(events, self._screen, progress)
            except KeyboardInterrupt:
                self._screen.write("\n")
        self._tell_warnings()
        if stop.made:
            self._screen.note("stopped; the conversation goes on")

    def _tell_warnings(self) -> None:
        """Warnings of the last answer that the user has not seen in this conversation."""
        for warning in self._last.warnings if self._last is not None else ():
            if warning not in self._told:
                self._told.add(warning)
                self._screen.warn(warning)

    def _obey(self, command: str) -> None:
        if command == "/reset":
            self._session.reset()
            self._last = None
            self._screen.note("the conversation is forgotten")
        elif command == "/stats":
            self._screen.table("Conversation", self._total_rows())
        elif command == "/help":
            rows = [Row(name, meaning) for name, meaning in COMMANDS.items()]
            self._screen.table("Commands", rows)
        else:
            self._screen.warn(f"unknown command {command}; known are {', '.join(COMMANDS)}")

    def _total_rows(self) -> list[Row]:
        totals = self._session.totals()
        rows = [Row(name.replace("_", " "), _shown(value)) for name, value in totals.items()]
        if self._last is not None:
            rows += [Row("last answer", ""), *generation_rows(self._last.to_json())]
        return rows


def _is_command(line: str) -> bool:
    """Whether a line is a command: one word after one slash, so that paths stay messages."""
    word = line.strip()
    return word.startswith("/") and word[1:].isalpha()


def _shown(value: object) -> str:
    if value is None:
        return "-"
    return f"{value:.3f}" if isinstance(value, float) else str(value)


def _enable_line_editing() -> None:
    """Importing readline gives `input` editing and a history that lives as long as we do."""
    try:
        import readline  # noqa: F401
    except ImportError:  # absent on Windows, whose console edits lines itself
        return
