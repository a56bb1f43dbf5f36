"""Why the network gave a text its label: everything about one sentence in one object."""

from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from dcnn.artifact import Label
from dcnn.errors import UserError
from dcnn.files import write_atomically
from dcnn.inspection.attribution import NGram, strongest_ngrams, word_attributions
from dcnn.inspection.counterfactuals import Deletion, PoolingChoice, closest_choices, deletions
from dcnn.inspection.feature_graph import FeatureGraph, build_graph
from dcnn.inspection.picture import Picture, make_picture
from dcnn.inspection.render import graph_writer
from dcnn.inspection.trace import Trace, trace_sentence
from dcnn.predictor import Prediction, Predictor, checked_texts
from dcnn.text.vocabulary import UNKNOWN

# The graph grows with the length of a text, and its deletions with the square of it.
MOST_WORDS = 1000
CLOSEST = 10  # pooling choices told in the JSON


@dataclass(frozen=True)
class Explanation:
    """One text, one class.

    Attributes:
        prediction: the labels of the text and their probabilities.
        of_class: number of the class that is explained.
        trace: the forward pass.
        graph: the feature graph.
        attributions: of every word for the class; see ``dcnn.inspection.attribution``.
        ngrams: of the strongest topmost nodes, the most relevant first.
        deletions: the answer without each of the words.
        unknown: positions of the words that the network does not know.
        spelled: what each of the words adds to a text, with the space before it if it has one.
    """

    prediction: Prediction
    of_class: int
    trace: Trace
    graph: FeatureGraph
    attributions: tuple[float, ...]
    ngrams: tuple[NGram, ...]
    deletions: tuple[Deletion, ...]
    unknown: tuple[int, ...]
    spelled: tuple[str, ...]

    @property
    def words(self) -> tuple[str, ...]:
        """The tokens of the text."""
        return self.graph.words

    @property
    def label(self) -> Label:
        """The class that is explained."""
        return self.graph.classes[self.of_class]

    @property
    def logit(self) -> float:
        """Of the class that is explained."""
        return float(self.graph.logits[self.of_class])

    @property
    def biases(self) -> float:
        """What no word brings: the biases of all nodes and of the root. The rest is the words'."""
        return self.logit - sum(self.attributions)

    @property
    def changes(self) -> list[Deletion]:
        """The deletions that change the label."""
        return [deletion for deletion in self.deletions if deletion.changes]

    def closest_choices(self, count: int | None = None) -> list[PoolingChoice]:
        """The pooled values nearest to being dropped, the nearest first."""
        return closest_choices(self.trace, count)

    def picture(self) -> Picture:
        """The part of the graph that carries the decision."""
        return make_picture(self.graph, self.of_class)

    def save(self, path: str | Path) -> None:
        """Write the graph to a file: .json and .graphml whole, .svg, .png and .html as a picture.

        Raises:
            UserError: another ending.
            MissingExtraError: the format needs a package that is not installed.
            StorageError: the disk refused.
        """
        path = Path(path)
        content = graph_writer(path)(self.graph, self.picture())
        with write_atomically(path) as stream:
            stream.write(content)

    def described_words(self) -> list[dict[str, Any]]:
        """Every word as plain values: word, spelled, attribution, known."""
        columns = zip(self.words, self.spelled, self.attributions, strict=True)
        return [
            {
                "word": word,
                "spelled": spelled,
                "attribution": attribution,
                "known": position not in self.unknown,
            }
            for position, (word, spelled, attribution) in enumerate(columns)
        ]

    def to_dict(self) -> dict[str, Any]:
        """Plain values, for JSON; the graph itself is not among them."""
        picture = self.picture()
        return {
            "text": self.prediction.text,
            "label": self.prediction.label,
            **({"labels": list(self.prediction.labels)} if self.graph.multi_label else {}),
            "probabilities": {str(label): p for label, p in self.prediction.ranked},
            "class": self.label,
            "logit": self.logit,
            "biases": self.biases,
            "words": self.described_words(),
            "ngrams": [asdict(ngram) for ngram in self.ngrams],
            "deletions": [asdict(deletion) for deletion in self.deletions],
            "closest_choices": [asdict(choice) for choice in self.closest_choices(CLOSEST)],
            "picture": {
                "contributions": picture.shown,
                "paths": picture.followed,
                "share": picture.share,
            },
        }


def explain(predictor: Predictor, text: str, of_class: Label | None = None) -> Explanation:
    """Explain what the network makes of a text.

    Examples:
        >>> explain(Predictor.load("my-model"), "not a dull moment").save("graph.svg")

    Args:
        predictor: a DCNN.
        text: a text of at least one word.
        of_class: the label to explain; the most probable one if not given.

    Raises:
        UserError: the model is no DCNN, has no such label, or the text has no words or too many.
    """
    checked_texts([text])
    encoder = predictor.artifact.encoder
    words = encoder.tokenizer(text)
    if len(words) > MOST_WORDS:
        raise UserError(
            f"the text has {len(words):,} {encoder.unit}s, too many for a graph that anyone can "
            f"read; give {MOST_WORDS:,} or fewer, for instance a sentence"
        )
    trace = trace_sentence(predictor.artifact, words)
    graph = build_graph(trace)
    (prediction,) = predictor.predict([text])
    number = class_number(predictor, prediction.label if of_class is None else of_class)
    return Explanation(
        prediction=prediction,
        of_class=number,
        trace=trace,
        graph=graph,
        attributions=tuple(word_attributions(graph, number).tolist()),
        ngrams=tuple(strongest_ngrams(graph, number)),
        deletions=tuple(deletions(predictor, words, number)),
        unknown=tuple(i for i, id_ in enumerate(encoder.vocabulary.ids(words)) if id_ == UNKNOWN),
        spelled=tuple(map(encoder.tokenizer.spell, words)),
    )


def explain_each(predictor: Predictor, text: str) -> list[Explanation]:
    """Explain every label that a text is given, the most probable first.

    Where it is given none, the most probable label is explained: why it was not enough.
    """
    (prediction,) = predictor.predict(checked_texts([text]))
    return [explain(predictor, text, one) for one in prediction.labels or (prediction.label,)]


def class_number(predictor: Predictor, label: Label) -> int:
    """The number of a class, named as it is or as its text: ``1`` and ``"1"`` are the same.

    Raises:
        UserError: there is no such class.
    """
    names = [str(known) for known in predictor.classes]
    if str(label) not in names:
        raise UserError(
            f"the model has no class {str(label)!r}; its classes are {', '.join(names)}"
        )
    return names.index(str(label))
