"""The application: the endpoints, their OpenAPI document, and the files of the page."""

import asyncio
import hashlib
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, TypeVar, TypeVarTuple

from fastapi import Depends, FastAPI, Query, Request, Response
from fastapi.exceptions import RequestValidationError
from fastapi.responses import StreamingResponse
from fastapi.security import HTTPBearer
from prometheus_client import CONTENT_TYPE_PLAIN_0_0_4, generate_latest
from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect

from dcnn import __version__
from dcnn.data.columns import shown
from dcnn.data.readers import Row
from dcnn.errors import UserError
from dcnn.serve import Limits, middleware, schemas
from dcnn.serve.middleware import ApiMiddleware, HostPolicy, Metrics, json_response, read_body
from dcnn.serve.models import ServedModel, read_upload
from dcnn.serve.schemas import json_bytes

ABOUT = (
    "Labels, probabilities and explanations of texts by Dynamic Convolutional Neural Networks. "
    'All numbers come from the network itself. Errors are `{"error": sentence}`.'
)
INLINE_BYTES, INLINE_TEXTS = 4096, 64  # of a body, of 64 labels: a millisecond or two of work
CHUNK = 256  # rows of a file predicted together and sent together

ERRORS = {
    401: "The key is missing or wrong.",
    404: "There is no such model.",
    408: "The body did not arrive in time.",
    413: "The body is too large.",
    422: "The request is invalid.",
    503: "The server is busy; `Retry-After` says when to try again.",
}
UNROUTED = {
    "Not Found": "there is nothing at this address; /docs lists the endpoints",
    "Method Not Allowed": "this address does not support the method; /docs lists the endpoints",
}

PAGE = Path(__file__).parent / "page"
PAGE_TYPES = {
    ".html": "text/html; charset=utf-8",
    ".css": "text/css; charset=utf-8",
    ".js": "text/javascript; charset=utf-8",
    ".svg": "image/svg+xml",
}
PAGE_ADDRESSES = {"index.html": "/", "docs.html": "/docs"}

ONE_TEXT = {"text": "not a dull moment"}  # examples of requests
TWO_TEXTS = {"texts": ["not a dull moment", "a dull moment"]}

T = TypeVar("T")
Ts = TypeVarTuple("Ts")
Endpoint = Callable[..., Awaitable[Response]]


class BoundedThreads:
    """Threads for work of many milliseconds, so that single predictions need not wait for it.

    At most ``slots`` calls run or wait, together; beyond them a call is refused at once.
    """

    def __init__(self, threads: int, slots: int) -> None:
        self._pool = ThreadPoolExecutor(threads, thread_name_prefix="serve")
        self._slots = asyncio.Semaphore(slots)

    def slot(self) -> asyncio.Semaphore:
        """The semaphore to enter to hold a slot; raises HTTPException 503 if none is free."""
        if self._slots.locked():
            raise middleware.overloaded()
        return self._slots

    async def call(self, work: Callable[[*Ts], T], *args: *Ts) -> T:
        """Run it in a thread, in the slot that the caller holds."""
        return await asyncio.get_running_loop().run_in_executor(self._pool, work, *args)

    async def run(self, work: Callable[[*Ts], T], *args: *Ts) -> T:
        """Take a slot and run it."""
        async with self.slot():
            return await self.call(work, *args)


