"""Types of requests and responses, from which the OpenAPI document is generated, and their JSON.

Requests are pydantic models, since they are validated. Responses are typed dictionaries around the
library's own dataclasses: the code that builds them is checked by mypy, and pydantic only describes
them.
"""

import json
from collections.abc import Sequence
from typing import Annotated, Any, Literal, NotRequired, Self, TypeVar

from pydantic import BaseModel, ConfigDict, Field, ValidationError, model_validator, with_config
from typing_extensions import TypedDict  # pydantic accepts that of typing from Python 3.12 on

from dcnn.data.labels import Label
from dcnn.errors import UserError
from dcnn.inspection.attribution import COVERAGE, NGram
from dcnn.inspection.detectors import DetectorDescription
from dcnn.inspection.explanation import Comparison, Deletion, DescribedWord, Replacement
from dcnn.inspection.picture import ROOM, Layout
from dcnn.inspection.similar import SimilarText
from dcnn.serve import Limits

LARGEST = 100_000  # layer, map or row: far above any network's

_encode = json.JSONEncoder(allow_nan=False, separators=(",", ":"), default=vars).encode


def _optional(about: str, **rules: Any) -> Any:
    """A field that is None if omitted: its type has no None, since null in a request is an error.

    The value of a factory is not part of the schema as a default.
    """
    return Field(default_factory=lambda: None, description=about, **rules)


class ModelRequest(BaseModel):
    """What all requests share."""

    model_config = ConfigDict(extra="forbid", strict=True, populate_by_name=True)

    model: str = _optional("Name of a model; default: the first one.")


class TextRequest(ModelRequest):
    """One text or several."""

    model_config = ConfigDict(
        json_schema_extra={"oneOf": [{"required": ["text"]}, {"required": ["texts"]}]}
    )

    text: str = _optional("One text.")
    texts: list[str] = _optional("Several texts.")

    @model_validator(mode="after")
    def _one_of_both(self) -> Self:
        if (self.text is None) == (self.texts is None):
            raise ValueError("give either text, a string, or texts, a list of strings")
        if self.texts is None:
            self.texts = [self.text]
        return self


class AbstainRequest(ModelRequest):
    """Whether the stored threshold applies."""

    abstain: bool = Field(
        False,
        description="Give no label below the threshold of abstention that the model stores; "
        "single-label models only.",
    )


class PredictOptions(AbstainRequest):
    """What a prediction contains beyond the default, as in ``dcnn predict --json``."""

    top: int = _optional(
        "Number of labels to list, most probable first; single-label models only.", ge=1
    )
    abstain_below: Annotated[float, Field(ge=0, le=1, allow_inf_nan=False)] = _optional(
        "Give no label to a text whose best probability is below this; single-label models only."
    )
    target_precision: Annotated[float, Field(ge=0, le=1, allow_inf_nan=False)] = _optional(
        "As `abstain`, with the threshold of this precision on the stored curve of the dev set."
    )

    @model_validator(mode="after")
    def _one_threshold(self) -> Self:
        stored = self.abstain or self.target_precision is not None
        if stored and self.abstain_below is not None:
            raise ValueError("abstain_below is a threshold; leave out abstain and target_precision")
        return self


class PredictRequest(PredictOptions, TextRequest):
    """The body of ``/v1/predict``."""


class FileQuery(PredictOptions):
    """The query of ``/v1/predict-file``."""

    model_config = ConfigDict(strict=False)  # a query consists of strings

    name: str = Field(description="Name of the file; its suffix gives the format.")
    text_column: str = _optional("Column of the texts; default: guessed.")
    label_column: str = _optional(
        "Column of the correct labels, which come back as `truth`; default: one with a usual name, "
        "such as `label`, if there is one."
    )
    encoding: Literal["utf-8", "utf-16", "latin-1", "cp1252"] = Field(
        "utf-8", description="Encoding of the file."
    )
    header: bool = Field(True, description="Whether CSV and TSV start with the column names.")


class ModelQuery(ModelRequest):
    """The query of ``/v1/model``."""

    model_config = ConfigDict(strict=False)


