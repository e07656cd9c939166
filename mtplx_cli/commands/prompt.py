"""Where the prompt of a command comes from."""

import sys
from pathlib import Path

from mtplx.contracts.errors import UsageError


def read_prompt(argument: str | None, file: Path | None, *, raw: bool) -> str:
    """The prompt: the argument, the file, or standard input (`-`, or a pipe and nothing else).

    Text from a file or pipe loses its final line break, which editors and `echo` add; raw text
    is kept as it is. Raises UsageError when there is no prompt, an empty one, two, or no UTF-8.
    """
    if argument is not None and file is not None:
        raise UsageError(
            "the prompt is given twice, as an argument and with --file", hint="Give it once."
        )
    if file is not None:
        text = _from_bytes(_read_file(file), str(file), raw=raw)
    elif argument not in (None, "-"):
        text = _checked_argument(argument)
    else:
        text = _from_standard_input(argument, raw=raw)
    if not text:
        raise UsageError("the prompt is empty", hint='For example: mtplx run "Write a haiku."')
    return text


def _read_file(file: Path) -> bytes:
    try:
        return file.read_bytes()
    except OSError as error:
        raise UsageError(
            f"--file: cannot read {file}: {error.strerror}", hint="Check the path."
        ) from error


def _from_standard_input(argument: str | None, *, raw: bool) -> str:
    if argument is None and sys.stdin.isatty():
        raise UsageError(
            "no prompt given", hint='For example: mtplx run "Write a haiku.", or pipe a text in.'
        )
    return _from_bytes(sys.stdin.buffer.read(), "standard input", raw=raw)


def _from_bytes(content: bytes, source: str, *, raw: bool) -> str:
    try:
        text = content.decode("utf-8")
    except UnicodeDecodeError as error:
        raise UsageError(
            f"the prompt from {source} is not UTF-8: byte {error.start} is "
            f"0x{content[error.start]:02x}",
            hint="Convert it to UTF-8 first.",
        ) from error
    return text if raw else text.removesuffix("\n").removesuffix("\r")


def _checked_argument(text: str) -> str:
    try:
        text.encode("utf-8")
    except UnicodeEncodeError as error:
        raise UsageError(
            f"the prompt argument is not UTF-8 (character {error.start})",
            hint="Use a UTF-8 locale, or put the prompt into a file and use --file.",
        ) from error
    return text
