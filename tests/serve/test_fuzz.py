"""Requests made up from the API's own description: each is answered, and as it says."""

import schemathesis
from hypothesis import HealthCheck, Phase, settings
from schemathesis.specs.openapi.checks import positive_data_acceptance

from dcnn.predictor import Predictor
from dcnn.serve.app import make_app
from dcnn.serve.detectors import index_detectors
from dcnn.serve.limits import Limits
from dcnn.serve.registry import Registry, ServedModel
from untrained import make_artifact

# A fixture would be too late: the tests are made from the description when they are collected.
_PREDICTOR = Predictor(make_artifact())
_APP = make_app(
    Registry([ServedModel("first", _PREDICTOR, index_detectors(_PREDICTOR, ["the plot is bad"]))]),
    # Small ones, so that what is beyond them fits into a body.
    Limits(texts=5, explained=3, characters=200, rows=5),
)
schema = schemathesis.openapi.from_asgi("/openapi.json", _APP)


@schema.parametrize()
@settings(
    max_examples=100,
    phases=[Phase.explicit, Phase.generate],
    suppress_health_check=list(HealthCheck),
)
def test_every_request_is_answered_as_described(case):
    # A label, word, file or empty text may be as described and yet none that there is.
    case.call_and_validate(excluded_checks=[positive_data_acceptance])
