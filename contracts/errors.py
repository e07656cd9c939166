"""Every error a user can meet, and the exit code each one ends a command with.

    MTPLXError
    ├── InternalError            1   a bug of ours
    ├── UsageError               2   the request is wrong
    │   ├── InvalidRequestError
    │   └── PromptTooLongError
    ├── NotAModelError           3   nothing to load there
    │   ├── ModelNotFoundError
    │   ├── TokenizerMissingError
    │   └── ChatTemplateMissingError
    ├── CorruptModelError        4   the files contradict each other
    │   ├── TensorFileError
    │   ├── ShardMissingError
    │   └── HeadWeightsError
    ├── UnsupportedModelError    5   a sound model that we do not run
    ├── HeadMissingError         6   MTP was asked for and there is no head
    ├── BackendError             7   MLX is absent or broken
    ├── ResourceError            8   memory or disk
    ├── NumericError             9   NaN or infinite logits
    ├── ExactnessError          10   output differs from plain decoding
    ├── DownloadError           11   a source could not be fetched
    ├── CalibrationError        12   the head's wiring could not be decided by measurement
    ├── NoGainError             13   exact, but MTP is not faster than plain decoding
    └── ServerError             14   a server could not listen, or does not answer

Ctrl-C ends a command with 130. `EXIT_CODES` is the one table of them all.
"""

from typing import ClassVar, NamedTuple


class ExitCode(NamedTuple):
    """One row of the table of exit codes."""

    number: int
    name: str
    meaning: str


EXIT_CODES: list[ExitCode] = [
    ExitCode(0, "ok", "The command did what was asked."),
    ExitCode(1, "internal", "A bug in mtplx; please report it."),
    ExitCode(2, "usage", "A flag, a request value or the prompt is wrong."),
    ExitCode(3, "not_a_model", "No model there: path, config.json, tokenizer or template missing."),
    ExitCode(4, "corrupt_model", "Weight files are missing, damaged or do not match."),
    ExitCode(5, "unsupported_model", "Model type or quantisation that mtplx does not run."),
    ExitCode(6, "head_missing", "MTP was asked for and the model has no head."),
    ExitCode(7, "backend", "No working MLX back end is installed."),
    ExitCode(8, "resource", "Not enough memory or disk."),
    ExitCode(9, "numeric", "The model produced NaN or infinite logits."),
    ExitCode(10, "exactness", "MTP output differed from plain decoding."),
    ExitCode(11, "download", "A model could not be fetched or published."),
    ExitCode(12, "calibration", "Measurement could not decide how the head is wired."),
    ExitCode(13, "no_gain", "Output is exact, but MTP is not faster than plain decoding here."),
    ExitCode(14, "server", "A server could not listen, or does not answer or serve."),
    ExitCode(130, "interrupted", "Stopped by Ctrl-C."),
]

INTERRUPTED_EXIT_CODE = 130

_TIER_EXIT_CODES = {
    "verified": 0,
    "family-compatible-unverified": 0,
    "architecture-compatible-unverified": 0,
    "ar-only": 0,
    "no-mtp-heads": 0,
    "incompatible": 5,
    "corrupt": 4,
}


def exit_code_for_tier(tier: str) -> int:
    """The exit code of an inspection that ended in `tier`: 0 for everything that can run.

    An inspection that ended with an error takes the error's own code instead (a path that
    does not exist is 3, not 4).
    """
    return _TIER_EXIT_CODES[str(tier)]


class MTPLXError(Exception):
    """Base of every error mtplx raises on purpose.

    `message` says what was found and what was expected, `hint` what to do about it.
    """

    exit_code: ClassVar[int] = 1
    code: ClassVar[str] = "error"
    title: ClassVar[str] = "Error"

    def __init__(self, message: str, *, hint: str = "") -> None:
        super().__init__(message)
        self.message = message
        self.hint = hint

    def __str__(self) -> str:
        if not self.hint:
            return self.message
        return f"{self.message.removesuffix('.')}. {self.hint}"

    def to_json(self) -> dict[str, object]:
        """`code`, `title`, `message`, `hint`, `exit_code`; subclasses may add keys of their own."""
        return {
            "code": self.code,
            "title": self.title,
            "message": self.message,
            "hint": self.hint,
            "exit_code": self.exit_code,
        }


