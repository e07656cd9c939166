"""Speed, remaining time and stalls of a transfer, by a clock of our own."""

from mtplx.forge.meter import Meter


def fed(*points: tuple[float, int], total: int = 1000) -> dict[str, object]:
    meter = Meter(total)
    for now, done in points:
        meter.feed(now, done)
    return meter.to_json()


def test_nothing_is_known_before_the_first_byte() -> None:
    assert fed() == {
        "bytes_on_disk": 0,
        "total_bytes": 1000,
        "mb_per_s": 0.0,
        "eta_s": None,
        "stalled_s": 0.0,
    }


def test_a_steady_transfer() -> None:
    found = fed((0.0, 0), (1.0, 2_000_000), (2.0, 4_000_000), total=10_000_000)
    assert found["mb_per_s"] == 2.0
    assert found["eta_s"] == 3.0
    assert found["stalled_s"] == 0.0


def test_speed_is_that_of_the_last_seconds() -> None:
    slow = [(float(t), t * 1_000_000) for t in range(0, 60)]
    fast = [(60.0 + t, 60_000_000 + t * 5_000_000) for t in range(0, 12)]
    assert fed(*slow, *fast, total=10**9)["mb_per_s"] == 5.0


def test_a_stall_is_told_and_ends_with_the_next_byte() -> None:
    assert fed((0.0, 0), (1.0, 10), (2.0, 10), (31.0, 10))["stalled_s"] == 30.0
    assert fed((0.0, 0), (1.0, 10), (31.0, 10), (32.0, 11))["stalled_s"] == 0.0
    assert fed((0.0, 0), (1.0, 10), (31.0, 10))["eta_s"] is None
