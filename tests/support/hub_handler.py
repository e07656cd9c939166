"""The requests that the local hub answers; `hub_server` says what it is for."""

from __future__ import annotations

import base64
import json
import re
import socket
from http.server import BaseHTTPRequestHandler
from typing import TYPE_CHECKING, Any, NamedTuple
from urllib.parse import parse_qs, unquote, urlsplit

from tests.support.hub_store import Blob, Repository, Request, belongs_in_lfs

if TYPE_CHECKING:
    from collections.abc import Callable

    from tests.support.hub_faults import Fault
    from tests.support.hub_server import HubServer

_REPO = r"(?P<repo>[^/]+/[^/]+)"
_CHUNK = 64 * 1024


class Answer(NamedTuple):
    """An answer before it is sent."""

    status: int
    body: bytes = b""
    headers: tuple[tuple[str, str], ...] = ()


class RefusedError(Exception):
    """Ends the handling of a request with an error of the hub."""

    def __init__(self, status: int, message: str, code: str | None = None) -> None:
        super().__init__(message)
        headers = [("X-Error-Message", message), ("Content-Type", "application/json")]
        if code:
            headers.append(("X-Error-Code", code))
        self.answer = Answer(status, json.dumps({"error": message}).encode(), tuple(headers))


class Handler(BaseHTTPRequestHandler):
    """One connection. Routes are methods named in `_ROUTES`."""

    protocol_version = "HTTP/1.1"
    timeout = 30

    def do_HEAD(self) -> None:
        """Answer HEAD."""
        self._handle()

    def do_GET(self) -> None:
        """Answer GET."""
        self._handle()

    def do_POST(self) -> None:
        """Answer POST."""
        self._handle()

    def do_PUT(self) -> None:
        """Answer PUT."""
        self._handle()

    def log_message(self, format: str, *args: Any) -> None:
        """Keep quiet."""

    @property
    def hub(self) -> HubServer:
        """The hub that is spoken to."""
        hub: HubServer = self.server.hub  # type: ignore[attr-defined]
        return hub

    def _handle(self) -> None:
        # A small buffer, so that bytes counted as sent are bytes that the client wanted.
        self.connection.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, _CHUNK)
        self._payload = self._read_body()
        fault = self.hub.faults.find(self.command, unquote(self.path))
        if fault is not None and fault.hang_s:
            self.hub.closing.wait(fault.hang_s)
        if fault is not None and fault.action is not None:
            fault.action()
        self._send(self._failure(fault) or self._answer(fault), fault)

    def _read_body(self) -> bytes:
        if self.headers.get("Transfer-Encoding") != "chunked":
            return self.rfile.read(int(self.headers.get("Content-Length") or 0))
        body = b""
        while size := int(self.rfile.readline(), 16):
            body += self.rfile.read(size)
            self.rfile.readline()
        self.rfile.readline()
        return body

    def _failure(self, fault: Fault | None) -> Answer | None:
        if fault is None or fault.status is None:
            return None
        answer = RefusedError(fault.status, "on purpose", fault.error_code).answer
        if fault.retry_after is None:
            return answer
        return answer._replace(headers=(*answer.headers, ("Retry-After", str(fault.retry_after))))

    def _answer(self, fault: Fault | None) -> Answer:
        url = urlsplit(self.path)
        self._query = parse_qs(url.query)
        path = unquote(url.path)
        try:
            with self.hub.lock:
                for methods, pattern, route in _ROUTES:
                    match = re.fullmatch(pattern, path)
                    if match and self.command in methods.split():
                        answer: Answer = route(self, **match.groupdict())
                        break
                else:
                    raise RefusedError(404, f"No route for {self.command} {path}")
        except RefusedError as refused:
            return refused.answer
        if answer.status != 200:
            return answer
        if fault is not None and fault.corrupt and answer.body:
            answer = answer._replace(body=bytes([answer.body[0] ^ 1]) + answer.body[1:])
        return answer if fault is not None and fault.ignore_range else self._ranged(answer)

    def _ranged(self, answer: Answer) -> Answer:
        """The part of the answer that a Range header asks for."""
        match = re.fullmatch(r"bytes=(\d+)-(\d*)", self.headers.get("Range", ""))
        if not match:
            return answer
        size = len(answer.body)
        start, end = int(match[1]), min(int(match[2] or size - 1), size - 1)
        if start >= size:
            return Answer(416, headers=(("Content-Range", f"bytes */{size}"),))
        place = ("Content-Range", f"bytes {start}-{end}/{size}")
        return Answer(206, answer.body[start : end + 1], (*answer.headers, place))

    def _send(self, answer: Answer, fault: Fault | None) -> None:
        self.send_response(answer.status)
        for name, value in answer.headers:
            self.send_header(name, value)
        self.send_header("Content-Length", str(len(answer.body)))
        self.end_headers()
        body = b"" if self.command == "HEAD" else answer.body
        if fault is not None and fault.truncate is not None:
            body = body[: fault.truncate]
            self.close_connection = True
        sent = 0
        try:
            while sent < len(body):
                sent += self.connection.send(body[sent : sent + _CHUNK])
        except OSError:
            self.close_connection = True
        finally:
            self._record(answer.status, sent)

    def _record(self, status: int, sent: int) -> None:
        request = Request(
            self.command,
            unquote(self.path),
            self.headers.get("Range"),
            status,
            sent,
            "Authorization" in self.headers,
        )
        with self.hub.lock:
            self.hub.requests.append(request)

    # What is asked

    def _repository(self, name: str, *, to_write: bool = False) -> Repository:
        repository = self.hub.repositories.get(name)
        if repository is None:
            raise RefusedError(404, "Repository not found", "RepoNotFound")
        if to_write:
            self._check_token()
        elif not self._has_token():
            if repository.private:
                raise RefusedError(401, "Invalid username or password.", "RepoNotFound")
            if repository.gated and "/resolve/" in self.path:
                raise RefusedError(403, f"Access to model {name} is restricted.", "GatedRepo")
        return repository

    def _has_token(self) -> bool:
        return self.headers.get("Authorization") == f"Bearer {self.hub.token}"

    def _check_token(self) -> None:
        if not self._has_token():
            raise RefusedError(401, "Invalid username or password.")

    def _commit_of(self, repository: Repository, revision: str) -> str:
        commit = repository.resolve(revision)
        if commit is None:
            raise RefusedError(404, f"Invalid rev id: {revision}", "RevisionNotFound")
        return commit

    def _json(self) -> Any:
        return json.loads(self._payload)

    # Reading

    def model_info(self, repo: str, rev: str = "main") -> Answer:
        """Commit, files and what searches show."""
        repository = self._repository(repo)
        commit = self._commit_of(repository, rev)
        return _as_json(self._described(repository, commit, blobs="blobs" in self._query))

    def _described(self, repository: Repository, commit: str, *, blobs: bool) -> dict[str, Any]:
        files = repository.commits[commit]
        siblings = [
            blob.sibling(name) if blobs else {"rfilename": name} for name, blob in files.items()
        ]
        return {
            "id": repository.name,
            "modelId": repository.name,
            "sha": commit,
            "private": repository.private,
            "gated": "manual" if repository.gated else False,
            "siblings": siblings,
            **repository.info,
        }

    def search(self) -> Answer:
        """Repositories by part of their name and by tags, most downloaded first."""
        wanted = self._query.get("search", [""])[0].lower()
        tags = set(self._query.get("filter", []))
        found = [
            self._described(repository, repository.branches["main"], blobs=False)
            for repository in self.hub.repositories.values()
            if wanted in repository.name.lower() and tags <= set(repository.info.get("tags", ()))
        ]
        found.sort(key=lambda row: -row.get("downloads", 0))
        return _as_json(found[: int(self._query.get("limit", ["1000"])[0])])

    def tree(self, repo: str, rev: str) -> Answer:
        """Every file of a commit."""
        repository = self._repository(repo)
        files = repository.commits[self._commit_of(repository, rev)]
        return _as_json([blob.tree_entry(name) for name, blob in files.items()])

    def paths_info(self, repo: str, rev: str) -> Answer:
        """The files that the request names and that exist."""
        repository = self._repository(repo)
        files = repository.commits[self._commit_of(repository, rev)]
        paths = self._json()["paths"]
        return _as_json([files[name].tree_entry(name) for name in paths if name in files])

    def resolve(self, repo: str, rev: str, file: str) -> Answer:
        """The content of a file, or for LFS files where it lies."""
        repository = self._repository(repo)
        commit = self._commit_of(repository, rev)
        blob = repository.commits[commit].get(file)
        headers: list[tuple[str, str]] = [("X-Repo-Commit", commit)]
        if blob is None:
            raise RefusedError(404, "Entry not found", "EntryNotFound")
        headers += [("ETag", f'"{blob.etag}"'), ("Accept-Ranges", "bytes")]
        if not blob.is_lfs:
            return Answer(200, blob.data, tuple(headers))
        headers += [
            ("X-Linked-Size", str(len(blob.data))),
            ("X-Linked-Etag", f'"{blob.sha256}"'),
            ("Location", f"{self.hub.storage_url}/storage/{blob.sha256}?name={file}&sig=secret"),
        ]
        return Answer(302, headers=tuple(headers))

    def stored(self, oid: str) -> Answer:
        """LFS content."""
        if oid not in self.hub.lfs:
            raise RefusedError(404, "No such object")
        return Answer(200, self.hub.lfs[oid], (("ETag", f'"{oid}"'), ("Accept-Ranges", "bytes")))

    # Writing

    def whoami(self) -> Answer:
        """Whose token it is."""
        self._check_token()
        access = {"accessToken": {"displayName": "test", "role": "write"}}
        return _as_json({"type": "user", "name": self.hub.user, "orgs": [], "auth": access})

    def create(self) -> Answer:
        """A new repository with an empty first commit; 409 when there is one already."""
        self._check_token()
        asked = self._json()
        name = f"{asked.get('organization') or self.hub.user}/{asked['name']}"
        url = f"{self.hub.url}/{name}"
        if name in self.hub.repositories:
            return _as_json({"error": "You already created this model repo", "url": url}, 409)
        private = asked.get("visibility") == "private" or bool(asked.get("private"))
        self.hub.repositories[name] = Repository(name, private=private)
        self.hub.repositories[name].commit({}, message="initial commit")
        return _as_json({"url": url, "name": name, "id": name})

    def validate_yaml(self) -> Answer:
        """Every model card is valid."""
        return _as_json({"errors": [], "warnings": []})

    def preupload(self, repo: str, rev: str) -> Answer:
        """For each file, how it is to be uploaded and which content the branch has now."""
        repository = self._repository(repo, to_write=True)
        files = repository.commits[self._commit_of(repository, rev)]
        answers = [
            {
                "path": path,
                "uploadMode": "lfs" if belongs_in_lfs(path) else "regular",
                "shouldIgnore": False,
                "oid": files[path].etag if path in files else None,
            }
            for path in (asked["path"] for asked in self._json()["files"])
        ]
        return _as_json({"files": answers})

    def lfs_batch(self, repo: str) -> Answer:
        """Where to upload each object; nowhere for those that are there."""
        self._repository(repo, to_write=True)
        return _as_json(
            {"transfer": "basic", "objects": [self._lfs_object(o) for o in self._json()["objects"]]}
        )

    def _lfs_object(self, asked: dict[str, Any]) -> dict[str, Any]:
        oid, size = asked["oid"], asked["size"]
        if oid in self.hub.lfs:
            return {"oid": oid, "size": size}
        actions = {
            "upload": {"href": f"{self.hub.storage_url}/storage/{oid}"},
            "verify": {"href": f"{self.hub.url}/verify/{oid}"},
        }
        return {"oid": oid, "size": size, "actions": actions}

    def store(self, oid: str) -> Answer:
        """Take LFS content; it must be what its name says."""
        if Blob(self._payload, is_lfs=True).sha256 != oid:
            raise RefusedError(400, "The content does not match its sha256")
        self.hub.lfs[oid] = self._payload
        return Answer(200)

    def verify(self, oid: str) -> Answer:
        """Whether an upload arrived."""
        if len(self.hub.lfs.get(oid, b"")) != self._json()["size"]:
            raise RefusedError(400, "The object is not there")
        return Answer(200)

    def commit(self, repo: str, rev: str) -> Answer:
        """All operations of a request as one commit, or none of them."""
        repository = self._repository(repo, to_write=True)
        parent = self._commit_of(repository, rev)
        lines = [json.loads(line) for line in self._payload.splitlines() if line.strip()]
        header = next(line["value"] for line in lines if line["key"] == "header")
        if header.get("parentCommit", parent) != parent:
            raise RefusedError(412, "A commit has happened since. Please refresh and try again.")
        files = dict(repository.commits[parent])
        for line in lines:
            self._apply(files, line["key"], line["value"])
        oid = repository.commit(files, branch=rev, message=header["summary"])
        url = f"{self.hub.url}/{repo}/commit/{oid}"
        return _as_json({"success": True, "commitOid": oid, "commitUrl": url})

    def _apply(self, files: dict[str, Blob], key: str, value: dict[str, Any]) -> None:
        if key == "file":
            files[value["path"]] = Blob(base64.b64decode(value["content"]), is_lfs=False)
        elif key == "lfsFile":
            if value["oid"] not in self.hub.lfs:
                raise RefusedError(
                    400, f"{value['path']} points to an object that was never uploaded"
                )
            files[value["path"]] = Blob(self.hub.lfs[value["oid"]], is_lfs=True)
        elif key == "deletedFile":
            if files.pop(value["path"], None) is None:
                raise RefusedError(404, "A file with this name doesn't exist", "EntryNotFound")
        elif key == "deletedFolder":
            for name in [
                name for name in files if name.startswith(value["path"].rstrip("/") + "/")
            ]:
                del files[name]
        elif key != "header":
            raise RefusedError(400, f"Unknown operation {key}")


