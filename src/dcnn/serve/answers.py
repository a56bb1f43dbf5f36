"""Answers as bytes."""

import json
from collections.abc import Iterable

from starlette.types import Send

JSON = (b"content-type", b"application/json")
NOT_STORED = (b"cache-control", b"no-store")

Header = tuple[bytes, bytes]


def json_bytes(value: object) -> bytes:
    """JSON in which nothing can be taken for markup, wherever it is pasted."""
    text = json.dumps(value, allow_nan=False, separators=(",", ":"))
    # In JSON these stand inside strings alone, where their escapes mean the same.
    text = text.replace("<", "\\u003c").replace(">", "\\u003e").replace("&", "\\u0026")
    return text.encode("ascii")


async def send_json(send: Send, status: int, body: bytes, headers: Iterable[Header] = ()) -> None:
    """Send a whole answer."""
    length = (b"content-length", b"%d" % len(body))
    await send(
        {
            "type": "http.response.start",
            "status": status,
            "headers": [JSON, length, NOT_STORED, *headers],
        }
    )
    await send({"type": "http.response.body", "body": body})
