"""The verdict over checks, and the exit code of each failing check."""

from __future__ import annotations

import pytest

from mtplx.contracts.errors import EXIT_CODES
from mtplx.runtime.diagnostics.catalogue import CATALOGUE, Entry, failed, passed, skipped, warned
from mtplx.runtime.diagnostics.doctor import in_order
from mtplx.runtime.diagnostics.report import Check, Report

GOOD = passed("python.version", "CPython 3.11.7")
SKIPPED = skipped("hub.login", "not asked")
WARNED = warned("resource.disk", "little", "Free some.", "df -h")


def report_of(*checks: Check, strict: bool = False) -> Report:
    return Report.of(checks, version="1", deep=False, strict=strict)


def test_all_good_passes() -> None:
    report = report_of(GOOD, SKIPPED)
    assert (report.overall, report.exit_code) == ("pass", 0)


def test_a_warning_ends_with_success() -> None:
    report = report_of(GOOD, WARNED)
    assert (report.overall, report.exit_code) == ("warn", 0)


def test_strict_lets_a_warning_fail_with_the_code_of_its_check() -> None:
    report = report_of(GOOD, WARNED, strict=True)
    assert (report.overall, report.exit_code) == ("fail", 8)


def test_strict_leaves_what_passes_alone() -> None:
    assert report_of(GOOD, SKIPPED, strict=True).exit_code == 0


@pytest.mark.parametrize("entry", CATALOGUE, ids=lambda entry: entry.id)
def test_a_failing_check_ends_with_its_code(entry: Entry) -> None:
    report = report_of(GOOD, failed(entry.id, "bad", "Mend it."))
    assert report.overall == "fail"
    assert report.exit_code == entry.error.exit_code
    assert report.exit_code in {row.number for row in EXIT_CODES} - {0, 130}


def test_the_first_failure_gives_the_code() -> None:
    first, second = failed("config.file", "a", "b"), failed("mlx.import", "a", "b")
    assert report_of(first, second).exit_code == 2
    assert report_of(*in_order([first, second])).exit_code == 7


def test_a_cause_with_a_code_of_its_own_gives_it() -> None:
    assert report_of(failed("model.integrity", "a", "b", exit_code=3)).exit_code == 3


def test_commands_are_those_that_need_action_and_each_once() -> None:
    again = warned("resource.memory", "x", "y", "df -h")
    silent = warned("os.platform", "x", "y")
    assert report_of(GOOD, WARNED, again, silent).commands() == ["df -h"]
