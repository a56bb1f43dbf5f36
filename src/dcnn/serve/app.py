"""The application: the endpoints, their OpenAPI document, and the files of the page."""

import asyncio
import hashlib
from collections.abc import AsyncIterator, Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import AsyncExitStack, asynccontextmanager
from functools import partial
from http import HTTPStatus
from pathlib import Path
from typing import Annotated, Any, ParamSpec, TypeVar

from fastapi import Depends, FastAPI, Query, Request, Response
from fastapi.exceptions import RequestValidationError
from fastapi.responses import StreamingResponse
from fastapi.security import HTTPBearer
from prometheus_client import CONTENT_TYPE_PLAIN_0_0_4
from pydantic import BaseModel
from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect
from starlette.types import Receive, Scope, Send

from dcnn import __version__
from dcnn.data.readers import Row
from dcnn.errors import UserError
from dcnn.serve import Limits, schemas
from dcnn.serve.explanations import check_words, compare_texts, explain_text, find_detectors
from dcnn.serve.middleware import FAILED, ApiMiddleware, HostPolicy, Metrics, error_response
from dcnn.serve.prediction import (
    check_options,
    chunks,
    predict_rows,
    predict_texts,
    read_upload,
)
from dcnn.serve.protocol import (
    check_texts,
    fault_message,
    json_bytes,
    overloaded,
    parse,
    read_body,
    send_json,
)
from dcnn.serve.registry import Registry, ServedModel

ABOUT = (
    "Labels, probabilities and explanations of texts by Dynamic Convolutional Neural Networks. "
    'All numbers come from the network itself. Errors are `{"error": sentence}`.'
)
INLINE_CHARACTERS = 2000  # all texts together: about a millisecond of work

ERRORS = {
    401: "The key is missing or wrong.",
    404: "There is no such model.",
    408: "The body did not arrive in time.",
    413: "The body is too large.",
    422: "The request is invalid.",
    503: "The server is busy; `Retry-After` says when to try again.",
}
UNROUTED = {
    404: "there is nothing at this address; /docs lists the endpoints",
    405: "this address does not support the method; /docs lists the endpoints",
}

PAGE = Path(__file__).parent / "page"
PAGE_TYPES = {
    ".html": "text/html; charset=utf-8",
    ".css": "text/css; charset=utf-8",
    ".js": "text/javascript; charset=utf-8",
    ".svg": "image/svg+xml",
}
PAGE_ADDRESSES = {"index.html": "/", "docs.html": "/docs"}

P = ParamSpec("P")
T = TypeVar("T")


