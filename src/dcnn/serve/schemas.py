"""Questions and answers as types: what is checked, and what the OpenAPI description says.

The limits of a server are its own (``dcnn.serve.limits``) and are checked where a question is
answered.
"""

from typing import Any, Self

from pydantic import BaseModel, ConfigDict, Field, model_validator

Label = str | int | float | bool

MODEL = "Name of a model; the first one if not given."
LABELS = "Every label that reaches its threshold; only of models that may give several."
TOP = "How many labels to tell as a list, the most probable first; of models that give one label."
ABSTAIN_BELOW = (
    "Give no label to a text whose best probability is under this; of models that give one label."
)
OF_CLASS = "The label to explain; the predicted one if not given."
NODES = "How many topmost nodes the graph shows: those of the largest contributions."
EDGES = "How many edges into every node the graph shows: those that carry most."


def _without_defaults(schema: dict[str, Any]) -> None:
    """What is left out is not the empty string, though Python needs a value for it."""
    for field in schema["properties"].values():
        if not field.get("default", True):
            del field["default"]


def _either_text_or_texts(schema: dict[str, Any]) -> None:
    _without_defaults(schema)
    schema["oneOf"] = [{"required": ["text"]}, {"required": ["texts"]}]


class Question(BaseModel):
    """What all questions share."""

    model_config = ConfigDict(
        extra="forbid", strict=True, populate_by_name=True, json_schema_extra=_without_defaults
    )

    model: str = Field(default="", description=MODEL)

    def given(self, name: str) -> Any:
        """The value of a field; None if it was left out."""
        return getattr(self, name) if name in self.model_fields_set else None


class TextQuestion(Question):
    """One text or many."""

    model_config = ConfigDict(json_schema_extra=_either_text_or_texts)

    text: str = Field(default="", description="One text.")
    texts: list[str] = Field(default_factory=list, description="Several texts.")

    @model_validator(mode="after")
    def _one_of_both(self) -> Self:
        if len(self.model_fields_set & {"text", "texts"}) != 1:
            raise ValueError("give either text, a string, or texts, a list of strings")
        return self

    def all_texts(self) -> list[str]:
        """The texts, whichever way they were given."""
        return [self.text] if "text" in self.model_fields_set else self.texts


class PredictQuestion(TextQuestion):
    """Which labels?"""

    top: int = Field(default=0, ge=1, description=TOP)
    abstain_below: float = Field(
        default=0.0, ge=0, le=1, allow_inf_nan=False, description=ABSTAIN_BELOW
    )


class ExplainQuestion(TextQuestion):
    """Why these labels?"""

    of_class: str = Field(default="", alias="class", description=OF_CLASS)
    nodes: int = Field(default=10, ge=1, le=60, description=NODES)
    edges: int = Field(default=3, ge=1, le=8, description=EDGES)


class CompareQuestion(Question):
    """What changes between two texts?"""

    texts: tuple[str, str] = Field(description="The two texts.", strict=False)
    of_class: str = Field(
        default="",
        alias="class",
        description="The label to compare; the one predicted for the first text if not given.",
    )
    nodes: int = Field(default=10, ge=1, le=60, description=NODES)
    edges: int = Field(default=3, ge=1, le=8, description=EDGES)


class Answer(BaseModel):
    """What all answers share."""

    model_config = ConfigDict(extra="forbid")


class Error(Answer):
    """Why a request is not answered as asked."""

    error: str = Field(description="One sentence: what is wrong and how to mend it.")


class RankedLabel(Answer):
    """A label and its probability."""

    label: Label
    probability: float


class Prediction(Answer):
    """The answer to one text."""

    label: Label | None = Field(
        description="The most probable label; null if its probability is under `abstain_below`."
    )
    probability: float = Field(description="Of the most probable label, even where it is not told.")
    probabilities: dict[str, float] = Field(description="Of every label, the largest first.")
    labels: list[Label] | None = Field(default=None, description=LABELS)
    abstained: bool | None = Field(
        default=None, description="Whether the text is left without a label, if that was asked for."
    )
    top: list[RankedLabel] | None = Field(
        default=None, description="The most probable labels, if they were asked for."
    )


class Predictions(Answer):
    """The answers to all texts, in their order."""

    model: str
    predictions: list[Prediction]


class Word(Answer):
    """A token of the text, and its attribution for the class."""

    word: str
    spelled: str = Field(description="What it adds to a text: a word has a space before it.")
    attribution: float
    known: bool = Field(description="Whether it is in the network's vocabulary.")


class NGram(Answer):
    """Words, next to each other or apart, that topmost nodes come from."""

    positions: list[int]
    words: list[str]
    attribution: float
    nodes: int


class Deletion(Answer):
    """The network's answer without one word."""

    position: int
    word: str
    label: Label
    probability: float
    changes: bool


