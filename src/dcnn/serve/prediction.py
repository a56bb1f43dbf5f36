"""``/v1/predict``: the answer to nearly every request, so it takes the shortest way.

A single text is answered where the request is read: that takes less time than to hand it to a
thread and back. FastAPI's own handling of a request would take several times as long as the
network, so this endpoint is plain ASGI; FastAPI describes it.
"""

from collections.abc import Sequence
from typing import Any

from starlette.types import Receive, Scope, Send

from dcnn.predictor import Prediction
from dcnn.serve.answers import json_bytes, send_json
from dcnn.serve.bodies import check_texts, parsed, read_body
from dcnn.serve.limits import Limits
from dcnn.serve.metrics import Metrics
from dcnn.serve.registry import Registry, ServedModel
from dcnn.serve.schemas import PredictQuestion
from dcnn.serve.slow_work import SlowWork

AT_ONCE = 2000  # characters, all texts together: about a millisecond's work


def described(prediction: Prediction) -> dict[str, Any]:
    """A prediction as plain values; the text is the one who asked's own."""
    return {
        "label": prediction.label,
        "probability": prediction.probability,
        **({} if prediction.over_threshold is None else {"labels": prediction.over_threshold}),
        "probabilities": {str(label): p for label, p in prediction.ranked},
    }


def predictions(model: ServedModel, texts: Sequence[str]) -> bytes:
    """The whole answer."""
    found = [described(prediction) for prediction in model.predictor.predict(texts)]
    return json_bytes({"model": model.name, "predictions": found})


class Predict:
    """The endpoint."""

    def __init__(
        self, registry: Registry, limits: Limits, slow: SlowWork, metrics: Metrics
    ) -> None:
        self._registry = registry
        self._limits = limits
        self._slow = slow
        self._metrics = metrics

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer one request."""
        limits = self._limits
        body = await read_body(scope, receive, limits.body, limits.body_seconds)
        question = parsed(PredictQuestion, body)
        model = self._registry.get(question.given("model"))
        texts = question.all_texts()
        check_texts(texts, limits.texts, limits)
        if sum(map(len, texts)) + len(texts) <= AT_ONCE:
            answer = predictions(model, texts)
        else:
            answer = await self._slow.run(predictions, model, texts)
        self._metrics.count_texts(model.name, len(texts))
        await send_json(send, 200, answer)
