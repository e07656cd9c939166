"""The port: taken before a model is loaded, and served until the server is told to stop."""

from __future__ import annotations

import asyncio
import errno
import signal
import socket
import threading
from collections.abc import Callable, Generator, Iterator
from contextlib import contextmanager, suppress
from typing import Final, TypeVar, cast

import uvicorn
from starlette.responses import JSONResponse
from starlette.types import ASGIApp, Receive, Scope, Send

from mtplx.contracts.errors import ServerError, UsageError
from mtplx.runtime.server.config import ServerConfig
from mtplx.runtime.server.protocol import protocol_with

T = TypeVar("T")

_BACKLOG: Final = 128

# What streams get to write their last event in, once all answers have ended.
_FLUSH_S: Final = 3


def bind(config: ServerConfig) -> socket.socket:
    """Take the address of `config`; connections are accepted later.

    Raises:
        ServerError: another program has the port.
        UsageError: the address is not one of this machine's, or the port not allowed.
    """
    host, port = config.host, config.port
    try:
        family, kind, protocol, _, address = socket.getaddrinfo(
            host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE
        )[0]
    except OSError as error:
        raise UsageError(
            f"--host {host} is no address of this machine: {error.strerror or error}.",
            hint="Use 127.0.0.1 for this machine alone.",
        ) from error
    listener = socket.socket(family, kind, protocol)
    try:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listener.bind(address)
        listener.listen(_BACKLOG)
    except OSError as error:
        listener.close()
        raise _bind_error(error, host, port) from error
    listener.setblocking(False)
    return listener


class LateApp:
    """Answers that the model is being loaded, until there is an application to pass requests to."""

    def __init__(self) -> None:
        self.app: ASGIApp | None = None

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer or pass on."""
        if self.app is not None:
            await self.app(scope, receive, send)
        elif scope["path"] == "/health/live":
            await JSONResponse({"status": "live"})(scope, receive, send)
        else:
            loading = {"status": "not_ready", "reason": "the model is being loaded"}
            await JSONResponse(loading, 503, {"retry-after": "5"})(scope, receive, send)


class Listener:
    """Serves `app` on a socket from one thread, which `run` takes over.

    `load` is run beside it on a thread and gives the application, `on_ready` is called with that done. The first
    SIGINT or SIGTERM, or `stop`, calls `drain` on a thread, which ends all answers within its own bounds; then the
    connections are closed. The second signal calls `on_force`, which does not come back.
    """

    def __init__(
        self,
        config: ServerConfig,
        socket_: socket.socket,
        *,
        load: Callable[[], ASGIApp],
        on_ready: Callable[[], None],
        drain: Callable[[], object],
        on_force: Callable[[], None],
    ) -> None:
        self._late = LateApp()
        self._socket = socket_
        self._server = _Server(_uvicorn_config(self._late, config))
        self._load = load
        self._on_ready = on_ready
        self._drain = drain
        self._on_force = on_force
        self._loop: asyncio.AbstractEventLoop | None = None
        self._stopping = asyncio.Event()
        self._num_signals = 0

    def run(self) -> None:
        """Serve until told to stop. Raises what loading fails with."""
        asyncio.run(self._main())

    def stop(self) -> None:
        """Begin to stop; may be called from any thread."""
        if self._loop is not None:
            # A loop that has ended has nothing to stop.
            with suppress(RuntimeError):
                self._loop.call_soon_threadsafe(self._stopping.set)

    async def _main(self) -> None:
        self._loop = asyncio.get_running_loop()
        with self._signals(self._loop):
            serving = asyncio.create_task(self._server.serve(sockets=[self._socket]))
            stopping = asyncio.create_task(self._stopping.wait())
            loading = asyncio.create_task(_on_thread(self._load))
            try:
                await asyncio.wait({loading, stopping}, return_when=asyncio.FIRST_COMPLETED)
                if loading.done():
                    self._late.app = loading.result()
                    self._on_ready()
                    await stopping
                    await _on_thread(self._drain)
            finally:
                for task in (stopping, loading):
                    task.cancel()
                self._server.should_exit = True
                await serving

    @contextmanager
    def _signals(self, loop: asyncio.AbstractEventLoop) -> Iterator[None]:
        """Signals are only delivered to the main thread; elsewhere there is `stop`."""
        if threading.current_thread() is not threading.main_thread():
            yield
            return
        numbers = (signal.SIGINT, signal.SIGTERM)
        for number in numbers:
            loop.add_signal_handler(number, self._on_signal)
        try:
            yield
        finally:
            for number in numbers:
                loop.remove_signal_handler(number)

    def _on_signal(self) -> None:
        self._num_signals += 1
        if self._num_signals > 1:
            self._on_force()
        self._stopping.set()


class _Server(uvicorn.Server):
    """uvicorn without its own handling of signals."""

    @contextmanager
    def capture_signals(self) -> Generator[None]:
        """Leave signals to `Listener`."""
        yield


async def _on_thread(work: Callable[[], T]) -> T:
    """The result of `work`, run on a thread that nobody waits for when the process ends."""
    loop = asyncio.get_running_loop()
    done: asyncio.Future[T] = loop.create_future()

    def settle(result: T | None, error: BaseException | None) -> None:
        if done.cancelled():
            return
        if error is not None:
            done.set_exception(error)
        else:
            done.set_result(cast(T, result))

    def run() -> None:
        result, failure = None, None
        try:
            result = work()
        except BaseException as error:  # handed to the task that waits
            failure = error
        with suppress(RuntimeError):  # the loop has been closed, nobody waits
            loop.call_soon_threadsafe(settle, result, failure)

    threading.Thread(target=run, name="mtplx-serve-helper", daemon=True).start()
    return await done


def _uvicorn_config(app: ASGIApp, config: ServerConfig) -> uvicorn.Config:
    return uvicorn.Config(
        app,
        http=protocol_with(config.header_timeout_s, config.write_timeout_s),
        ws="none",
        loop="asyncio",
        lifespan="off",
        log_config=None,
        access_log=False,
        proxy_headers=False,
        server_header=False,
        limit_concurrency=config.max_connections,
        backlog=_BACKLOG,
        timeout_keep_alive=config.idle_timeout_s,
        timeout_graceful_shutdown=_FLUSH_S,
        h11_max_incomplete_event_size=config.max_header_bytes,
    )


def _bind_error(error: OSError, host: str, port: int) -> ServerError | UsageError:
    if error.errno == errno.EADDRINUSE:
        return ServerError(
            f"port {port} of {host} is in use by another program.",
            hint=f"`mtplx stop` ends a server of mtplx; or use another one: mtplx serve --port {port + 1}",
        )
    if error.errno in (errno.EACCES, errno.EPERM):
        return UsageError(
            f"port {port} may not be used: {error.strerror}.",
            hint="Ports below 1024 belong to the system; use another one: mtplx serve --port 8000",
        )
    return UsageError(
        f"{host} port {port} cannot be listened on: {error.strerror or error}.",
        hint="Use --host 127.0.0.1 for this machine alone.",
    )
