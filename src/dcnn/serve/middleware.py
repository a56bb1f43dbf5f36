"""What every request passes through: overload, host, key, security headers, metrics, failures.

Plain ASGI, since it is part of every prediction.

Metrics are counted in shared memory, one row per worker process, so that any worker reports for all
of them. prometheus_client only formats them: its own multi-process mode keeps files per process id,
which a killed worker leaves behind and a full disk turns into a crash.
"""

import asyncio
import hmac
import logging
import mmap
import time
import traceback
from bisect import bisect_left
from collections.abc import Awaitable, Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import accumulate

import numpy as np
from prometheus_client import metrics_core
from prometheus_client.registry import Collector
from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect, Request
from starlette.responses import Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from dcnn.errors import UserError
from dcnn.serve.models import ServedModel
from dcnn.serve.schemas import json_bytes

_log = logging.getLogger("dcnn.serve")

FAILED = "the server failed to answer; see its log"
DISCONNECTED = 499  # what proxies log when the client closed the connection before the response
HEADERS = 100  # of a request

# The page loads only its own files, runs no inline script, and is not shown inside another page.
SECURITY_HEADERS = (
    (
        b"content-security-policy",
        b"default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; "
        b"connect-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'",
    ),
    (b"cross-origin-opener-policy", b"same-origin"),
    (b"cross-origin-resource-policy", b"same-origin"),
    (b"referrer-policy", b"no-referrer"),
    (b"x-content-type-options", b"nosniff"),
    (b"x-frame-options", b"DENY"),
)

NEVER_BUSY = ("/healthz", "/metrics")  # a busy server must not look like a dead one
LOOPBACK = ("localhost", "127.0.0.1", "[::1]")

ROUTES = (
    *("/v1/predict", "/v1/predict-file", "/v1/explain", "/v1/compare", "/v1/detectors"),
    *("/v1/models", "/healthz", "/metrics", "/openapi.json", "page", "other"),
)
STATUSES = (200, 304, 400, 401, 403, 404, 405, 408, 413, 421, 422, 431, 499, 500, 503, "other")
Headers = Sequence[tuple[bytes, bytes]]  # the names in lower case
BOUNDS = (0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 1.0)  # seconds


class Metrics(Collector):
    """Counters of all workers: a row per worker, a column per counter."""

    def __init__(self, models: Sequence[ServedModel], workers: int = 1) -> None:
        self.worker = 0  # set in every process to its own row
        self._models = tuple(models)
        names: list[tuple[object, ...]] = [("in flight",)]
        names += [("texts", model.name) for model in models]
        for route in ROUTES:
            names += [("seconds", route), *(("requests", route, status) for status in STATUSES)]
            names += [("bucket", route, bucket) for bucket in range(len(BOUNDS) + 1)]
        self._columns = {name: column for column, name in enumerate(names)}
        zeros = mmap.mmap(-1, 8 * workers * len(names))  # shared with the processes forked later
        self._counts = np.frombuffer(zeros, np.float64).reshape(workers, len(names))
        self._cells = memoryview(zeros).cast("d")  # the same; faster one at a time
        self._started = time.time()

    def _add(self, amount: float, *name: object) -> None:
        self._cells[self.worker * len(self._columns) + self._columns[name]] += amount

    def begin(self) -> None:
        """A request has arrived."""
        self._add(1, "in flight")

    def end(self, route: str, status: int, seconds: float) -> None:
        """A request has been answered."""
        self._add(-1, "in flight")
        self._add(1, "requests", route, status if status in STATUSES else "other")
        self._add(1, "bucket", route, bisect_left(BOUNDS, seconds))
        self._add(seconds, "seconds", route)

    def count_texts(self, model: str, texts: int) -> None:
        """Texts have been classified."""
        self._add(texts, "texts", model)

    def in_flight(self) -> int:
        """Requests that this worker has not answered yet."""
        return int(self._counts[self.worker, 0])

    def reset_in_flight(self) -> None:
        """Forget the requests of a worker that died before this one replaced it."""
        self._counts[self.worker, 0] = 0

    def collect(self) -> Iterator[metrics_core.Metric]:
        """All metrics, summed over the workers."""
        counter, gauge = metrics_core.CounterMetricFamily, metrics_core.GaugeMetricFamily
        total = dict(zip(self._columns, self._counts.sum(axis=0).tolist(), strict=True))
        labels = ["route", "status"]
        requests = counter("dcnn_requests", "Requests by route and status.", labels=labels)
        times = metrics_core.HistogramMetricFamily(
            "dcnn_request_seconds", "Response time by route.", labels=["route"]
        )
        bounds = [*map(str, BOUNDS), "+Inf"]
        for route in ROUTES:
            for status in STATUSES:
                if count := total["requests", route, status]:
                    requests.add_metric([route, str(status)], count)
            below = list(accumulate(total["bucket", route, n] for n in range(len(bounds))))
            if below[-1]:
                buckets = list(zip(bounds, below, strict=True))
                times.add_metric([route], buckets, total["seconds", route])
        texts = counter("dcnn_texts", "Texts classified by model.", labels=["model"])
        labels = ["model", "kind", "backend"]
        models = gauge("dcnn_model_info", "Models that are served.", labels=labels)
        for info in (model.info() for model in self._models):
            texts.add_metric([info["name"]], total["texts", info["name"]])
            models.add_metric([info["name"], info["kind"], info["backend"]], 1)
        in_flight = total["in flight",]
        yield from (requests, times, texts, models)
        yield gauge("dcnn_in_flight", "Requests that are being answered.", in_flight)
        yield gauge("dcnn_workers", "Worker processes.", len(self._counts))
        yield gauge("dcnn_start_time_seconds", "When the server was started.", self._started)