class BoundedThreads:
    """Threads for work of many milliseconds, so that single predictions need not wait for it.

    Args:
        threads: how many.
        slots: calls that run or wait, together; beyond them a call is refused at once.
    """

    def __init__(self, threads: int, slots: int) -> None:
        self._pool = ThreadPoolExecutor(threads, thread_name_prefix="serve")
        self._free = slots

    @asynccontextmanager
    async def slot(self) -> AsyncIterator[None]:
        """Hold a slot; raises HTTPException 503 if there is none."""
        if self._free <= 0:
            raise overloaded()
        self._free -= 1
        try:
            yield
        finally:
            self._free += 1

    async def call(self, work: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
        """Run it in a thread, in the slot that the caller holds."""
        loop = asyncio.get_running_loop()
        return await loop.run_in_executor(self._pool, partial(work, *args, **kwargs))

    async def run(self, work: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
        """Take a slot and run it."""
        async with self.slot():
            return await self.call(work, *args, **kwargs)


class Endpoints:
    """The endpoints, and what they share."""

    def __init__(
        self, registry: Registry, limits: Limits, metrics: Metrics, requires_key: bool = False
    ) -> None:
        self.registry = registry
        self.limits = limits
        self.metrics = metrics
        self.requires_key = requires_key
        self.slow = BoundedThreads(limits.threads, limits.threads + limits.queue)
        # A thread of their own: an explanation must not wait for fifty thousand rows.
        self.files = BoundedThreads(1, limits.uploads)

    async def predict(self) -> Response:
        """Labels and probabilities of one text or several."""
        raise AssertionError("the middleware calls predict_asgi")

    async def predict_asgi(self, scope: Scope, receive: Receive, send: Send) -> None:
        """``/v1/predict`` as plain ASGI.

        FastAPI's handling of a request takes several times as long as the network. A single text is
        predicted on the event loop, which is faster than passing it to a thread and back.
        """
        limits = self.limits
        body = await read_body(scope, receive, limits.body_bytes, limits.body_seconds)
        request = parse(schemas.PredictRequest, body)
        model, texts = self.registry.get(request.given("model")), request.all_texts()
        check_texts(texts, limits.texts, limits)
        check_options(model.predictor, request)
        if sum(map(len, texts)) + len(texts) <= INLINE_CHARACTERS:
            response = predict_texts(model, texts, request)
        else:
            response = await self.slow.run(predict_texts, model, texts, request)
        self.metrics.count_texts(model.name, len(texts))
        await send_json(send, 200, response)

    async def explain(self, request: Request) -> Response:
        """Why texts get their labels: words, n-grams, deletions, and the feature graph."""
        asked = parse(schemas.ExplainRequest, await self._body(request, self.limits.body_bytes))
        model, texts = self.registry.get(asked.given("model")), asked.all_texts()
        check_texts(texts, self.limits.explain_texts, self.limits)
        parts = []
        async with self.slow.slot():
            await self.slow.call(check_words, model, texts, self.limits)
            for text in texts:  # one by one, so that other requests take turns
                if await request.is_disconnected():
                    raise ClientDisconnect
                parts.append(await self.slow.call(explain_text, model, text, asked))
        self.metrics.count_texts(model.name, len(texts))
        name = json_bytes(model.name)
        return _json(b'{"model":%b,"explanations":[%b]}' % (name, b",".join(parts)))

    async def compare(self, request: Request) -> Response:
        """What changes between two texts: aligned words, and contributions of detectors."""
        asked = parse(schemas.CompareRequest, await self._body(request, self.limits.body_bytes))
        model = self.registry.get(asked.given("model"))
        check_texts(asked.texts, 2, self.limits)
        async with self.slow.slot():
            await self.slow.call(check_words, model, asked.texts, self.limits)
            response = await self.slow.call(compare_texts, model, asked)
        self.metrics.count_texts(model.name, 2)
        return _json(response)

    async def predict_file(
        self, request: Request, query: Annotated[schemas.FileQuery, Query()]
    ) -> Response:
        """Predictions for a CSV, TSV, JSON Lines or text file: one line of JSON per row."""
        model = self.registry.get(query.given("model"))
        check_options(model.predictor, query)
        async with AsyncExitStack() as stack:
            # Before the body is read: the slots bound how many files are in memory.
            await stack.enter_async_context(self.files.slot())
            content = await self._body(request, self.limits.file_bytes)
            rows = await self.files.call(read_upload, content, query, self.limits)
            return _JsonLines(self._lines(model, rows, query), stack.pop_all())

    async def _lines(
        self, model: ServedModel, rows: list[Row], options: schemas.PredictOptions
    ) -> AsyncIterator[bytes]:
        async with asyncio.timeout(self.limits.stream_seconds):
            for part in chunks(rows):
                yield await self.files.call(predict_rows, model, part, options)
                self.metrics.count_texts(model.name, len(part))

    async def detectors(self, query: Annotated[schemas.DetectorsQuery, Query()]) -> Response:
        """What activates the network's feature detectors: n-grams of the server's corpus."""
        model = self.registry.get(query.given("model"))
        return _json(await self.slow.run(find_detectors, model, query))

    async def models(self) -> Response:
        """The models that are served, and the limits."""
        models = [model.info() for model in self.registry.models]
        return _json(json_bytes({"models": models, "limits": self.limits}))

    async def health(self) -> Response:
        """That the server is up."""
        models = len(self.registry.models)
        return _json(json_bytes({"status": "ok", "models": models, "key": self.requires_key}))

    async def prometheus(self) -> Response:
        """Metrics for Prometheus."""
        return Response(self.metrics.text(), media_type=CONTENT_TYPE_PLAIN_0_0_4)

    async def _body(self, request: Request, limit: int) -> bytes:
        return await read_body(request.scope, request.receive, limit, self.limits.body_seconds)


class _JsonLines(StreamingResponse):
    """Lines of JSON, and a slot that is held until the last one is sent or the client is gone."""

    def __init__(self, lines: AsyncIterator[bytes], slot: AsyncExitStack) -> None:
        super().__init__(lines, media_type="application/x-ndjson")
        self._slot = slot

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        async with self._slot:
            await super().__call__(scope, receive, send)


def _json(body: bytes) -> Response:
    return Response(body, media_type="application/json", headers={"cache-control": "no-store"})


def make_app(
    registry: Registry,
    limits: Limits | None = None,
    metrics: Metrics | None = None,
    key: str = "",
    log_requests: bool = False,
    hosts: HostPolicy | None = None,
) -> ApiMiddleware:
    """The application over some models; see ``ApiMiddleware`` for the other arguments."""
    limits, metrics = limits or Limits(), metrics or Metrics(registry.models)
    # FastAPI's own documentation pages load scripts from a CDN; /docs is a page of ours. A redirect
    # would repeat the host name that the request gave.
    app = FastAPI(
        title="dcnn",
        version=__version__,
        description=ABOUT,
        docs_url=None,
        redoc_url=None,
        redirect_slashes=False,
        swagger_ui_oauth2_redirect_url=None,
    )
    endpoints = Endpoints(registry, limits, metrics, bool(key))
    _add_endpoints(app, endpoints)
    pages = _add_page(app)
    for kind in (HTTPException, UserError, RequestValidationError):
        app.add_exception_handler(kind, _error)
    app.add_exception_handler(Exception, _failure)
    return ApiMiddleware(
        app,
        fast={("POST", "/v1/predict"): endpoints.predict_asgi},
        pages=pages,
        metrics=metrics,
        in_flight=limits.in_flight,
        hosts=hosts or HostPolicy(),
        key=key,
        log_requests=log_requests,
    )


def _add_endpoints(app: FastAPI, ends: Endpoints) -> None:
    limits = ends.limits

    def add(
        method: str, path: str, endpoint: Callable[..., Any], *errors: int, **more: Any
    ) -> None:
        described = {e: {"model": schemas.Error, "description": ERRORS[e]} for e in errors}
        if ends.requires_key and 401 in errors:  # described only: the middleware checks the key
            more["dependencies"] = [Depends(HTTPBearer(auto_error=False))]
        more["responses"] = more.get("responses", {}) | described
        app.add_api_route(path, endpoint, methods=[method], **more)

    def json_body(request: type[BaseModel], texts: int, example: dict[str, Any]) -> dict[str, Any]:
        schema = request.model_json_schema(by_alias=True)
        fields = schema["properties"]
        fields["texts"]["maxItems"] = texts
        for text in (fields.get("text"), fields["texts"].get("items")):
            if text is not None:
                text["maxLength"] = limits.characters
        content = {"application/json": {"schema": schema, "example": example}}
        return {"requestBody": {"required": True, "content": content}}

    one, two = {"text": "not a dull moment"}, {"texts": ["not a dull moment", "a dull moment"]}
    body = json_body(schemas.PredictRequest, limits.texts, one)
    kind: Any = schemas.PredictResponse
    add("POST", "/v1/predict", ends.predict, *ERRORS, response_model=kind, openapi_extra=body)
    body = json_body(schemas.ExplainRequest, limits.explain_texts, one)
    kind = schemas.ExplainResponse
    add("POST", "/v1/explain", ends.explain, *ERRORS, response_model=kind, openapi_extra=body)
    body = json_body(schemas.CompareRequest, 2, two)
    kind = schemas.CompareResponse
    add("POST", "/v1/compare", ends.compare, *ERRORS, response_model=kind, openapi_extra=body)
    binary = {"application/octet-stream": {"schema": {"type": "string", "format": "binary"}}}
    add(
        "POST",
        "/v1/predict-file",
        ends.predict_file,
        *ERRORS,
        response_class=Response,
        responses={200: {"content": {"application/x-ndjson": {"schema": {"type": "string"}}}}},
        openapi_extra={"requestBody": {"required": True, "content": binary}},
    )
    kind = schemas.DetectorsResponse
    add("GET", "/v1/detectors", ends.detectors, 401, 404, 422, 503, response_model=kind)
    add("GET", "/v1/models", ends.models, 401, 503, response_model=schemas.ModelsResponse)
    add("GET", "/healthz", ends.health, response_model=schemas.Health)
    add("HEAD", "/healthz", ends.health, include_in_schema=False)  # some proxies use it
    add(
        "GET",
        "/metrics",
        ends.prometheus,
        401,
        response_class=Response,
        responses={200: {"content": {"text/plain": {"schema": {"type": "string"}}}}},
    )


def _add_page(app: FastAPI) -> list[str]:
    """Add the files of the page, held in memory: a request opens no file. Their addresses."""
    addresses = []
    for path in sorted(PAGE.iterdir()):
        if path.suffix in PAGE_TYPES:
            address = PAGE_ADDRESSES.get(path.name, f"/page/{path.name}")
            app.add_route(address, _sender(path), include_in_schema=False)
            addresses.append(address)
    return addresses


def _sender(path: Path) -> Callable[[Request], Any]:
    content = path.read_bytes()
    tag = f'"{hashlib.sha256(content).hexdigest()[:20]}"'
    headers = {"etag": tag, "cache-control": "no-cache"}

    async def send_file(request: Request) -> Response:
        if request.headers.get("if-none-match") == tag:
            return Response(status_code=304, headers=headers)
        return Response(content, media_type=PAGE_TYPES[path.suffix], headers=headers)

    return send_file


async def _error(_: Request, error: Exception) -> Response:
    if isinstance(error, RequestValidationError):
        fault = error.errors()[0]
        # The first part of its location says that it is in the query.
        error = HTTPException(422, fault_message(fault["loc"][1:], fault["msg"]))
    elif isinstance(error, HTTPException) and error.detail == HTTPStatus(error.status_code).phrase:
        message = UNROUTED.get(error.status_code, error.detail)
        error = HTTPException(error.status_code, message, error.headers)
    assert isinstance(error, HTTPException | UserError)  # noqa: S101
    status, body, headers = error_response(error)
    response = _json(body)
    response.status_code = status
    response.headers.update(headers)
    return response


async def _failure(_: Request, __: Exception) -> Response:
    return Response(json_bytes({"error": FAILED}), 500, media_type="application/json")
