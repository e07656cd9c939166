"""The space that calibration searches."""

from __future__ import annotations

from mtplx.contracts.family import Wiring
from mtplx.forge.calibrate.candidates import Candidate, grid, neighbours, pairs

START = Candidate(Wiring(feed="pre", concat="hidden_embedding"), (0, 0, 0))


def test_grid_holds_every_uniform_wiring_once_and_begins_with_the_default() -> None:
    points = grid(START)
    assert points[0] == START
    assert len(set(points)) == len(points) == 12
    assert all(point.is_uniform for point in points)


def test_neighbours_change_one_thing() -> None:
    found = neighbours(START)
    assert len(set(found)) == len(found) == 3 * 2 + 2
    for other in found:
        moved = sum(a != b for a, b in zip(START.shifts, other.shifts, strict=True))
        rewired = (other.wiring.feed != "pre") + (other.wiring.concat != "hidden_embedding")
        assert moved + rewired == 1


def test_pairs_move_two_norms_alike() -> None:
    found = pairs(START)
    assert len(set(found)) == len(found) == 3 * 2
    assert {sum(map(abs, other.shifts)) for other in found} == {2}


def test_missed_and_doubled_shifts_are_never_mixed() -> None:
    start = Candidate(Wiring(), (1, 0, 0))
    found = {other.shifts for other in (*neighbours(start), *pairs(start))}
    assert {(1, 1, 0), (0, 0, 0), (1, 1, 1)} <= found
    assert all(not {1, -1} <= set(shifts) for shifts in found)
    assert all(abs(shift) <= 1 for shifts in found for shift in shifts)


def test_a_mixture_is_described_by_the_norms_that_move() -> None:
    names = ("a.weight", "b.weight", "c.weight")
    mixed = START.shifted(1, -1)
    assert mixed.norm_shift(names) == {"b.weight": -1}
    assert mixed.describe(names) == "feed pre, recycle post, hidden_embedding, b.weight -1"
    assert START.shifted_alike(1).describe(names).endswith("norms +1")
    assert START.describe(names).endswith("norms as loaded")
