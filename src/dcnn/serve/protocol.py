"""What all endpoints share at the level of HTTP: errors, and JSON bodies as bytes.

An error is one sentence: what is wrong and how to fix it. It is sent as ``{"error": sentence}``, a
``UserError`` with status 422, a ``starlette.exceptions.HTTPException`` with its own.
"""

import asyncio
import json
from collections.abc import Iterable, Sequence
from typing import TypeVar

from pydantic import BaseModel, ValidationError
from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect
from starlette.types import Receive, Scope, Send

from dcnn.errors import UserError
from dcnn.serve import Limits

RETRY_SECONDS = 1

_encode = json.JSONEncoder(allow_nan=False, separators=(",", ":"), default=vars).encode

Model = TypeVar("Model", bound=BaseModel)


def overloaded() -> HTTPException:
    """The error when a queue is full: sent at once, since waiting without a bound helps nobody."""
    return HTTPException(
        503,
        f"the server is busy; try again in {RETRY_SECONDS} second",
        {"retry-after": str(RETRY_SECONDS)},
    )


def json_bytes(value: object) -> bytes:
    """JSON without ``<``, ``>`` and ``&``, so that it is never markup wherever it is pasted.

    Dataclasses become objects.
    """
    text = _encode(value)
    # In JSON these characters occur only inside strings, where their escapes mean the same.
    text = text.replace("<", "\\u003c").replace(">", "\\u003e").replace("&", "\\u0026")
    return text.encode("ascii")


async def send_json(
    send: Send, status: int, body: bytes, headers: Iterable[tuple[str, str]] = ()
) -> None:
    """Send a whole response."""
    fixed = [
        (b"content-type", b"application/json"),
        (b"content-length", b"%d" % len(body)),
        (b"cache-control", b"no-store"),
    ]
    more = [(name.encode(), value.encode()) for name, value in headers]
    await send({"type": "http.response.start", "status": status, "headers": fixed + more})
    await send({"type": "http.response.body", "body": body})


async def read_body(scope: Scope, receive: Receive, limit: int, seconds: float) -> bytes:
    """The whole body, or an error if it has over ``limit`` bytes or takes over ``seconds``."""
    declared = [int(value) for name, value in scope["headers"] if name == b"content-length"]
    parts, size = [], 0
    try:
        async with asyncio.timeout(seconds):
            while max(size, *declared, 0) <= limit:
                message = await receive()
                if message["type"] == "http.disconnect":
                    raise ClientDisconnect
                parts.append(message.get("body", b""))
                size += len(parts[-1])
                if size <= limit and not message.get("more_body", False):
                    return b"".join(parts)
    except TimeoutError:
        raise HTTPException(
            408, f"the body did not arrive within {seconds:g} seconds", {"connection": "close"}
        ) from None
    reason = f"the body is larger than {limit:,} bytes; send less at once"
    raise HTTPException(413, reason, {"connection": "close"})  # without reading the rest


def parse(kind: type[Model], body: bytes) -> Model:
    """The request in a JSON body; an error's message names the field."""
    try:
        return kind.model_validate_json(body)
    except ValidationError as error:
        fault = error.errors(include_url=False, include_input=False)[0]
        raise fault_error(fault["loc"], fault["msg"]) from None


def fault_error(location: Sequence[int | str], message: str) -> UserError:
    """One fault that pydantic found, as ``field: message``."""
    where = ""
    for part in location:
        where += f"[{part}]" if isinstance(part, int) else f".{part}" if where else part
    message = message.removeprefix("Value error, ")
    message = message[:1].lower() + message[1:]
    return UserError(f"{where}: {message}" if where else message)


def check_texts(texts: Sequence[str], most: int, limits: Limits) -> None:
    """Raise UserError if there are too many texts, or if one is too long."""
    if len(texts) > most:
        raise UserError(f"{len(texts):,} texts are more than {most:,}; send fewer at once")
    for number, text in enumerate(texts):
        if len(text) > limits.characters:
            raise too_long("the text" if len(texts) == 1 else f"text {number}", text, limits)


def too_long(which: str, text: str, limits: Limits) -> UserError:
    """The error for a text that is too long."""
    size, most = len(text), limits.characters
    return UserError(f"{which} has {size:,} characters, more than {most:,}; shorten it")
