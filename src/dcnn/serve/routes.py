"""The endpoints, and what the OpenAPI description says of them."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack
from typing import Annotated, Any

from fastapi import FastAPI, Query, Request, Response
from fastapi.responses import StreamingResponse
from pydantic import BaseModel
from starlette.types import Receive, Scope, Send

from dcnn.data.readers import Row, TableOptions
from dcnn.serve import schemas
from dcnn.serve.answers import json_bytes
from dcnn.serve.bodies import GoneError, check_texts, parsed, read_body
from dcnn.serve.detectors import Wanted, detectors
from dcnn.serve.explanations import check_words, comparison, explanation
from dcnn.serve.limits import Limits
from dcnn.serve.metrics import CONTENT_TYPE, Metrics
from dcnn.serve.page_files import PageFile
from dcnn.serve.prediction import AnswerForm, Predict
from dcnn.serve.refusals import Refusal
from dcnn.serve.registry import Registry, ServedModel
from dcnn.serve.slow_work import SlowWork
from dcnn.serve.uploads import ENCODINGS, chunks, predicted_lines, read_upload

MORE = {
    401: "The key is missing or wrong.",
    404: "There is no such model.",
    408: "The body did not arrive in time.",
    413: "The body is too large.",
    422: "The request cannot be used.",
    503: "The server is busy; `Retry-After` says when to try again.",
}

LARGEST = 100_000  # of a layer, map or row: far above any network's
WORD = "Whose n-grams have more of this word than the corpus has; the best first."
NODE = Query(
    pattern=r"^\d{1,5}:\d{1,5}:\d{1,5}$",
    description="Those that a node of the feature graph joins, as LAYER:MAP:ROW.",
)


def _whole(least: int, about: str) -> Any:
    return Query(ge=least, le=LARGEST, description=about)


ModelName = Annotated[str | None, Query(description=schemas.MODEL)]


def _asks(question: type[BaseModel], example: dict[str, Any]) -> dict[str, Any]:
    """The body of an endpoint that reads it itself."""
    schema = question.model_json_schema(by_alias=True)
    content = {"application/json": {"schema": schema, "example": example}}
    return {"requestBody": {"required": True, "content": content}}


def _answers(*more: int) -> dict[int | str, dict[str, Any]]:
    return {status: {"model": schemas.Error, "description": MORE[status]} for status in more}


ANY_BODY = (401, 404, 408, 413, 422, 503)


class Endpoints:
    """What the endpoints share."""

    def __init__(
        self,
        registry: Registry,
        limits: Limits,
        metrics: Metrics,
        asks_for_key: bool = False,
    ) -> None:
        self.registry = registry
        self.limits = limits
        self.slow = SlowWork(limits.threads, limits.threads + limits.waiting)
        # A thread of their own: an explanation must not wait behind fifty thousand rows.
        self.files = SlowWork(1, limits.uploads)
        self.metrics = metrics
        self.asks_for_key = asks_for_key

    async def predict(self) -> Response:
        """Labels and probabilities of one text or many."""
        raise AssertionError("dcnn.serve.prediction answers before this is asked")

    async def explain(self, request: Request) -> Response:
        """Why texts get their labels: words, n-grams, deletions, and the graph that carries it."""
        question = parsed(schemas.ExplainQuestion, await self._body(request, self.limits.body))
        model, texts = self.registry.get(question.given("model")), question.all_texts()
        check_texts(texts, self.limits.explained, self.limits)
        parts = []
        async with self.slow.place():
            await self.slow.call(check_words, model, texts, self.limits)
            for text in texts:  # one by one, so that those of others come in between
                if await request.is_disconnected():
                    raise GoneError
                parts.append(await self.slow.call(explanation, model, text, question))
        self.metrics.count_texts(model.name, len(texts))
        name = json_bytes(model.name)
        return _json(b'{"model":%b,"explanations":[%b]}' % (name, b",".join(parts)))

    async def compare(self, request: Request) -> Response:
        """What changes between two texts: aligned words, and detectors that speak otherwise."""
        question = parsed(schemas.CompareQuestion, await self._body(request, self.limits.body))
        model = self.registry.get(question.given("model"))
        check_texts(list(question.texts), 2, self.limits)
        async with self.slow.place():
            await self.slow.call(check_words, model, question.texts, self.limits)
            answer = await self.slow.call(comparison, model, question)
        self.metrics.count_texts(model.name, 2)
        return _json(answer)

    async def predict_file(
        self,
        request: Request,
        name: Annotated[str, Query(description="Name of the file; its ending tells the format.")],
        model: ModelName = None,
        text_column: Annotated[
            str | None, Query(description="Column of the texts; guessed if not given.")
        ] = None,
        encoding: Annotated[
            str, Query(description="Encoding of the file.", json_schema_extra={"enum": ENCODINGS})
        ] = "utf-8",
        header: Annotated[
            bool, Query(description="Whether CSV and TSV start with the names of the columns.")
        ] = True,
        top: Annotated[int | None, Query(ge=1, description=schemas.TOP)] = None,
        abstain_below: Annotated[
            float | None,
            Query(ge=0, le=1, allow_inf_nan=False, description=schemas.ABSTAIN_BELOW),
        ] = None,
    ) -> Response:
        """Predictions for a CSV, TSV, JSON Lines or text file: a line of JSON for every row."""
        served = self.registry.get(model)
        form = AnswerForm(top, abstain_below)
        form.check(served.predictor)
        if encoding not in ENCODINGS:
            raise Refusal(422, f"encoding must be one of {', '.join(ENCODINGS)}")
        options = TableOptions(text_column, encoding=encoding, header=header)
        async with AsyncExitStack() as stack:
            # Before the body is read: the places bound how many files are in memory.
            await stack.enter_async_context(self.files.place())
            content = await self._body(request, self.limits.file)
            rows = await self.files.call(read_upload, name, content, options, self.limits)
            return _Stream(self._lines(served, rows, form), stack.pop_all())

    async def _lines(
        self, model: ServedModel, rows: list[Row], form: AnswerForm
    ) -> AsyncIterator[bytes]:
        async with asyncio.timeout(self.limits.stream_seconds):
            for part in chunks(rows):
                yield await self.files.call(predicted_lines, model, part, form)
                self.metrics.count_texts(model.name, len(part))

    async def detectors(
        self,
        model: ModelName = None,
        layer: Annotated[int | None, _whole(1, "Of this layer.")] = None,
        map: Annotated[int | None, _whole(0, "Of this feature map.")] = None,  # noqa: A002
        row: Annotated[int | None, _whole(0, "Of this row.")] = None,
        node: Annotated[str | None, NODE] = None,
        word: Annotated[str | None, Query(max_length=100, description=WORD)] = None,
        limit: Annotated[int, Query(ge=1, le=500, description="At most so many.")] = 50,
    ) -> Response:
        """What the network's detectors look for: the n-grams of a corpus they answer to most."""
        served = self.registry.get(model)
        wanted = Wanted(layer, map, row, node, word, limit)
        return _json(await self.slow.run(detectors, served, wanted))

    async def models(self) -> Response:
        """The models that are served, and the limits."""
        models = [
            {
                "name": model.name,
                "kind": model.kind,
                "classes": list(model.predictor.classes),
                "words": len(model.predictor.artifact.encoder.vocabulary),
                "backend": model.predictor.backend,
                "explains": model.explains,
                "detectors": model.detectors is not None,
                "detectors_note": model.detectors_note,
            }
            for model in self.registry.models
        ]
        limits = {name: getattr(self.limits, name) for name in schemas.ServerLimits.model_fields}
        return _json(json_bytes({"models": models, "limits": limits}))

    async def health(self) -> Response:
        """That the server answers."""
        answer = {"status": "ok", "models": len(self.registry.models), "key": self.asks_for_key}
        return _json(json_bytes(answer))

    async def prometheus(self) -> Response:
        """Counters and times for Prometheus."""
        return Response(self.metrics.text(), media_type=CONTENT_TYPE)

    async def _body(self, request: Request, limit: int) -> bytes:
        return await read_body(request.scope, request.receive, limit, self.limits.body_seconds)


