"""A small HTTP server on this machine, with the faults that servers have."""

import re
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer


@dataclass
class FileServer:
    """What a server has, and how it behaves.

    Attributes:
        address: where it answers.
        files: content by path, such as ``/a.txt``.
        ranges: whether it serves a part of a file on request.
        cut_after: bytes after which it drops the connection; ``None`` is never.
        cuts: how many connections it still drops.
        asked: path and Range header of every request.
    """

    address: str = ""
    files: dict[str, bytes] = field(default_factory=dict)
    ranges: bool = True
    cut_after: int | None = None
    cuts: int = 1_000
    asked: list[tuple[str, str | None]] = field(default_factory=list)

    def url(self, path: str) -> str:
        return self.address + path


@contextmanager
def serving() -> Iterator[FileServer]:
    server = FileServer()

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            _answer(server, self)

        def log_message(self, *_: object) -> None:
            pass

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as listening:
        server.address = f"http://127.0.0.1:{listening.server_port}"
        thread = threading.Thread(target=listening.serve_forever, args=(0.01,), daemon=True)
        thread.start()
        yield server
        listening.shutdown()
        thread.join()


def _answer(server: FileServer, handler: BaseHTTPRequestHandler) -> None:
    wanted = handler.headers.get("Range")
    server.asked.append((handler.path, wanted))
    content = server.files.get(handler.path)
    if content is None:
        handler.send_error(404)
        return
    start = 0
    found = re.fullmatch(r"bytes=(\d+)-", wanted or "") if server.ranges else None
    if found:
        start = int(found[1])
        if start >= len(content):
            handler.send_error(416)
            return
        handler.send_response(206)
        handler.send_header("Content-Range", f"bytes {start}-{len(content) - 1}/{len(content)}")
    else:
        handler.send_response(200)
    handler.send_header("Content-Length", str(len(content) - start))
    handler.end_headers()
    body = content[start:]
    if server.cut_after is not None and server.cuts > 0:
        server.cuts -= 1
        body = body[: server.cut_after]
    handler.wfile.write(body)
