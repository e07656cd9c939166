"""A hub on this machine, for tests: it speaks what `huggingface_hub` asks, and fails on demand.

It listens at two ports, as the real one serves LFS content from another host than its API:
redirects lead from the first to the second, and authorization must not follow.

    with running_hub() as hub:
        commit = hub.add("org/model", folder)
        hub.fail("resolve/.*config.json", status=500, times=2)
        ...
        assert hub.bytes_sent("model.safetensors") < 10_000
"""

from __future__ import annotations

import re
import threading
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import ThreadingHTTPServer
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tests.support.hub_faults import Fault, Faults
from tests.support.hub_handler import Handler
from tests.support.hub_store import Files, Repository, Request, as_files, files_of

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    import pytest

TOKEN = "hf_local-hub-token"
USER = "tester"


class Answering:
    """Answers under way. A client has one whole before the hub has noted that it sent it."""

    def __init__(self) -> None:
        self._count = 0
        self._changed = threading.Condition()

    def __enter__(self) -> None:
        with self._changed:
            self._count += 1

    def __exit__(self, *_: object) -> None:
        with self._changed:
            self._count -= 1
            self._changed.notify_all()

    def wait_until_none(self) -> None:
        """Wait for what is being sent, for some seconds at most."""
        with self._changed:
            self._changed.wait_for(lambda: self._count == 0, timeout=5)


@dataclass
class HubServer:
    """The state of the hub. `url` is its API, `storage_url` where LFS content lies.

    LFS content larger than `part_size` has to be sent in parts of that size.
    """

    url: str = ""
    storage_url: str = ""
    token: str = TOKEN
    user: str = USER
    repositories: dict[str, Repository] = field(default_factory=dict)
    lfs: dict[str, bytes] = field(default_factory=dict)
    part_size: int | None = None
    parts: dict[tuple[str, int], bytes] = field(default_factory=dict)
    requests: list[Request] = field(default_factory=list)
    faults: Faults = field(default_factory=Faults)
    lock: threading.RLock = field(default_factory=threading.RLock)
    closing: threading.Event = field(default_factory=threading.Event)
    answering: Answering = field(default_factory=Answering)

    def add(
        self,
        name: str,
        content: Path | Mapping[str, bytes],
        *,
        private: bool = False,
        gated: bool = False,
        **info: Any,
    ) -> str:
        """Create the repository `name`; its first commit. `info` is shown to searches."""
        files = files_of(content) if isinstance(content, Path) else as_files(content)
        with self.lock:
            repository = Repository(name, private=private, gated=gated, info=info)
            self.repositories[name] = repository
            return self._commit(repository, files, "main")

    def push(self, name: str, content: Mapping[str, bytes], *, branch: str = "main") -> str:
        """Commit changed files on a branch, which is made from main when it is new."""
        with self.lock:
            repository = self.repositories[name]
            base = repository.head(branch if branch in repository.branches else "main")
            return self._commit(repository, {**base, **as_files(content)}, branch)

    def fail(self, pattern: str, **options: Any) -> Fault:
        """Add a `Fault` with `options`."""
        return self.faults.add(Fault(pattern, **options))

    def bytes_sent(self, pattern: str) -> int:
        """Bytes of the bodies sent for paths in which `pattern` is found."""
        return sum(request.sent for request in self.asked(pattern))

    def asked(self, pattern: str, method: str | None = None) -> list[Request]:
        """Requests for paths in which `pattern` is found, those being answered now included."""
        self.answering.wait_until_none()
        with self.lock:
            return [
                request
                for request in self.requests
                if re.search(pattern, request.path) and method in (None, request.method)
            ]

    def forget_requests(self) -> None:
        """Start counting anew."""
        with self.lock:
            self.requests.clear()

    def _commit(self, repository: Repository, files: Files, branch: str) -> str:
        self.lfs.update({blob.sha256: blob.data for blob in files.values() if blob.is_lfs})
        return repository.commit(files, branch=branch)


@contextmanager
def running_hub() -> Iterator[HubServer]:
    """A hub that serves while the block lasts."""
    hub = HubServer()
    servers = [_Server(("127.0.0.1", 0), Handler) for _ in range(2)]
    threads = [threading.Thread(target=s.serve_forever, args=(0.02,), daemon=True) for s in servers]
    for server, thread in zip(servers, threads, strict=True):
        server.hub = hub
        thread.start()
    hub.url, hub.storage_url = (f"http://127.0.0.1:{s.server_address[1]}" for s in servers)
    try:
        yield hub
    finally:
        hub.closing.set()
        for server, thread in zip(servers, threads, strict=True):
            server.shutdown()
            server.server_close()
            thread.join()


def use_hub(hub: HubServer, home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Direct `huggingface_hub`, here and in child processes, to `hub`, with an empty cache.

    The library reads its environment when it is imported, which has happened already.
    Retries do not wait.
    """
    from huggingface_hub import close_session, constants

    from mtplx.forge.hub import retry

    cache = home / "hub"
    for name, value in {
        "ENDPOINT": hub.url,
        "HUGGINGFACE_CO_URL_TEMPLATE": hub.url + "/{repo_id}/resolve/{revision}/{filename}",
        "HF_HUB_OFFLINE": False,
        "HF_HUB_DISABLE_XET": True,
        "HF_HOME": str(home),
        "HF_HUB_CACHE": str(cache),
        "HF_TOKEN_PATH": str(home / "token"),
        "HF_STORED_TOKENS_PATH": str(home / "stored_tokens"),
    }.items():
        monkeypatch.setattr(constants, name, value)
    for name, value in {
        "HF_ENDPOINT": hub.url,
        "HF_HUB_OFFLINE": "0",
        "HF_HUB_DISABLE_XET": "1",
        "HF_HUB_DISABLE_TELEMETRY": "1",
        "HF_HOME": str(home),
    }.items():
        monkeypatch.setenv(name, value)
    for name in ("HF_TOKEN", "HUGGING_FACE_HUB_TOKEN", "HF_HUB_CACHE", "HTTP_PROXY", "http_proxy"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setattr(retry, "FIRST_WAIT_S", 0.0)
    monkeypatch.setattr("huggingface_hub.utils._http.time.sleep", lambda _seconds: None)
    close_session()


class _Server(ThreadingHTTPServer):
    daemon_threads = True
    hub: HubServer

    def handle_error(self, request: object, client_address: object) -> None:
        """A client that leaves in the middle of an answer is none of the hub's worries."""
