"""Stop strings are found across pieces, and no text before them is lost or delayed."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mtplx.runtime.decode.stop import StopStrings


def run(stops: list[str], parts: list[str]) -> tuple[str, bool]:
    """All text shown, and whether a stop string ended it."""
    watch = StopStrings(stops)
    shown = ""
    for part in parts:
        piece, stopped = watch.add(part)
        shown += piece
        if stopped:
            return shown, True
    return shown + watch.finish(), False


@pytest.mark.parametrize(
    ("parts", "shown"),
    [
        (["abENDcd"], "ab"),
        (["ab", "E", "N", "D", "cd"], "ab"),
        (["abE", "NDcd"], "ab"),
        (["END"], ""),
        (["EEN", "D"], "E"),
    ],
)
def test_a_stop_string_ends_the_text_before_it(parts: list[str], shown: str) -> None:
    assert run(["END"], parts) == (shown, True)


def test_text_that_only_began_like_a_stop_string_is_shown() -> None:
    assert run(["END"], ["ab", "EN", "x", "E"]) == ("abENxE", False)


def test_text_that_begins_no_stop_string_is_shown_at_once() -> None:
    watch = StopStrings(["END", "\n\n"])
    assert watch.add("abc") == ("abc", False)
    assert watch.add("dE") == ("d", False)
    assert watch.add("f") == ("Ef", False)


def test_the_earliest_of_several_stop_strings_counts() -> None:
    assert run(["cd", "bc"], ["abcd"]) == ("a", True)


def test_without_stop_strings_everything_passes() -> None:
    assert run([], ["ab", "", "c"]) == ("abc", False)


@given(
    st.lists(st.text("ab", min_size=1, max_size=4), max_size=3),
    st.lists(st.text("ab", max_size=4), max_size=8),
)
def test_any_split_gives_the_text_up_to_the_first_stop_string(
    stops: list[str], parts: list[str]
) -> None:
    shown, stopped = run(stops, parts)
    text = "".join(parts)
    assert stopped == any(stop in text for stop in stops)
    if not stopped:
        assert shown == text
        return
    # The one found is the first whose last character arrived with the earliest part.
    seen = ""
    for part in parts:
        seen += part
        hits = [seen.find(stop) for stop in stops if stop in seen]
        if hits:
            assert shown == seen[: min(hits)]
            return
