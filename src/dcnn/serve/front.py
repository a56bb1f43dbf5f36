"""What every request passes before and after its endpoint: overload, key, headers, metrics, faults.

Plain ASGI, as ``dcnn.serve.prediction`` is, since it is on the way of every prediction.
"""

import hmac
import logging
import time
import traceback
from collections.abc import Callable, Mapping

from starlette.types import ASGIApp, Message, Receive, Scope, Send

from dcnn.serve.answers import json_bytes, send_json
from dcnn.serve.bodies import GoneError
from dcnn.serve.hosts import Hosts
from dcnn.serve.metrics import ROUTES, Metrics
from dcnn.serve.refusals import Refusal, key_needed, overloaded

_log = logging.getLogger("dcnn.serve")

FAILED = "the server failed to answer; its log says where"
GONE = 499  # what proxies log for a connection that was closed before the answer

# The page loads nothing from elsewhere, runs no script that is not a file of its own, and is not
# shown inside another page.
SECURITY_HEADERS = tuple(
    (name.encode(), value.encode())
    for name, value in {
        "content-security-policy": (
            "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; "
            "connect-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
        ),
        "cross-origin-opener-policy": "same-origin",
        "cross-origin-resource-policy": "same-origin",
        "referrer-policy": "no-referrer",
        "x-content-type-options": "nosniff",
        "x-frame-options": "DENY",
    }.items()
)

ALWAYS_ANSWERED = ("/healthz", "/metrics")  # a server that is busy is not a server that is dead


class Front:
    """The whole application, as a server runs it.

    Args:
        app: what answers.
        fast: endpoints that are answered without ``app``, by method and path.
        pages: paths of the page's files.
        metrics: what is counted.
        in_flight: requests that may be here at once.
        hosts: which names it answers to, and whose pages.
        key: what requests must carry to reach the API; none if empty.
        log_requests: whether a line is logged for each, without its texts.
    """

    def __init__(
        self,
        app: ASGIApp,
        fast: Mapping[tuple[str, str], ASGIApp],
        pages: frozenset[str],
        metrics: Metrics,
        in_flight: int,
        hosts: Hosts,
        key: str = "",
        log_requests: bool = False,
    ) -> None:
        self.app = app
        # A server that knows of requests before they come here counts these too.
        self.pending: Callable[[], int] = metrics.in_flight
        self._fast = fast
        self._pages = pages
        self._metrics = metrics
        self._in_flight = in_flight
        self._hosts = hosts
        self._key = key.encode()
        self._log_requests = log_requests

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer one request."""
        if scope["type"] != "http":  # there are no websockets here, and nothing to start or end
            await self.app(scope, receive, send)
            return
        start, status = time.perf_counter(), 0

        async def send_guarded(message: Message) -> None:
            nonlocal status
            if message["type"] == "http.response.start":
                status = message["status"]
                message["headers"] = [*message.get("headers", ()), *SECURITY_HEADERS]
            await send(message)

        metrics, path = self._metrics, scope["path"]
        metrics.begin()
        try:
            self._check(scope)
            endpoint = self._fast.get((scope["method"], path), self.app)
            await endpoint(scope, receive, send_guarded)
        except Refusal as refusal:
            await send_refusal(send_guarded, refusal)
        except GoneError:
            status = GONE
        except Exception as error:
            _log_failure(path, error)
            if not status:
                await send_json(send_guarded, 500, json_bytes({"error": FAILED}))
            status = 500
        finally:
            seconds = time.perf_counter() - start
            metrics.end(self._route(path), status or GONE, seconds)
            if self._log_requests:
                _log.info(
                    "%s %s %d %.1f ms", scope["method"], self._route(path), status, 1e3 * seconds
                )

    def _check(self, scope: Scope) -> None:
        path: str = scope["path"]
        if path not in ALWAYS_ANSWERED and self.pending() > self._in_flight:
            raise overloaded()
        of_api = path.startswith("/v1/") or path == "/metrics"
        # A link on another site's page may lead to this one.
        self._hosts.check(scope, from_anywhere=not of_api)
        if self._key and of_api:
            given = (_key_in(name, value) for name, value in scope["headers"])
            # A comparison takes the same time however much of the key is right.
            if not any(hmac.compare_digest(key, self._key) for key in given):
                raise key_needed()

    def _route(self, path: str) -> str:
        if path in ROUTES:
            return path
        return "page" if path in self._pages else "other"


async def send_refusal(send: Send, refusal: Refusal) -> None:
    """Send the sentence."""
    headers = [(name.encode(), value.encode()) for name, value in refusal.headers.items()]
    await send_json(send, refusal.status, json_bytes({"error": refusal.sentence}), headers)


def _key_in(name: bytes, value: bytes) -> bytes:
    if name == b"x-api-key":
        return value
    if name == b"authorization" and value[:7].lower() == b"bearer ":
        return value[7:].strip()
    return b""


def _log_failure(path: str, error: Exception) -> None:
    """Where it failed; not the error's own words, in which there may be a user's text."""
    frames = "".join(traceback.format_tb(error.__traceback__))
    _log.error("%s in answer to %s\n%s", type(error).__name__, path[:100], frames.rstrip())