class HostPolicy:
    """Which host names a server answers to, and which sites' pages may call it.

    A browser sends requests to this machine for any page that it shows. A page of another site must
    not use that, nor a page whose name was made to point here after it was loaded (DNS rebinding).
    ``Origin`` and ``Sec-Fetch-Site`` reveal the first, ``Host`` the second; programs other than
    browsers send neither of the first two. ``allowed`` are names of the server besides its address,
    as behind a proxy; ``own`` are the only other names that requests may use, any name if None.
    """

    def __init__(self, allowed: Iterable[str] = (), own: Iterable[str] | None = None) -> None:
        self._allowed = frozenset(map(_bracketed, allowed))
        self._own = None if own is None else self._allowed.union(map(_bracketed, own))

    def check(self, headers: Headers, *, cross_site: bool) -> None:
        """Refuse a request to another name or, unless ``cross_site``, from another site's page."""
        host = origin = ""
        foreign = False
        for name, value in headers:
            if name == b"host":
                host = value.decode("latin-1").lower()
                if self._own is not None and _host_name(host) not in self._own:
                    raise HTTPException(
                        421,
                        "this server does not answer to that host name; to allow it, start the "
                        "server with --allow-host NAME",
                    )
            elif name == b"origin":
                origin = value.decode("latin-1").lower().rpartition("://")[2]
            elif name == b"sec-fetch-site":
                foreign = value == b"cross-site"
        if origin and origin != host and _host_name(origin) not in self._allowed:
            foreign = True
        if foreign and not cross_site:
            raise HTTPException(
                403,
                "pages of another site may not call this server; if the site is its own, start the "
                "server with --allow-host NAME",
            )


def _bracketed(name: str) -> str:
    """An IPv6 address as it is written in ``Host``."""
    name = name.lower()
    return f"[{name}]" if ":" in name and not name.startswith("[") else name


def _host_name(host: str) -> str:
    """The name in ``NAME``, ``NAME:PORT``, ``[ADDRESS]`` or ``[ADDRESS]:PORT``."""
    end = host.rfind(":", host.rfind("]") + 1)
    return host if end < 0 else host[:end]