class DetectorsQuery(ModelQuery):
    """The query of ``/v1/detectors``; what is omitted does not filter."""

    layer: int = _optional("Only this layer.", ge=1, le=LARGEST)
    map: int = _optional("Only this feature map.", ge=0, le=LARGEST)
    row: int = _optional("Only this row.", ge=0, le=LARGEST)
    node: str = _optional(
        "Only those that a node of the feature graph sums: LAYER:MAP:ROW.",
        pattern=r"^\d{1,5}:\d{1,5}:\d{1,5}$",
    )
    word: str = _optional("Only those activated by this word; best first.", max_length=100)
    limit: int = Field(50, ge=1, le=500, description="Maximum number to return.")


class GraphRequest(AbstainRequest):
    """What is to be explained, and how much of the graph is drawn."""

    of_class: str = _optional("The label to explain; default: the predicted one.", alias="class")
    coverage: Annotated[float, Field(gt=0, le=1)] = Field(
        COVERAGE, description="Share of all absolute contributions that the n-grams drawn have."
    )
    nodes: int = _optional(
        "Draw this many single nodes of the last layer, strongest first, in place of n-grams.",
        ge=1,
        le=60,
    )
    edges: int = Field(3, ge=1, le=8, description="Edges into every node, strongest first.")
    width: int = Field(ROOM, ge=240, le=4000, description="Pixels that the drawing may be wide.")


class ExplainRequest(GraphRequest, TextRequest):
    """The body of ``/v1/explain``."""

    ngram: list[int] = _optional(
        "Draw single nodes of this n-gram only: positions of its words.", max_length=1000
    )
    similar: int = Field(
        0, ge=0, le=20, description="Number of similar texts to list, where the model has an index."
    )


class CompareRequest(GraphRequest):
    """The body of ``/v1/compare``."""

    texts: tuple[str, str] = Field(description="The two texts.", strict=False)


Body = TypeVar("Body", PredictRequest, ExplainRequest, CompareRequest)


def parse(kind: type[Body], body: bytes, most: int, limits: Limits) -> Body:
    """The request in a JSON body, of at most ``most`` texts; an error's message names the field."""
    try:
        request = kind.model_validate_json(body)
    except ValidationError as error:
        fault = error.errors(include_url=False, include_input=False)[0]
        raise fault_error(fault["loc"], fault["msg"]) from None
    count = len(request.texts)
    if count > most:
        raise UserError(f"{count:,} texts are more than {most:,}; send fewer at once")
    for number, text in enumerate(request.texts):
        if len(text) > limits.characters:
            raise too_long("the text" if count == 1 else f"text {number}", text, limits)
    return request


def fault_error(location: Sequence[int | str], message: str) -> UserError:
    """One fault that pydantic found, as ``field: message``."""
    where = ""
    for part in location:
        where += f"[{part}]" if isinstance(part, int) else f".{part}" if where else part
    message = message.removeprefix("Value error, ")
    message = message[:1].lower() + message[1:]
    return UserError(f"{where}: {message}" if where else message)


def too_long(which: str, text: str, limits: Limits) -> UserError:
    """The error for a text that is too long."""
    size, most = len(text), limits.characters
    return UserError(f"{which} has {size:,} characters, more than {most:,}; shorten it")


def json_bytes(value: object) -> bytes:
    """JSON without ``<``, ``>`` and ``&``, so that it is never markup wherever it is pasted."""
    text = _encode(value)  # dataclasses become objects
    # In JSON these characters occur only inside strings, where their escapes mean the same.
    text = text.replace("<", "\\u003c").replace(">", "\\u003e").replace("&", "\\u0026")
    return text.encode("ascii")


def about(description: str) -> Any:
    """The description of a field. pydantic could read it below the field, in half a second."""
    return Field(description=description)


@with_config(ConfigDict(extra="forbid"))
class Response(TypedDict):
    """What all responses share."""


class ModelResponse(Response):
    """A response of a model."""

    model: str


class Error(Response):
    """Why a request failed."""

    error: Annotated[str, about("One sentence: what is wrong and how to fix it.")]


class LabelProbability(TypedDict):
    """A label and its probability."""

    label: Label
    probability: float


class PredictionResponse(TypedDict):
    """The prediction of one text."""

    label: Annotated[Label | None, about("The most probable one; null if the text gets none.")]
    probability: Annotated[
        float, about("That of the most probable label, even if `label` is null.")
    ]
    probabilities: Annotated[dict[str, float], about("That of every label, the largest first.")]
    labels: NotRequired[
        Annotated[Sequence[Label], about("Every label that reaches its threshold.")]
    ]
    abstained: NotRequired[Annotated[bool, about("Whether the text gets no label; see `abstain`.")]]
    top: NotRequired[
        Annotated[list[LabelProbability], about("The most probable labels; only with `top`.")]
    ]


