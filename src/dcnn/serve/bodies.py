"""Bodies of requests: read within a limit, and within a time."""

import asyncio
from typing import TypeVar

from pydantic import BaseModel, ValidationError
from starlette.types import Receive, Scope

from dcnn.serve.limits import Limits
from dcnn.serve.refusals import Refusal, body_too_large

Question = TypeVar("Question", bound=BaseModel)


class GoneError(Exception):
    """The one who asked has gone before the question was complete."""


async def read_body(scope: Scope, receive: Receive, limit: int, seconds: float) -> bytes:
    """The whole body.

    Raises:
        Refusal: it is larger than ``limit`` bytes, or is not there after ``seconds``.
        GoneError: the connection was closed.
    """
    for name, value in scope["headers"]:
        if name == b"content-length" and int(value) > limit:
            raise body_too_large(limit)
    parts, size = [], 0
    try:
        async with asyncio.timeout(seconds):
            while True:
                message = await receive()
                if message["type"] == "http.disconnect":
                    raise GoneError
                parts.append(message.get("body", b""))
                size += len(parts[-1])
                if size > limit:
                    raise body_too_large(limit)
                if not message.get("more_body", False):
                    return b"".join(parts)
    except TimeoutError:
        raise Refusal(
            408, f"the body was not there within {seconds:g} seconds", {"connection": "close"}
        ) from None


def parsed(kind: type[Question], body: bytes) -> Question:
    """The question in a body.

    Raises:
        Refusal: it is not JSON, or not such a question; the sentence names the field.
    """
    try:
        return kind.model_validate_json(body)
    except ValidationError as error:
        raise Refusal(
            422, sentence(error.errors(include_url=False, include_input=False)[0])
        ) from None


def sentence(fault: object) -> str:
    """One fault that pydantic found, in words."""
    assert isinstance(fault, dict)  # noqa: S101
    where = ""
    for part in fault["loc"]:
        where += f"[{part}]" if isinstance(part, int) else f".{part}" if where else str(part)
    message = str(fault["msg"]).removeprefix("Value error, ")
    message = message[:1].lower() + message[1:]
    return f"{where}: {message}" if where else message


def check_texts(texts: list[str], most: int, limits: Limits) -> None:
    """Refuse too many texts, or one that is too long.

    Raises:
        Refusal: which limit, and what was received.
    """
    if len(texts) > most:
        raise Refusal(422, f"{len(texts):,} texts are more than {most:,}; send fewer at once")
    for number, text in enumerate(texts):
        if len(text) > limits.characters:
            which = "the text" if len(texts) == 1 else f"text {number}"
            raise Refusal(
                422,
                f"{which} has {len(text):,} characters, more than {limits.characters:,}; "
                "shorten it",
            )
