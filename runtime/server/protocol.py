"""HTTP on one connection, with the deadlines that uvicorn leaves to the peer."""

from __future__ import annotations

import asyncio
from typing import ClassVar, Final

import h11
from uvicorn.protocols.http.h11_impl import H11Protocol

_TOO_SLOW: Final = b"HTTP/1.1 408 Request Timeout\r\nconnection: close\r\ncontent-length: 0\r\n\r\n"


class PatientProtocol(H11Protocol):
    """Closes connections whose peer does not finish a request's head, or does not read its answer.

    Without it a peer that sends one byte of a header now and then, or stops reading, keeps its connection for ever.
    """

    header_timeout_s: ClassVar[float] = 15.0
    write_timeout_s: ClassVar[float] = 60.0

    _head_timer: asyncio.TimerHandle | None = None
    _write_timer: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]  # as its base does
        """Wait for the first head."""
        super().connection_made(transport)
        self._expect_head()

    def data_received(self, data: bytes) -> None:
        """Take bytes; those of a head that is not complete do not stop its clock."""
        super().data_received(data)
        if self.conn.their_state is h11.IDLE and not self.transport.is_closing():
            self._expect_head()
        else:
            self._stop_head_timer()

    def pause_writing(self) -> None:
        """The peer reads slower than we write."""
        super().pause_writing()
        if self._write_timer is None:
            self._write_timer = self.loop.call_later(self.write_timeout_s, self.transport.abort)

    def resume_writing(self) -> None:
        """The peer reads again."""
        super().resume_writing()
        self._stop_write_timer()

    def connection_lost(self, exc: Exception | None) -> None:
        """The connection is gone."""
        self._stop_head_timer()
        self._stop_write_timer()
        super().connection_lost(exc)

    def _expect_head(self) -> None:
        if self._head_timer is None:
            self._head_timer = self.loop.call_later(self.header_timeout_s, self._close_slow)

    def _stop_head_timer(self) -> None:
        if self._head_timer is not None:
            self._head_timer.cancel()
            self._head_timer = None

    def _stop_write_timer(self) -> None:
        if self._write_timer is not None:
            self._write_timer.cancel()
            self._write_timer = None

    def _close_slow(self) -> None:
        if not self.transport.is_closing():
            self.transport.write(_TOO_SLOW)
            self.transport.close()


def protocol_with(header_timeout_s: float, write_timeout_s: float) -> type[PatientProtocol]:
    """The protocol with these deadlines; uvicorn makes its objects itself."""
    deadlines = {"header_timeout_s": header_timeout_s, "write_timeout_s": write_timeout_s}
    return type("ServerProtocol", (PatientProtocol,), deadlines)