def _as_json(value: Any, status: int = 200) -> Answer:
    return Answer(status, json.dumps(value).encode(), (("Content-Type", "application/json"),))


_ROUTES: list[tuple[str, str, Callable[..., Answer]]] = [
    ("GET", r"/api/models", Handler.search),
    ("GET", r"/api/whoami-v2", Handler.whoami),
    ("POST", r"/api/repos/create", Handler.create),
    ("POST", r"/api/validate-yaml", Handler.validate_yaml),
    ("GET", rf"/api/models/{_REPO}", Handler.model_info),
    ("GET", rf"/api/models/{_REPO}/revision/(?P<rev>.+)", Handler.model_info),
    ("GET", rf"/api/models/{_REPO}/tree/(?P<rev>[^/]+)", Handler.tree),
    ("POST", rf"/api/models/{_REPO}/paths-info/(?P<rev>[^/]+)", Handler.paths_info),
    ("POST", rf"/api/models/{_REPO}/preupload/(?P<rev>[^/]+)", Handler.preupload),
    ("POST", rf"/api/models/{_REPO}/commit/(?P<rev>[^/]+)", Handler.commit),
    ("POST", rf"/{_REPO}\.git/info/lfs/objects/batch", Handler.lfs_batch),
    ("HEAD GET", rf"/{_REPO}/resolve/(?P<rev>[^/]+)/(?P<file>.+)", Handler.resolve),
    ("HEAD GET", r"/storage/(?P<oid>[0-9a-f]{64})", Handler.stored),
    ("PUT", r"/storage/(?P<oid>[0-9a-f]{64})", Handler.store),
    ("POST", r"/verify/(?P<oid>[0-9a-f]{64})", Handler.verify),
]
