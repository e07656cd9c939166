"""The report of `mtplx doctor`: its checks, the verdict over them, and the exit code."""

from collections.abc import Sequence
from enum import StrEnum
from typing import Final, Literal, Self

from pydantic import BaseModel, ConfigDict, Field

SCHEMA_VERSION: Final = 1


class Status(StrEnum):
    """The outcome of a check; `skip` means that it does not apply here or was not asked for."""

    PASS = "pass"
    WARN = "warn"
    FAIL = "fail"
    SKIP = "skip"


class Severity(StrEnum):
    """What a check that does not pass costs.

    blocker: nothing runs. major: some models or commands do not run, or all are much slower.
    minor: an inconvenience.
    """

    BLOCKER = "blocker"
    MAJOR = "major"
    MINOR = "minor"


class _Part(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)


class Check(_Part):
    """One thing that was looked at."""

    id: str = Field(pattern=r"^[a-z]+\.[a-z_]+$", description="Stable name of the check.")
    status: Status = Field(description="What came of it.")
    severity: Severity = Field(description="What it costs when it does not pass.")
    observed: str = Field(description="What was found.")
    expected: str = Field(description="What passes.")
    fix: str = Field(description="What to do, in words; empty when there is nothing to do.")
    command: str = Field(description="A shell command that mends it or shows more; may be empty.")
    exit_code: int = Field(
        ge=1, le=13, description="Exit code of doctor when this check is the first that fails."
    )

    @property
    def needs_action(self) -> bool:
        """Whether there is something to tell the user."""
        return self.status in (Status.WARN, Status.FAIL)


class Report(_Part):
    """What `mtplx doctor --json` prints."""

    schema_version: Literal[1] = Field(description="Version of this format.")
    mtplx_version: str = Field(description="Version of the mtplx that looked.")
    deep: bool = Field(description="Whether the slow checks were run too.")
    strict: bool = Field(description="Whether a warning counts as a failure.")
    overall: Literal["pass", "warn", "fail"] = Field(description="The worst status.")
    exit_code: int = Field(ge=0, le=13, description="Exit code of the command.")
    checks: tuple[Check, ...] = Field(description="All checks, the most fundamental first.")

    @classmethod
    def of(cls, checks: Sequence[Check], *, version: str, deep: bool, strict: bool) -> Self:
        """The verdict over `checks`; the first one that fails gives the exit code.

        With `strict` a warning fails too, and ends with the code its check has.
        """
        failing = {Status.FAIL, Status.WARN} if strict else {Status.FAIL}
        failed = [check for check in checks if check.status in failing]
        warned = any(check.status == Status.WARN for check in checks)
        return cls(
            schema_version=SCHEMA_VERSION,
            mtplx_version=version,
            deep=deep,
            strict=strict,
            overall="fail" if failed else "warn" if warned else "pass",
            exit_code=failed[0].exit_code if failed else 0,
            checks=tuple(checks),
        )

    def commands(self) -> list[str]:
        """The commands of all checks that need action, each once, in order."""
        wanted = [check.command for check in self.checks if check.needs_action and check.command]
        return list(dict.fromkeys(wanted))