class _Stream(StreamingResponse):
    """Lines of JSON, and a place that is held until the last one is sent or nobody reads on."""

    def __init__(self, lines: AsyncIterator[bytes], place: AsyncExitStack) -> None:
        super().__init__(lines, media_type="application/x-ndjson")
        self._place = place

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        async with self._place:
            await super().__call__(scope, receive, send)


def add_endpoints(app: FastAPI, ends: Endpoints) -> Predict:
    """Add all endpoints of the API; the one that is answered elsewhere is returned."""
    text = {"text": "not a dull moment"}
    app.post(
        "/v1/predict",
        response_model=schemas.Predictions,
        responses=_answers(*ANY_BODY),
        openapi_extra=_asks(schemas.PredictQuestion, text),
    )(ends.predict)
    app.post(
        "/v1/explain",
        response_model=schemas.Explanations,
        responses=_answers(*ANY_BODY),
        openapi_extra=_asks(schemas.ExplainQuestion, text),
    )(ends.explain)
    app.post(
        "/v1/compare",
        response_model=schemas.Comparison,
        responses=_answers(*ANY_BODY),
        openapi_extra=_asks(
            schemas.CompareQuestion, {"texts": ["not a dull moment", "a dull moment"]}
        ),
    )(ends.compare)
    lines = {"description": "A line for every row.", "content": _JSON_LINES}
    app.post(
        "/v1/predict-file",
        response_class=Response,
        responses={200: lines, **_answers(*ANY_BODY)},
        openapi_extra={"requestBody": {"required": True, "content": _ANY_BYTES}},
    )(ends.predict_file)
    app.get(
        "/v1/detectors",
        response_model=schemas.Detectors,
        responses=_answers(401, 404, 422, 503),
    )(ends.detectors)
    app.get("/v1/models", response_model=schemas.Models, responses=_answers(401, 503))(ends.models)
    app.get("/healthz", response_model=schemas.Health)(ends.health)
    app.head("/healthz", include_in_schema=False)(ends.health)  # as some proxies look
    app.get(
        "/metrics",
        response_class=Response,
        responses={
            200: {"content": {"text/plain": {"schema": {"type": "string"}}}},
            **_answers(401),
        },
    )(ends.prometheus)
    return Predict(ends.registry, ends.limits, ends.slow, ends.metrics)


_JSON_LINES = {"application/x-ndjson": {"schema": {"type": "string"}}}
_ANY_BYTES = {"application/octet-stream": {"schema": {"type": "string", "format": "binary"}}}


def add_page(app: FastAPI, files: dict[str, PageFile]) -> None:
    """Add the page's files, each under its own address."""
    for address, file in files.items():
        app.add_route(address, _sender(file), include_in_schema=False)


def _sender(file: PageFile) -> Any:
    headers = {"etag": file.tag, "cache-control": "no-cache"}

    async def send_file(request: Request) -> Response:
        if request.headers.get("if-none-match") == file.tag:
            return Response(status_code=304, headers=headers)
        return Response(file.content, media_type=file.media_type, headers=headers)

    return send_file


def _json(body: bytes) -> Response:
    return Response(body, media_type="application/json", headers={"cache-control": "no-store"})
