"""A request that is not answered as asked: its status and one sentence that says why."""

from collections.abc import Mapping

from dcnn.data.columns import shown

RETRY_SECONDS = 1


class Refusal(Exception):  # noqa: N818 - it is an answer, not a fault of the program
    """An answer other than the one that was asked for.

    Args:
        status: of HTTP, 400 or above.
        sentence: what is wrong and how to mend it.
        headers: beyond the usual ones.
    """

    def __init__(self, status: int, sentence: str, headers: Mapping[str, str] | None = None):
        super().__init__(sentence)
        self.status = status
        self.sentence = sentence
        self.headers = dict(headers or {})


def overloaded() -> Refusal:
    """There is more to do than can be done in time."""
    return Refusal(
        503,
        f"the server is busy; try again in {RETRY_SECONDS} second",
        {"retry-after": str(RETRY_SECONDS)},
    )


def key_needed() -> Refusal:
    """The key is missing or is another one."""
    return Refusal(
        401,
        "this server asks for its key: send it as 'Authorization: Bearer KEY' or 'X-API-Key: KEY'",
        {"www-authenticate": "Bearer"},
    )


def body_too_large(limit: int) -> Refusal:
    """More bytes than are read; the rest is not waited for."""
    return Refusal(
        413,
        f"the body is larger than {limit:,} bytes; send less at once",
        {"connection": "close"},
    )


def unknown_model(name: str, known: list[str]) -> Refusal:
    """A model that is not served."""
    return Refusal(404, f"there is no model {shown(name)}; the models are {', '.join(known)}")
