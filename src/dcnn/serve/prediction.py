"""``/v1/predict``: the answer to nearly every request, so it takes the shortest way.

A single text is answered where the request is read: that takes less time than to hand it to a
thread and back. FastAPI's own handling of a request would take several times as long as the
network, so this endpoint is plain ASGI; FastAPI describes it.
"""

from collections.abc import Sequence
from dataclasses import dataclass, fields
from typing import Any

from starlette.types import Receive, Scope, Send

from dcnn.errors import UserError
from dcnn.predictor import Prediction, Predictor
from dcnn.serve.answers import json_bytes, send_json
from dcnn.serve.bodies import check_texts, parsed, read_body
from dcnn.serve.limits import Limits
from dcnn.serve.metrics import Metrics
from dcnn.serve.refusals import Refusal
from dcnn.serve.registry import Registry, ServedModel
from dcnn.serve.schemas import PredictQuestion
from dcnn.serve.slow_work import SlowWork

AT_ONCE = 2000  # characters, all texts together: about a millisecond's work


@dataclass(frozen=True)
class AnswerForm:
    """What an answer tells beyond the usual, as ``dcnn predict --json`` does; None adds nothing.

    Attributes:
        top: how many labels are told as a list, the most probable first.
        abstain_below: a text without a label of this probability gets none.
    """

    top: int | None = None
    abstain_below: float | None = None

    def check(self, predictor: Predictor) -> None:
        """Find before any work what the model cannot answer.

        Raises:
            Refusal: it gives several labels, which are neither ranked nor left out.
        """
        if predictor.multi_label and self.top is not None and self.top > 1:
            raise Refusal(
                422,
                f"top={self.top} is for models that give one label; this one gives every label "
                "from its threshold on; the field probabilities tells those of all",
            )
        if self.abstain_below is not None:
            try:
                predictor.check_abstains(self.abstain_below)
            except UserError as error:
                raise Refusal(422, str(error)) from None

    def predicted(self, predictor: Predictor, texts: Sequence[str]) -> list[dict[str, Any]]:
        """The answers to some texts, as plain values."""
        found = predictor.predict(texts, self.abstain_below or 0.0)
        return [described(prediction) | self._more(prediction) for prediction in found]

    def _more(self, prediction: Prediction) -> dict[str, Any]:
        more: dict[str, Any] = {}
        if self.abstain_below is not None:
            more["abstained"] = prediction.abstained
            if prediction.abstained:
                more["label"] = None
        if self.top is not None:
            ranked = prediction.ranked[: self.top]
            more["top"] = [{"label": label, "probability": p} for label, p in ranked]
        return more


USUAL = AnswerForm()  # nearly every request's: made once, and there is nothing in it to check
FORM_FIELDS = frozenset(field.name for field in fields(AnswerForm))


def described(prediction: Prediction) -> dict[str, Any]:
    """A prediction as plain values; the text is the one who asked's own."""
    return {
        "label": prediction.label,
        "probability": prediction.probability,
        **({} if prediction.over_threshold is None else {"labels": prediction.over_threshold}),
        "probabilities": {str(label): p for label, p in prediction.ranked},
    }


def predictions(model: ServedModel, texts: Sequence[str], form: AnswerForm) -> bytes:
    """The whole answer."""
    found = form.predicted(model.predictor, texts)
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
        form = USUAL
        if not question.model_fields_set.isdisjoint(FORM_FIELDS):
            form = AnswerForm(question.given("top"), question.given("abstain_below"))
            form.check(model.predictor)
        if sum(map(len, texts)) + len(texts) <= AT_ONCE:
            answer = predictions(model, texts, form)
        else:
            answer = await self._slow.run(predictions, model, texts, form)
        self._metrics.count_texts(model.name, len(texts))
        await send_json(send, 200, answer)