@dataclass
class Endpoints:
    """The endpoints, and what they share."""

    served: Sequence[ServedModel]  # the first one is the default
    limits: Limits
    metrics: Metrics
    requires_key: bool

    def __post_init__(self) -> None:
        self.by_name = {model.name: model for model in self.served}
        threads = self.limits.threads
        self.slow = BoundedThreads(threads, threads + self.limits.queue)
        # A thread of their own: an explanation must not wait for fifty thousand rows.
        self.files = BoundedThreads(1, self.limits.uploads)

    async def predict(self, request: Request) -> Response:
        """Labels and probabilities of one text or several."""
        body = await read_body(request, self.limits.body_bytes, self.limits.body_seconds)
        if response := self.predict_inline(body):
            return response
        asked, model = self._parse_predict(body)
        predictions = await self.slow.run(model.predict_texts, asked.texts, asked)
        return self._predicted(asked, model, predictions)

    def predict_inline(self, body: bytes) -> Response | None:
        """The same on the event loop, if the body is small: a thread and back would take longer."""
        if len(body) > min(INLINE_BYTES, self.limits.body_bytes):
            return None
        asked, model = self._parse_predict(body)
        if len(asked.texts) * max(1, len(model.predictor.classes) // 64) > INLINE_TEXTS:
            return None
        return self._predicted(asked, model, model.predict_texts(asked.texts, asked))

    def _parse_predict(self, body: bytes) -> tuple[schemas.PredictRequest, ServedModel]:
        asked, model = self._parse(schemas.PredictRequest, body, self.limits.texts)
        model.check_options(asked)
        return asked, model

    def _predicted(
        self, asked: schemas.PredictRequest, model: ServedModel, predictions: bytes
    ) -> Response:
        self.metrics.count_texts(model.name, len(asked.texts))
        return json_response(predictions)

    async def explain(self, request: Request) -> Response:
        """Why texts get their labels: words, n-grams, deletions, and the feature graph."""
        limits = self.limits
        asked, model = await self._asked(request, schemas.ExplainRequest, limits.explain_texts)
        parts = []
        async with self.slow.slot():
            await self.slow.call(model.check_words, asked.texts, limits)
            for text in asked.texts:  # one by one, so that other requests run in between
                if await request.is_disconnected():
                    raise ClientDisconnect
                parts.append(await self.slow.call(model.explain_text, text, asked))
        self.metrics.count_texts(model.name, len(parts))
        name = json_bytes(model.name)
        return json_response(b'{"model":%b,"explanations":[%b]}' % (name, b",".join(parts)))

    async def compare(self, request: Request) -> Response:
        """What changes between two texts: aligned words, and contributions of detectors."""
        asked, model = await self._asked(request, schemas.CompareRequest, 2)
        async with self.slow.slot():
            await self.slow.call(model.check_words, asked.texts, self.limits)
            response = await self.slow.call(model.compare_texts, asked)
        self.metrics.count_texts(model.name, 2)
        return json_response(response)

    async def file_slot(self) -> AsyncIterator[None]:
        """Bound the files in memory: held from before one is read until its last line is sent."""
        async with self.files.slot():
            yield

    async def predict_file(
        self, request: Request, query: Annotated[schemas.FileQuery, Query()]
    ) -> Response:
        """Predictions for a CSV, TSV, JSON Lines or text file: one line of JSON per row."""
        model = self._model(query.model)
        model.check_options(query)
        content = await read_body(request, self.limits.file_bytes, self.limits.body_seconds)
        rows = await self.files.call(read_upload, content, query, self.limits)
        lines = self._lines(model, rows, query)
        return StreamingResponse(lines, media_type="application/x-ndjson")

    async def _lines(
        self, model: ServedModel, rows: list[Row], options: schemas.PredictOptions
    ) -> AsyncIterator[bytes]:
        async with asyncio.timeout(self.limits.stream_seconds):
            for start in range(0, len(rows), CHUNK):
                part = rows[start : start + CHUNK]
                yield await self.files.call(model.predict_rows, part, options)
                self.metrics.count_texts(model.name, len(part))

    async def detectors(self, query: Annotated[schemas.DetectorsQuery, Query()]) -> Response:
        """What activates the network's feature detectors: n-grams of the server's corpus."""
        model = self._model(query.model)
        return json_response(await self.slow.run(model.find_detectors, query))

    async def model(self, query: Annotated[schemas.ModelQuery, Query()]) -> Response:
        """The card of a model: its data, scores, settings and labels, and the texts it keeps."""
        return json_response(self._model(query.model).card)

    async def models(self) -> Response:
        """The models that are served, and the limits."""
        models = [model.info() for model in self.served]
        return json_response(json_bytes({"models": models, "limits": self.limits}))

    async def health(self) -> Response:
        """That the server is up."""
        health = {"status": "ok", "models": len(self.served), "key": self.requires_key}
        return json_response(json_bytes(health))

    async def prometheus(self) -> Response:
        """Metrics for Prometheus."""
        return Response(generate_latest(self.metrics), media_type=CONTENT_TYPE_PLAIN_0_0_4)

    def _model(self, name: str | None) -> ServedModel:
        if name is None:
            return self.served[0]
        if name not in self.by_name:
            known = ", ".join(self.by_name)
            raise HTTPException(404, f"there is no model {shown(name)}; the models are {known}")
        return self.by_name[name]

    async def _asked(
        self, request: Request, kind: type[schemas.Body], most: int
    ) -> tuple[schemas.Body, ServedModel]:
        """The request in a JSON body of at most ``most`` texts, and the model that it names."""
        body = await read_body(request, self.limits.body_bytes, self.limits.body_seconds)
        return self._parse(kind, body, most)

    def _parse(
        self, kind: type[schemas.Body], body: bytes, most: int
    ) -> tuple[schemas.Body, ServedModel]:
        asked = schemas.parse(kind, body, most, self.limits)
        return asked, self._model(asked.model)


def make_app(
    served: Sequence[ServedModel],
    limits: Limits | None = None,
    metrics: Metrics | None = None,
    key: str = "",
    log_requests: bool = False,
    hosts: HostPolicy | None = None,
) -> ApiMiddleware:
    """The application over some models; see ``ApiMiddleware`` for the other arguments."""
    limits, metrics = limits or Limits(), metrics or Metrics(served)
    # FastAPI's own documentation pages load scripts from a CDN; /docs is a page of ours. A redirect
    # would repeat the host name that the request gave.
    app = FastAPI(
        title="dcnn",
        version=__version__,
        description=ABOUT,
        docs_url=None,
        redoc_url=None,
        redirect_slashes=False,
    )
    endpoints = Endpoints(served, limits, metrics, bool(key))
    _add_endpoints(app, endpoints)
    pages = _add_page(app)
    for kind in (HTTPException, UserError, RequestValidationError, Exception):
        app.add_exception_handler(kind, _error)
    hosts = hosts or HostPolicy()
    predict, inline, most = endpoints.predict, endpoints.predict_inline, limits.in_flight
    return ApiMiddleware(app, predict, inline, pages, metrics, most, hosts, key, log_requests)


def _add_endpoints(app: FastAPI, ends: Endpoints) -> None:
    limits = ends.limits

    def add(method: str, path: str, endpoint: Endpoint, *errors: int, **more: Any) -> None:
        described = {e: {"model": schemas.Error, "description": ERRORS[e]} for e in errors}
        more["responses"] = more.get("responses", {}) | described
        if ends.requires_key and 401 in errors:  # described only: the middleware checks the key
            bearer = Depends(HTTPBearer(auto_error=False))
            more["dependencies"] = [bearer, *more.get("dependencies", ())]
        app.add_api_route(path, endpoint, methods=[method], **more)

    def add_json(endpoint: Endpoint, request: Any, response: Any, texts: int) -> None:
        schema = request.model_json_schema(by_alias=True)
        fields = schema["properties"]
        fields["texts"]["maxItems"] = texts
        for text in (fields.get("text"), fields["texts"].get("items")):
            if text is not None:
                text["maxLength"] = limits.characters
        example = ONE_TEXT if "text" in fields else TWO_TEXTS
        content = {"application/json": {"schema": schema, "example": example}}
        body = {"requestBody": {"required": True, "content": content}}
        path = f"/v1/{endpoint.__name__}"
        add("POST", path, endpoint, *ERRORS, response_model=response, openapi_extra=body)

    add_json(ends.predict, schemas.PredictRequest, schemas.PredictResponse, limits.texts)
    add_json(ends.explain, schemas.ExplainRequest, schemas.ExplainResponse, limits.explain_texts)
    add_json(ends.compare, schemas.CompareRequest, schemas.CompareResponse, 2)
    text = {"schema": {"type": "string"}}
    binary = {"application/octet-stream": {"schema": {"type": "string", "format": "binary"}}}
    add(
        "POST",
        "/v1/predict-file",
        ends.predict_file,
        *ERRORS,
        dependencies=[Depends(ends.file_slot)],
        response_class=Response,
        responses={200: {"content": {"application/x-ndjson": text}}},
        openapi_extra={"requestBody": {"required": True, "content": binary}},
    )
    kind: Any = schemas.DetectorsResponse
    add("GET", "/v1/detectors", ends.detectors, 401, 404, 422, 503, response_model=kind)
    card: Any = schemas.ModelCard
    add("GET", "/v1/model", ends.model, 401, 404, 422, 503, response_model=card)
    add("GET", "/v1/models", ends.models, 401, 503, response_model=schemas.ModelsResponse)
    add("GET", "/healthz", ends.health, response_model=schemas.Health)
    add("HEAD", "/healthz", ends.health, include_in_schema=False)  # some proxies use it
    plain: Any = {200: {"content": {"text/plain": text}}}
    add("GET", "/metrics", ends.prometheus, 401, response_class=Response, responses=plain)


def _add_page(app: FastAPI) -> list[str]:
    """Add the files of the page, held in memory: a request opens no file. Their addresses."""
    addresses = []
    for path in sorted(PAGE.iterdir()):
        if kind := PAGE_TYPES.get(path.suffix):
            addresses.append(PAGE_ADDRESSES.get(path.name, f"/page/{path.name}"))
            app.add_route(addresses[-1], _sender(path.read_bytes(), kind), include_in_schema=False)
    return addresses


def _sender(content: bytes, kind: str) -> Callable[[Request], Awaitable[Response]]:
    tag = f'"{hashlib.sha256(content).hexdigest()[:20]}"'
    headers = {"etag": tag, "cache-control": "no-cache"}

    async def send_file(request: Request) -> Response:
        if request.headers.get("if-none-match") == tag:
            return Response(None, 304, headers)
        return Response(content, 200, headers, kind)

    return send_file


async def _error(_: Request, error: Exception) -> Response:
    if isinstance(error, RequestValidationError):
        fault = error.errors()[0]
        # The first part of its location says that it is in the query.
        error = schemas.fault_error(fault["loc"][1:], fault["msg"])
    elif isinstance(error, HTTPException) and error.detail in UNROUTED:
        error = HTTPException(error.status_code, UNROUTED[error.detail], error.headers)
    return middleware.error_response(error)
