"""Things that go wrong on the local hub, each for chosen requests and a number of times."""

from __future__ import annotations

import re
import threading
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable


@dataclass
class Fault:
    """What happens to requests whose path `pattern` is found in.

    The first `after` of them go well, the next `times` do not (None: all of them).
    `status` answers with an error (`retry_after` and `error_code` become headers), `truncate`
    closes the connection after so many bytes of the body, `corrupt` flips a bit of it,
    `ignore_range` answers 200 with the whole file, `hang_s` waits before the answer, and `action`
    is called before it. `hang_up` closes the connection after so many bytes of what is sent to the
    hub, without an answer; `says` is what an error answers.
    """

    pattern: str
    method: str | None = None
    times: int | None = 1
    after: int = 0
    status: int | None = None
    retry_after: int | None = None
    error_code: str | None = None
    says: str = "on purpose"
    truncate: int | None = None
    hang_up: int | None = None
    corrupt: bool = False
    ignore_range: bool = False
    hang_s: float = 0.0
    action: Callable[[], object] | None = None
    seen: int = field(default=0, init=False)

    def applies(self, method: str, path: str) -> bool:
        """Whether it happens to this request; counts the request."""
        if self.method not in (None, method) or not re.search(self.pattern, path):
            return False
        self.seen += 1
        last = None if self.times is None else self.after + self.times
        return self.seen > self.after and (last is None or self.seen <= last)


@dataclass
class Faults:
    """The faults of one server; of several that apply to a request, the first happens."""

    faults: list[Fault] = field(default_factory=list)
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def add(self, fault: Fault) -> Fault:
        """Let `fault` happen from now on."""
        with self._lock:
            self.faults.append(fault)
        return fault

    def find(self, method: str, path: str) -> Fault | None:
        """The fault for a request."""
        with self._lock:
            return next((f for f in self.faults if f.applies(method, path)), None)