@dataclass
class ApiMiddleware:
    """The whole application, as a server runs it."""

    app: ASGIApp
    # FastAPI's handling of a request takes several times as long as the network.
    predict: Callable[[Request], Awaitable[Response]]  # /v1/predict, called without ``app``
    predict_inline: Callable[[bytes], Response | None]  # the same for a body that is small
    pages: Iterable[str]  # paths of the page's files
    metrics: Metrics
    in_flight: int  # requests that may be in progress at once
    hosts: HostPolicy
    key: str  # that requests to the API must carry; none if empty
    log_requests: bool  # whether to log a line per request, without its texts

    def __post_init__(self) -> None:
        # Replaced by a server that knows of requests before they arrive here.
        self.pending: Callable[[], int] = self.metrics.in_flight
        self._routes = {path: path for path in ROUTES} | dict.fromkeys(self.pages, "page")

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer one request."""
        if scope["type"] != "http":  # no websockets here, and nothing to start up or shut down
            await self.app(scope, receive, send)
            return
        start, status = time.perf_counter(), 0

        async def send_with_headers(message: Message) -> None:
            nonlocal status
            if message["type"] == "http.response.start":
                status = message["status"]
                message["headers"] = [*message.get("headers", ()), *SECURITY_HEADERS]
            await send(message)

        method, path = scope["method"], scope["path"]
        self.metrics.begin()
        try:
            self._check(path, scope["headers"], self.pending())
            answer = self.app
            if (method, path) == ("POST", "/v1/predict"):
                answer = await self.predict(Request(scope, receive))
            await answer(scope, receive, send_with_headers)
        except ClientDisconnect:
            status = DISCONNECTED
        except Exception as error:
            response = error_response(error)
            if response.status_code == 500:
                # The traceback without the error's message, which may contain a user's text.
                frames = "".join(traceback.format_tb(error.__traceback__)).rstrip()
                _log.error("%s in answer to %s\n%s", type(error).__name__, path[:100], frames)
            if not status:
                await response(scope, receive, send_with_headers)
            status = response.status_code
        finally:
            self._end(method, path, status, start)

    def predict_now(self, headers: Headers, body: bytes) -> Response | None:
        """The response to ``POST /v1/predict`` if its status is 200, else None.

        For a server that has received the whole request, so that no task has to wait for it. On
        None the server calls ``__call__``, which answers all other requests, errors included.
        """
        start = time.perf_counter()
        try:
            self._check("/v1/predict", headers, self.pending() + 1)
            response = self.predict_inline(body)
        except Exception:  # __call__ meets it again
            return None
        if response is not None:
            self.metrics.begin()
            self._end("POST", "/v1/predict", 200, start)
        return response

    def _end(self, method: str, path: str, status: int, start: float) -> None:
        seconds = time.perf_counter() - start
        route = self._routes.get(path, "other")
        self.metrics.end(route, status or DISCONNECTED, seconds)
        if self.log_requests:
            _log.info("%s %s %d %.1f ms", method, route, status, 1e3 * seconds)

    def _check(self, path: str, headers: Headers, pending: int) -> None:
        if path not in NEVER_BUSY and pending > self.in_flight:
            raise overloaded()
        if len(headers) > HEADERS:
            raise HTTPException(431, f"the request has more than {HEADERS} headers; send fewer")
        is_api = path.startswith("/v1/") or path == "/metrics"
        self.hosts.check(headers, cross_site=not is_api)  # any site may link to the page
        if is_api and self.key:
            keys = [_key_in(name, value) for name, value in headers]
            # The comparison takes the same time however much of the key is right.
            if not any(hmac.compare_digest(key, self.key.encode()) for key in keys):
                raise HTTPException(
                    401,
                    "this server requires a key: send 'Authorization: Bearer KEY' or "
                    "'X-API-Key: KEY'",
                    {"www-authenticate": "Bearer"},
                )


def _key_in(name: bytes, value: bytes) -> bytes:
    if name == b"x-api-key":
        return value
    if name == b"authorization" and value[:7].lower() == b"bearer ":
        return value[7:].strip()
    return b""


def overloaded() -> HTTPException:
    """The error when a queue is full: sent at once, since waiting without a bound helps nobody."""
    return HTTPException(503, "the server is busy; try again in 1 second", {"retry-after": "1"})


def json_response(
    body: bytes, status: int = 200, headers: Mapping[str, str] | None = None
) -> Response:
    """A response that nobody may store."""
    headers = {"cache-control": "no-store", **(headers or {})}
    return Response(body, status, headers, "application/json")


def error_response(error: Exception) -> Response:
    """One sentence: what is wrong and how to fix it."""
    status, message, headers = 500, FAILED, None
    if isinstance(error, UserError):
        status, message = 422, str(error)
    elif isinstance(error, HTTPException):
        status, message, headers = error.status_code, error.detail, error.headers
    return json_response(json_bytes({"error": message}), status, headers)


async def read_body(request: Request, limit: int, seconds: float) -> bytes:
    """The whole body, or an error if it has over ``limit`` bytes or takes over ``seconds``."""
    headers = request.scope["headers"]
    lengths = (value for name, value in headers if name == b"content-length" and value.isdigit())
    declared = [int(value[:19]) for value in lengths]
    parts, size = [], 0
    try:
        async with asyncio.timeout(seconds):
            while max(size, *declared, 0) <= limit:
                message = await request.receive()
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