class PredictResponse(ModelResponse):
    """The predictions of all texts, in their order."""

    predictions: list[PredictionResponse]


class Drawing(TypedDict):
    """The part of the feature graph with the largest contributions."""

    layout: Layout
    word_contributions: Annotated[
        dict[str, list[float]], about("Of every word to each drawn node or n-gram, by its id.")
    ]
    top_nodes: Annotated[int, about("Number of nodes in the last layer.")]
    coverage: Annotated[float, about("Share of all absolute contributions that is drawn.")]
    node_contributions: Annotated[
        float, about("Contribution of what is drawn of the last layer to the logit.")
    ]
    path_contributions: Annotated[float, about("Contribution of the drawn paths to the logit.")]


_ExplainedClass = TypedDict("_ExplainedClass", {"class": Label})


class ExplanationResponse(PredictionResponse, _ExplainedClass):
    """Why a text gets its label; `class` is the label that is explained."""

    text: str
    logit: Annotated[float, about("The sum of the words' attributions and of the biases.")]
    biases: float
    char_ngrams: Annotated[bool, about("Whether new words are known by their character n-grams.")]
    words: list[DescribedWord]
    ngrams: Annotated[Sequence[NGram], about("Their attributions add up to those of the words.")]
    deletions: Sequence[Deletion]
    replacements: Sequence[Replacement]
    similar: Annotated[list[SimilarText], about("Of the index; as many as `similar` asks for.")]
    graph: Drawing


class ExplainResponse(ModelResponse):
    """The explanations of all texts, in their order."""

    explanations: list[ExplanationResponse]


class CompareResponse(ExplainResponse):
    """The explanations of two texts, and what changes between them."""

    comparison: Comparison


class DetectorsResponse(ModelResponse):
    """Detectors of a model."""

    detectors: list[DetectorDescription]
    total: Annotated[int, about("Number of detectors that match, those beyond `limit` included.")]


class ThresholdInfo(TypedDict):
    """The threshold of abstention that a model stores, and what it does on `data`."""

    threshold: Annotated[float, about("Probability below which a text gets no label.")]
    target_precision: float
    precision: Annotated[float, about("Share of the given labels that were correct.")]
    precision_bound: Annotated[float, about("Its lower bound at 95 % confidence, on these texts.")]
    coverage: Annotated[float, about("Share of the texts that got a label.")]
    data: str
    out_of_scope: Annotated[Label | None, about("The class that is no answer, if there is one.")]


class ModelInfo(TypedDict):
    """A model that is served."""

    name: str
    kind: str
    classes: Sequence[Label]
    vocabulary_size: int
    backend: str
    explainable: Annotated[bool, about("Whether it has a feature graph.")]
    detectors: Annotated[bool, about("Whether n-grams of a corpus are known for its detectors.")]
    detectors_note: Annotated[str, about("If not, how to get them.")]
    abstention: Annotated[
        ThresholdInfo | None, about("What `abstain` uses; null if none is stored.")
    ]
    index: Annotated[int, about("Texts among which `similar` searches; 0 without an index.")]


class Example(TypedDict):
    """A text of the data that the model folder keeps."""

    text: str
    label: str


class LabelInfo(TypedDict):
    """A label of a model."""

    label: Label
    count: Annotated[int | None, about("Training texts that have it, if that is known.")]
    threshold: Annotated[float | None, about("Probability from which it is given, if multi-label.")]


class ModelCard(ModelResponse):
    """What is known about a model."""

    card: Annotated[str, about("The model card, in Markdown.")]
    metadata: Annotated[dict[str, Any], about("Data, scores and time of the training.")]
    settings: Annotated[dict[str, Any], about("All settings by name, such as `model.dim`.")]
    labels: list[LabelInfo]
    examples: Annotated[list[Example], about("Texts of the data that the model folder keeps.")]


class ModelsResponse(Response):
    """All models; the first one is the default."""

    models: list[ModelInfo]
    limits: Limits


class Health(Response):
    """That the server is up."""

    status: str
    models: int
    key: Annotated[bool, about("Whether the API requires a key.")]
