"""The application: models, limits and metrics in, ASGI out."""

from typing import Any

from fastapi import FastAPI, Request, Response
from fastapi.exceptions import RequestValidationError
from starlette.exceptions import HTTPException

from dcnn import __version__
from dcnn.errors import UserError
from dcnn.serve.answers import json_bytes
from dcnn.serve.bodies import sentence
from dcnn.serve.front import FAILED, Front
from dcnn.serve.hosts import Hosts
from dcnn.serve.limits import Limits
from dcnn.serve.metrics import Metrics
from dcnn.serve.page_files import load_page
from dcnn.serve.refusals import Refusal
from dcnn.serve.registry import Registry
from dcnn.serve.routes import Endpoints, add_endpoints, add_page

ABOUT = (
    "Labels, probabilities and explanations of texts by Dynamic Convolutional Neural Networks. "
    'Every number is the network\'s own. Errors are `{"error": sentence}`.'
)


def make_app(
    registry: Registry,
    limits: Limits | None = None,
    metrics: Metrics | None = None,
    key: str = "",
    log_requests: bool = False,
    hosts: Hosts | None = None,
) -> Front:
    """Put everything together.

    Args:
        registry: the models.
        limits: what a request may ask for.
        metrics: where to count; shared by the workers of a server.
        key: what requests must carry; none if empty.
        log_requests: whether a line is logged for each, without its texts.
        hosts: which names the server answers to, and whose pages; to any name if not given.
    """
    limits = limits or Limits()
    metrics = metrics or Metrics(registry.models)
    # The framework's own pages of documentation load their scripts from a network; /docs is ours.
    app = FastAPI(
        title="dcnn",
        version=__version__,
        description=ABOUT,
        docs_url=None,
        redoc_url=None,
        redirect_slashes=False,  # a redirect would repeat the name that the request gave
        swagger_ui_oauth2_redirect_url=None,
    )
    predict = add_endpoints(app, Endpoints(registry, limits, metrics, bool(key)))
    files = load_page()
    add_page(app, files)
    app.add_exception_handler(Refusal, _refused)
    app.add_exception_handler(UserError, _refused)
    app.add_exception_handler(RequestValidationError, _refused)
    app.add_exception_handler(HTTPException, _refused)
    app.add_exception_handler(Exception, _failed)
    app.openapi = lambda: _described(app, limits, bool(key))  # type: ignore[method-assign]
    return Front(
        app,
        fast={("POST", "/v1/predict"): predict},
        pages=frozenset(files),
        metrics=metrics,
        in_flight=limits.in_flight,
        hosts=hosts or Hosts(),
        key=key,
        log_requests=log_requests,
    )


async def _refused(_: Request, error: Exception) -> Response:
    """An error as its sentence."""
    match error:
        case Refusal():
            status, text, headers = error.status, error.sentence, error.headers
        case RequestValidationError():
            fault = dict(error.errors()[0])
            fault["loc"] = fault["loc"][1:]  # the first part says that it is of the address
            status, text, headers = 422, sentence(fault), {}
        case HTTPException():
            status, text, headers = error.status_code, _plain(error), dict(error.headers or {})
        case _:
            status, text, headers = 422, str(error), {}
    return Response(
        json_bytes({"error": text}),
        status,
        {"cache-control": "no-store", **headers},
        media_type="application/json",
    )


async def _failed(_: Request, __: Exception) -> Response:
    """What nobody foresaw; the front logs where it was."""
    return Response(json_bytes({"error": FAILED}), 500, media_type="application/json")


def _plain(error: HTTPException) -> str:
    if error.status_code == 404:
        return "there is nothing at this address; /docs lists what there is"
    if error.status_code == 405:
        return "this address does not know the method; /docs lists what there is"
    return error.detail


def _described(app: FastAPI, limits: Limits, has_key: bool) -> dict[str, Any]:
    """The OpenAPI description, with the limits of this server."""
    if app.openapi_schema is None:
        described = FastAPI.openapi(app)
        most = {"/v1/predict": limits.texts, "/v1/explain": limits.explained, "/v1/compare": 2}
        for path, texts in most.items():
            body = described["paths"][path]["post"]["requestBody"]
            fields = body["content"]["application/json"]["schema"]["properties"]
            fields["texts"]["maxItems"] = texts
            if "text" in fields:
                fields["text"]["maxLength"] = limits.characters
                fields["texts"]["items"]["maxLength"] = limits.characters
        if has_key:
            scheme = {"type": "http", "scheme": "bearer"}
            described["components"]["securitySchemes"] = {"key": scheme}
            for path, methods in described["paths"].items():
                if path != "/healthz":
                    for method in methods.values():
                        method["security"] = [{"key": []}]
    return app.openapi_schema or {}
