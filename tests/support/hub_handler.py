"""The requests that the local hub answers; `hub_server` says what it is for."""

from __future__ import annotations

import base64
import json
import re
from typing import TYPE_CHECKING, Any

from tests.support.hub_connection import Answer, Connection, RefusedError, as_json
from tests.support.hub_store import Blob, Repository, belongs_in_lfs

if TYPE_CHECKING:
    from collections.abc import Callable

_REPO = r"(?P<repo>[^/]+/[^/]+)"


class Handler(Connection):
    """What the hub does. Routes are methods named in `_ROUTES`."""

    def routed(self, path: str) -> Answer:
        """The answer of the route for `path`."""
        for methods, pattern, route in _ROUTES:
            match = re.fullmatch(pattern, path)
            if match and self.command in methods.split():
                return route(self, **match.groupdict())
        raise RefusedError(404, f"No route for {self.command} {path}")

    def _repository(self, name: str, *, to_write: bool = False) -> Repository:
        repository = self.hub.repositories.get(name)
        if "Authorization" in self.headers and not self._has_token():
            raise RefusedError(401, "Invalid credentials in Authorization header")
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
        return json.loads(self.payload)

    # Reading

    def model_info(self, repo: str, rev: str = "main") -> Answer:
        """Commit, files and what searches show."""
        repository = self._repository(repo)
        commit = self._commit_of(repository, rev)
        return as_json(self._described(repository, commit, blobs="blobs" in self.query))

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
            "lastModified": "2030-01-02T03:04:05.000Z",
            "gated": "manual" if repository.gated else False,
            "siblings": siblings,
            **repository.info,
        }

    def search(self) -> Answer:
        """Repositories by part of their name and by tags, most downloaded first."""
        wanted = self.query.get("search", [""])[0].lower()
        tags = set(self.query.get("filter", []))
        found = [
            self._described(repository, repository.branches["main"], blobs=False)
            for repository in self.hub.repositories.values()
            if wanted in repository.name.lower() and tags <= set(repository.info.get("tags", ()))
        ]
        found.sort(key=lambda row: -row.get("downloads", 0))
        return as_json(found[: int(self.query.get("limit", ["1000"])[0])])

    def tree(self, repo: str, rev: str) -> Answer:
        """Every file of a commit."""
        repository = self._repository(repo)
        files = repository.commits[self._commit_of(repository, rev)]
        return as_json([blob.tree_entry(name) for name, blob in files.items()])

    def paths_info(self, repo: str, rev: str) -> Answer:
        """The files that the request names and that exist."""
        repository = self._repository(repo)
        files = repository.commits[self._commit_of(repository, rev)]
        paths = self._json()["paths"]
        return as_json([files[name].tree_entry(name) for name in paths if name in files])

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
        return as_json({"type": "user", "name": self.hub.user, "orgs": [], "auth": access})

    def create(self) -> Answer:
        """A new repository, whose first commit has no more than a `.gitattributes`."""
        self._check_token()
        asked = self._json()
        name = f"{asked.get('organization') or self.hub.user}/{asked['name']}"
        url = f"{self.hub.url}/{name}"
        if name in self.hub.repositories:
            return as_json({"error": "You already created this model repo", "url": url}, 409)
        private = asked.get("visibility") == "private" or bool(asked.get("private"))
        self.hub.repositories[name] = Repository(name, private=private)
        first = {".gitattributes": Blob(b"*.safetensors filter=lfs\n", is_lfs=False)}
        self.hub.repositories[name].commit(first, message="initial commit")
        return as_json({"url": url, "name": name, "id": name})

    def validate_yaml(self) -> Answer:
        """Every model card is valid."""
        return as_json({"errors": [], "warnings": []})

    def preupload(self, repo: str, rev: str) -> Answer:
        """For each file, how it is to be uploaded and which content the branch has now."""
        repository = self._repository(repo, to_write=True)
        files = repository.commits[self._commit_of(repository, rev)]
        ignored = files[".gitignore"].data.decode().split() if ".gitignore" in files else []
        answers = [
            {
                "path": path,
                "uploadMode": "lfs" if belongs_in_lfs(path) else "regular",
                "shouldIgnore": path in ignored,
                "oid": files[path].etag if path in files else None,
            }
            for path in (asked["path"] for asked in self._json()["files"])
        ]
        return as_json({"files": answers})

    def lfs_batch(self, repo: str) -> Answer:
        """Where to upload each object; nowhere for those that are there."""
        self._repository(repo, to_write=True)
        return as_json(
            {"transfer": "basic", "objects": [self._lfs_object(o) for o in self._json()["objects"]]}
        )

    def _lfs_object(self, asked: dict[str, Any]) -> dict[str, Any]:
        oid, size = asked["oid"], asked["size"]
        if oid in self.hub.lfs:
            return {"oid": oid, "size": size}
        actions = {
            "upload": self._upload_action(oid, size),
            "verify": {"href": f"{self.hub.url}/verify/{oid}"},
        }
        return {"oid": oid, "size": size, "actions": actions}

    def _upload_action(self, oid: str, size: int) -> dict[str, Any]:
        """One address for the whole content, or one for each part and one to say that all came."""
        part = self.hub.part_size
        if part is None or size <= part:
            return {"href": f"{self.hub.storage_url}/storage/{oid}?sig=secret"}
        parts = {
            f"{number:05}": f"{self.hub.storage_url}/part/{oid}/{number}?sig=secret"
            for number in range(1, -(-size // part) + 1)
        }
        href = f"{self.hub.url}/complete/{oid}"
        return {"href": href, "header": {"chunk_size": str(part), **parts}}

    def store(self, oid: str) -> Answer:
        """Take LFS content; it must be what its name says."""
        if Blob(self.payload, is_lfs=True).sha256 != oid:
            raise RefusedError(400, "The content does not match its sha256")
        self.hub.lfs[oid] = self.payload
        return Answer(200)

    def store_part(self, oid: str, number: str) -> Answer:
        """Take one part of LFS content."""
        self.hub.parts[oid, int(number)] = self.payload
        return Answer(200, headers=(("ETag", f'"{number}"'),))

    def complete(self, oid: str) -> Answer:
        """Put the parts together; the result must be what its name says."""
        numbers = [part["partNumber"] for part in self._json()["parts"]]
        self.payload = b"".join(self.hub.parts[oid, number] for number in numbers)
        return self.store(oid)

    def verify(self, oid: str) -> Answer:
        """Whether an upload arrived."""
        if len(self.hub.lfs.get(oid, b"")) != self._json()["size"]:
            raise RefusedError(400, "The object is not there")
        return Answer(200)

    def commit(self, repo: str, rev: str) -> Answer:
        """All operations of a request as one commit, or none of them."""
        repository = self._repository(repo, to_write=True)
        parent = self._commit_of(repository, rev)
        lines = [json.loads(line) for line in self.payload.splitlines() if line.strip()]
        header = next(line["value"] for line in lines if line["key"] == "header")
        if header.get("parentCommit", parent) != parent:
            raise RefusedError(412, "A commit has happened since. Please refresh and try again.")
        files = dict(repository.commits[parent])
        for line in lines:
            self._apply(files, line["key"], line["value"])
        asked = [line for line in lines if line["key"] != "header"]
        repository.operations.append([f"{line['key']} {line['value']['path']}" for line in asked])
        oid = repository.commit(files, branch=rev, message=header["summary"])
        url = f"{self.hub.url}/{repo}/commit/{oid}"
        return as_json({"success": True, "commitOid": oid, "commitUrl": url})

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
    ("PUT", r"/part/(?P<oid>[0-9a-f]{64})/(?P<number>\d+)", Handler.store_part),
    ("POST", r"/complete/(?P<oid>[0-9a-f]{64})", Handler.complete),
    ("POST", r"/verify/(?P<oid>[0-9a-f]{64})", Handler.verify),
]