class DrawnWord(Answer):
    """A word's box: its middle and width. A gap, where words were left out, has an empty id."""

    id: str
    position: int | None
    x: float
    y: float
    width: float
    text: str
    attribution: float | None


class DrawnNode(Answer):
    """A pooled node: its place, the network's own numbers, and what it saw."""

    id: str
    x: float
    y: float
    radius: float
    layer: int
    map: int
    row: int
    position: int = Field(description="Column of the convolution that it was taken from.")
    value: float = Field(description="After tanh.")
    margin: float | None = Field(description="Above the best value that was dropped in its row.")
    contribution: float = Field(description="Contribution of its drawn edges to the logit.")
    word_contributions: list[float] = Field(
        description="Contribution of every word of the text to the value."
    )


class DrawnEdge(Answer):
    """An edge, or the edges of all rows of a word into one node."""

    source: str
    target: str
    contribution: float = Field(
        description="Contribution of the drawn paths through it to the logit."
    )
    width: float
    start: tuple[float, float]
    end: tuple[float, float]


class Drawing(Answer):
    """The part of the feature graph that carries the decision, with places."""

    width: float
    height: float
    root: tuple[float, float]
    layers: list[tuple[float, str]]
    words: list[DrawnWord]
    nodes: list[DrawnNode]
    edges: list[DrawnEdge]
    topmost: int = Field(description="How many topmost nodes there are.")
    contributions: float = Field(description="What the drawn ones of them add to the logit.")
    paths: float = Field(description="What the drawn paths carry of it.")


class Explanation(Answer):
    """Why one text gets its label."""

    text: str
    label: Label
    probability: float
    labels: list[Label] | None = Field(default=None, description=LABELS)
    probabilities: dict[str, float]
    of_class: Label = Field(alias="class", description="The label that is explained.")
    logit: float = Field(description="Its logit: the attribution of all words, and the biases.")
    biases: float
    words: list[Word]
    ngrams: list[NGram]
    deletions: list[Deletion]
    graph: Drawing


class Explanations(Answer):
    """The explanations of all texts, in their order."""

    model: str
    explanations: list[Explanation]


class Change(Answer):
    """What a topmost detector contributes to the class in either text."""

    layer: int
    map: int
    row: int
    name: str = Field(description="What it looks for in the corpus; empty if that is not known.")
    contributions: tuple[float, float]
    word_contributions: tuple[list[float], list[float]] = Field(
        description="What every word of each text brings to the contribution."
    )


class Comparison(Answer):
    """Two texts, and what changes between them."""

    model: str
    explanations: tuple[Explanation, Explanation]
    difference: float = Field(
        description="The second logit minus the first: the sum of all changes."
    )
    aligned: list[tuple[int | None, int | None]] = Field(
        description="Positions of words that stand for each other; null where there is none."
    )
    changes: list[Change] = Field(description="The largest, by size.")
    others: float = Field(description="What the changes that are not listed add up to.")


class PredictedRow(Answer):
    """One line of the answer to a file."""

    line: int
    text: str
    label: Label
    probability: float
    probabilities: dict[str, float]


class Detection(Answer):
    """An n-gram that a detector answers to."""

    text: str = Field(description="The words, with an ellipsis where some are missing.")
    words: list[str]
    positions: list[int]
    strongest: list[int] = Field(description="Positions of the words that bring most.")
    value: float
    count: int


class Detector(Answer):
    """A row of filters, and the n-grams of the corpus that it answers to most."""

    layer: int
    map: int
    row: int
    name: str
    mean: float = Field(description="Of its values over the corpus.")
    faint: bool = Field(
        description="Whether it has next to no weight beside the others of its layer."
    )
    contributions: dict[str, float] = Field(
        description="What its n-grams carry of each class's logit, in the mean."
    )
    top: list[Detection]


class Detectors(Answer):
    """Detectors of a model."""

    model: str
    detectors: list[Detector]
    total: int = Field(description="How many there are, those beyond `limit` included.")


class Model(Answer):
    """A model that is served."""

    name: str
    kind: str
    classes: list[Label]
    words: int = Field(description="Size of the vocabulary.")
    backend: str
    explains: bool = Field(description="Whether it has a feature graph.")
    detectors: bool = Field(description="Whether its detectors are known.")
    detectors_note: str = Field(description="If not, how to get them.")


class ServerLimits(Answer):
    """What one request may ask for at most."""

    body: int
    file: int
    rows: int
    texts: int
    explained: int
    explained_words: int
    characters: int


class Models(Answer):
    """All models; the first one answers where none is named."""

    models: list[Model]
    limits: ServerLimits


class Health(Answer):
    """That the server answers."""

    status: str
    models: int
    key: bool = Field(description="Whether the API asks for a key.")