class InternalError(MTPLXError):
    """An invariant of mtplx itself was broken."""

    exit_code = 1
    code = "internal"
    title = "Internal error"


class UsageError(MTPLXError):
    """The command or call cannot be carried out as written."""

    exit_code = 2
    code = "usage"
    title = "Usage error"


class InvalidRequestError(UsageError):
    """A request value is wrong; `key` names it."""

    code = "invalid_request"
    title = "Invalid request"

    def __init__(self, message: str, *, key: str, hint: str = "") -> None:
        super().__init__(message, hint=hint)
        self.key = key

    def to_json(self) -> dict[str, object]:
        """The base keys and `key`."""
        return {**super().to_json(), "key": self.key}


class PromptTooLongError(UsageError):
    """The prompt does not fit the model's context."""

    code = "prompt_too_long"
    title = "Prompt too long"


class NotAModelError(MTPLXError):
    """The path holds nothing that could be loaded as a model."""

    exit_code = 3
    code = "not_a_model"
    title = "Not a model"


class ModelNotFoundError(NotAModelError):
    """The path does not exist."""

    code = "model_not_found"
    title = "Model not found"


class TokenizerMissingError(NotAModelError):
    """Text has to be encoded and the folder has no tokenizer."""

    code = "tokenizer_missing"
    title = "Tokenizer missing"


class ChatTemplateMissingError(NotAModelError):
    """Messages have to be rendered and the folder has no chat template."""

    code = "chat_template_missing"
    title = "Chat template missing"


class CorruptModelError(MTPLXError):
    """Files of a model are damaged or contradict each other."""

    exit_code = 4
    code = "corrupt_model"
    title = "Corrupt model"


class TensorFileError(CorruptModelError):
    """A safetensors file or its index breaks the format."""

    code = "tensor_file"
    title = "Bad weight file"


class ShardMissingError(CorruptModelError):
    """Weight files that the model needs are not in the folder; `missing` names them."""

    code = "shard_missing"
    title = "Weight files missing"

    def __init__(self, message: str, *, missing: tuple[str, ...] = (), hint: str = "") -> None:
        super().__init__(message, hint=hint)
        self.missing = missing

    def to_json(self) -> dict[str, object]:
        """The base keys and `missing`."""
        return {**super().to_json(), "missing": list(self.missing)}


class HeadWeightsError(CorruptModelError):
    """The tensors of an MTP head are not exactly the expected names and shapes."""

    code = "head_weights"
    title = "MTP head does not match"


class UnsupportedModelError(MTPLXError):
    """A well-formed model of a type, layout or quantisation that mtplx does not run."""

    exit_code = 5
    code = "unsupported_model"
    title = "Unsupported model"


class HeadMissingError(MTPLXError):
    """MTP was asked for by name and the model has no head to do it with."""

    exit_code = 6
    code = "head_missing"
    title = "No MTP head"


class BackendError(MTPLXError):
    """MLX is not installed for this machine, or fails its self-check."""

    exit_code = 7
    code = "backend"
    title = "No MLX back end"


class ResourceError(MTPLXError):
    """Memory or disk does not suffice."""

    exit_code = 8
    code = "resource"
    title = "Not enough resources"


class NumericError(MTPLXError):
    """The model produced logits that are NaN or infinite."""

    exit_code = 9
    code = "numeric"
    title = "Numeric failure"


class ExactnessError(MTPLXError):
    """MTP output differs from plain decoding beyond a numeric tie."""

    exit_code = 10
    code = "exactness"
    title = "Output not exact"


class DownloadError(MTPLXError):
    """A model or file could not be fetched."""

    exit_code = 11
    code = "download"
    title = "Download failed"


class CalibrationError(MTPLXError):
    """No wiring of the head agrees with the trunk well enough, or two agree equally well."""

    exit_code = 12
    code = "calibration"
    title = "Head not calibrated"


class NoGainError(MTPLXError):
    """MTP output is exact, and no depth is faster than plain decoding."""

    exit_code = 13
    code = "no_gain"
    title = "MTP is not faster here"


class ServerError(MTPLXError):
    """A server could not take its port, or one that was asked does not answer or serve."""

    exit_code = 14
    code = "server"
    title = "No server"
