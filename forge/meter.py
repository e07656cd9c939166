"""How fast a transfer runs, how long it will take, and for how long nothing has come."""

from dataclasses import dataclass, field
from typing import Any

_WINDOW_S = 10.0


@dataclass(slots=True)
class Meter:
    """Fed with (seconds, bytes done); knows no clock of its own. Speed is that of the last ten seconds."""

    total: int
    _points: list[tuple[float, int]] = field(default_factory=list)
    _moved_at: float | None = None

    def feed(self, now: float, done: int) -> None:
        """Note that `done` of `total` bytes are there at time `now`."""
        if not self._points or done > self._points[-1][1]:
            self._moved_at = now
        self._points.append((now, done))
        while len(self._points) > 2 and self._points[1][0] <= now - _WINDOW_S:
            del self._points[0]

    def to_json(self) -> dict[str, Any]:
        """`bytes_on_disk`, `total_bytes`, `mb_per_s`, `eta_s` (null while unknown), `stalled_s`."""
        if not self._points:
            return {
                "bytes_on_disk": 0,
                "total_bytes": self.total,
                "mb_per_s": 0.0,
                "eta_s": None,
                "stalled_s": 0.0,
            }
        (first_s, first), (last_s, last) = self._points[0], self._points[-1]
        speed = (last - first) / (last_s - first_s) if last_s > first_s else 0.0
        stalled = last_s - self._moved_at if self._moved_at is not None else 0.0
        return {
            "bytes_on_disk": last,
            "total_bytes": self.total,
            "mb_per_s": round(speed / 1e6, 3),
            "eta_s": round((self.total - last) / speed, 1) if speed > 0 else None,
            "stalled_s": round(stalled, 1),
        }
