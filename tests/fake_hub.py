"""A Hugging Face hub on this machine, over a folder: what its client asks, and the faults it has.

The real client talks to it, so a test sees what a user of the real hub would. Repositories are
folders ``OWNER/NAME/BRANCH`` below ``root``; a commit is named by the digest of its files.
"""

import base64
import hashlib
import json
import re
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from urllib.parse import unquote

TOKEN = "hf_of_the_owner"


@dataclass
class FakeHub:
    """What the hub holds, and how it behaves.

    Attributes:
        root: the folder of all repositories.
        address: where it answers.
        private: the repositories that are hidden from others.
        failure: a status that every request gets instead of an answer, with an error code.
        asked: method and path of every request.
    """

    root: Path
    address: str = ""
    private: set[str] = field(default_factory=set)
    failure: tuple[int, str] | None = None
    asked: list[str] = field(default_factory=list)

    def folder(self, name: str, branch: str = "main") -> Path:
        return self.root / name / branch

    def sha(self, name: str, branch: str = "main") -> str:
        digest = hashlib.sha1()
        for path in sorted(self.folder(name, branch).iterdir()):
            digest.update(path.name.encode() + path.read_bytes())
        return digest.hexdigest()


@contextmanager
def hub_over(root: Path) -> Iterator[FakeHub]:
    hub = FakeHub(root)

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self._answer("GET")

        def do_HEAD(self) -> None:
            self._answer("HEAD")

        def do_POST(self) -> None:
            self._answer("POST")

        def _answer(self, method: str) -> None:
            body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
            path = unquote(self.path.split("?")[0])
            hub.asked.append(f"{method} {path}")
            if hub.failure is not None:
                status, code = hub.failure
                return self._send(status, b"{}", {"X-Error-Code": code})
            if path == "/api/repos/create":
                return self._create(json.loads(body))
            if path == "/api/validate-yaml":
                bad = "not: [valid" in json.loads(body)["content"]
                errors = [{"message": "the metadata is no YAML"}] if bad else []
                return self._json({"errors": errors, "warnings": []}, 400 if bad else 200)
            if found := re.fullmatch(r"/api/models/([^/]+/[^/]+)(?:/(\w+)/(.+))?", path):
                return self._of_repository(*found.groups(), body)
            if found := re.fullmatch(r"/([^/]+/[^/]+)/resolve/(\w+)/(.+)", path):
                return self._file(*found.groups())
            return self._missing("RepoNotFound")

        def _create(self, asked: dict) -> None:
            if self.headers.get("Authorization") != f"Bearer {TOKEN}":
                return self._send(401, b"{}")
            name = f"{asked['organization']}/{asked['name']}"
            if asked["organization"] != "me":
                return self._send(403, b"{}", {"X-Error-Message": "You are not of this family"})
            if hub.folder(name).exists():
                return self._json({"url": f"{hub.address}/{name}"}, 409)
            hub.folder(name).mkdir(parents=True)
            (hub.folder(name) / ".gitattributes").write_text("*.safetensors filter=lfs\n")
            if asked.get("private") or asked.get("visibility") == "private":
                hub.private.add(name)
            return self._json({"url": f"{hub.address}/{name}"})

        def _of_repository(self, name: str, act: str, revision: str, body: bytes) -> None:
            if not hub.folder(name).exists():
                return self._missing("RepoNotFound")
            match act:
                case "branch":
                    hub.folder(name, revision).mkdir(exist_ok=True)
                    return self._json({})
                case "preupload":
                    files = [
                        {"path": file["path"], "uploadMode": "regular", "shouldIgnore": False}
                        for file in json.loads(body)["files"]
                    ]
                    return self._json({"files": files})
                case "commit":
                    for line in map(json.loads, body.splitlines()):
                        if line["key"] == "file":
                            content = base64.b64decode(line["value"]["content"])
                            (hub.folder(name, revision) / line["value"]["path"]).write_bytes(
                                content
                            )
                    sha = hub.sha(name, revision)
                    url = f"{hub.address}/{name}/commit/{sha}"
                    return self._json({"success": True, "commitOid": sha, "commitUrl": url})
            branch = revision or "main"
            if not hub.folder(name, branch).exists():
                return self._missing("RevisionNotFound")
            files = [{"rfilename": path.name} for path in hub.folder(name, branch).iterdir()]
            about = {"id": name, "private": name in hub.private, "siblings": files, "tags": []}
            return self._json(about | {"sha": hub.sha(name, branch)})

        def _file(self, name: str, sha: str, file: str) -> None:
            for branch in (hub.root / name).iterdir():
                if hub.sha(name, branch.name) == sha:
                    content = (branch / file).read_bytes()
                    etag = hashlib.sha1(content).hexdigest()
                    return self._send(200, content, {"X-Repo-Commit": sha, "ETag": f'"{etag}"'})
            return self._missing("RevisionNotFound")

        def _json(self, values: object, status: int = 200) -> None:
            self._send(status, json.dumps(values).encode())

        def _missing(self, code: str) -> None:
            self._send(404, b"{}", {"X-Error-Code": code})

        def _send(self, status: int, body: bytes, headers: dict[str, str] | None = None) -> None:
            self.send_response(status)
            for key, value in (headers or {}).items():
                self.send_header(key, value)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            if self.command != "HEAD":
                self.wfile.write(body)

        def log_message(self, *_: object) -> None:
            pass

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as running:
        hub.address = f"http://127.0.0.1:{running.server_port}"
        thread = threading.Thread(target=running.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        try:
            yield hub
        finally:
            running.shutdown()
            thread.join()
