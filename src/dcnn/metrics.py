"""Scores of probabilities: accuracy, F1, thresholds, calibration, risk and coverage.

Thresholds: each label of a multi-label model has its own, the one with the best F1 on dev. A label
that dev rarely shows gets the threshold that is best for all labels together, by micro F1.

Calibration: networks trained for many epochs are overconfident. Dividing all logits by one number,
the temperature, corrects most of that without changing a label (Guo et al., 2017). It maximizes the
likelihood of the dev set and is found by Newton's method, as the slope of the negative
log-likelihood in 1/T is monotonic. A dev set without an error would have a temperature of 0, so the
truth of N examples is smoothed to 1 - 1/(N + 2), as Platt does: the temperature stays finite, a
tiny dev set changes little, and a large one is hardly affected.

Abstention: a text gets no label if its highest probability is below a threshold. The threshold for
a target precision is the lowest whose answers are that precise with 95 % confidence, by the lower
end of Wilson's interval. The precision on dev itself would be optimistic: it is the best of many
noisy figures, and on new texts it is missed every other time.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dcnn.errors import DataError
from dcnn.ops.reference import sigmoid, softmax

Bools = NDArray[np.bool_]
Thresholds = Sequence[float] | NDArray[Any]  # (labels,), or (N, labels)
Doubles = NDArray[np.float64]
Ints = NDArray[np.int64]

MIN_POSITIVES = 5  # examples on dev for a label's own threshold
DEFAULT_THRESHOLD = 0.5
BINS = 15
MIN_TEMPERATURE, MAX_TEMPERATURE = 0.05, 20.0
OUT_OF_SCOPE = -1  # the class number of a text that should get no label
Z_95 = 1.6448536269514722  # 95 % of a normal distribution are below
RESAMPLES = 1000  # of a bootstrap
WRITTEN_CLASSES = 1000  # of a confusion matrix in JSON
BLOCK = 1 << 18  # values at a time, of texts times labels in double precision
SMALLEST_PROBABILITY = 1e-12  # of which a logarithm is taken, so that it is finite
STORED_POINTS = 50  # of a curve of risk and coverage, in a model folder
STORED_COLUMNS = {  # names in a model folder, and fields of ``RiskCoverage``
    "threshold": "thresholds",
    "answered": "answered",
    "correct": "correct",
    "out_of_scope_answered": "outside",
}


@dataclass(frozen=True)
class ClassScore:
    """Precision, recall and F1 of one class; ``support`` is the number of its true examples."""

    label: str
    precision: float
    recall: float
    f1: float
    support: int


@dataclass(frozen=True)
class Evaluation:
    """The scores of single-label predictions.

    ``macro_f1`` is over the classes that are true or predicted at least once. Rows of ``pairs`` are
    a true class, a predicted class and how many examples have both, if there are any.
    """

    accuracy: float
    macro_f1: float
    per_class: tuple[ClassScore, ...]
    pairs: Ints  # (P, 3); a matrix of 20,000 classes would take gigabytes
    calibration_error: float

    @property
    def confusion(self) -> Ints:
        """(classes, classes) numbers of examples; rows are true, columns predicted."""
        matrix = np.zeros((len(self.per_class), len(self.per_class)), np.int64)
        matrix[self.pairs[:, 0], self.pairs[:, 1]] = self.pairs[:, 2]
        return matrix

    def to_dict(self) -> dict[str, Any]:
        """Plain values for JSON: the confusion matrix, or of many classes its ``pairs``."""
        many = len(self.per_class) > WRITTEN_CLASSES
        confusion = {"pairs": self.pairs.tolist()} if many else self.confusion.tolist()
        values = {name: v for name, v in _plain(self, "per_class").items() if name != "pairs"}
        return values | {"confusion": confusion}


@dataclass(frozen=True)
class LabelEvaluation:
    """The scores of multi-label predictions.

    The F1 of a label that never occurs and is never predicted is 0. ``subset_accuracy`` is the
    share of texts with all their labels and no other.
    """

    micro_f1: float
    micro_precision: float
    micro_recall: float
    macro_f1: float
    subset_accuracy: float
    per_label: tuple[ClassScore, ...]
    calibration_error: float

    def to_dict(self) -> dict[str, Any]:
        """Plain values for JSON."""
        return _plain(self, "per_label")


def _plain(scores: object, table: str) -> dict[str, Any]:
    """The fields of ``scores``, with the class scores in its ``table`` by label."""
    values = vars(scores)
    rows = [asdict(score) for score in values[table]]
    return values | {table: {row.pop("label"): row for row in rows}}


def evaluate(
    truth: NDArray[Any], probabilities: NDArray[Any], labels: Sequence[object]
) -> Evaluation:
    """Score ``probabilities`` (N, classes) against class numbers ``truth`` (N,)."""
    predicted = probabilities.argmax(axis=1)
    hits, support, chosen = (
        np.bincount(one, minlength=len(labels))
        for one in (truth[truth == predicted], truth, predicted)
    )
    scores = _class_scores(labels, hits, support, chosen)
    occurring = [score.f1 for score, some in zip(scores, support + chosen > 0, strict=True) if some]
    error = calibration_error(reliability(probabilities.max(axis=1), predicted == truth))
    accuracy = float(hits.sum() / len(truth))
    pairs, counts = np.unique(np.stack([truth, predicted], 1), axis=0, return_counts=True)
    pairs = np.concatenate([pairs, counts[:, None]], axis=1)
    return Evaluation(accuracy, float(np.mean(occurring)), scores, pairs, error)


def evaluate_labels(
    truth: NDArray[Any],
    probabilities: NDArray[Any],
    thresholds: Thresholds,
    labels: Sequence[object],
) -> LabelEvaluation:
    """Score ``probabilities`` (N, labels) against ``truth`` (N, labels) of 0 and 1.

    ``thresholds`` are (labels,), or (N, labels) where several models predict.
    """
    true, predicted = truth > 0, apply_thresholds(probabilities, thresholds)
    counts = [counted.sum(axis=0) for counted in (true & predicted, true, predicted)]
    scores = _class_scores(labels, *counts)
    (micro,) = _class_scores(["all"], *(count.sum(keepdims=True) for count in counts))
    bins = reliability(*confidences(probabilities, truth, multi_label=True))
    return LabelEvaluation(
        micro_f1=micro.f1,
        micro_precision=micro.precision,
        micro_recall=micro.recall,
        macro_f1=float(np.mean([score.f1 for score in scores])),
        subset_accuracy=float((true == predicted).all(axis=1).mean()),
        per_label=scores,
        calibration_error=calibration_error(bins),
    )


def bootstrap_intervals(
    truth: NDArray[Any],
    probabilities: NDArray[Any],
    thresholds: Sequence[float] | NDArray[Any] | None = None,
    *,
    seed: int = 0,
    resamples: int = RESAMPLES,
) -> dict[str, tuple[float, float]]:
    """95 % intervals of the scores, by the percentile bootstrap over texts.

    Of single-label predictions accuracy and macro F1; with ``thresholds``, of multi-label ones
    micro F1, macro F1 and subset accuracy. The arguments are those of ``evaluate`` and
    ``evaluate_labels``.
    """
    # Texts with the same truth and prediction are alike, so only their numbers are drawn.
    generator, classes, n = np.random.default_rng(seed), probabilities.shape[1], len(truth)
    if thresholds is None:
        rows = np.stack([truth, probabilities.argmax(axis=1)], axis=1)
        pairs, counts = np.unique(rows, axis=0, return_counts=True)
        exact = pairs[:, 0] == pairs[:, 1]
        found = []
        for _ in range(resamples):  # one at a time: all of them for all classes may be gigabytes
            draw = generator.multinomial(n, counts / n)
            hits = np.bincount(pairs[exact, 0], draw[exact], classes)
            size = np.bincount(pairs.ravel(), np.repeat(draw, 2), classes)
            f1 = 2 * hits / np.maximum(size, 1)
            found.append((hits.sum() / n, f1.sum() / np.count_nonzero(size)))
        scores = dict(zip(("accuracy", "macro_f1"), zip(*found, strict=True), strict=True))
    else:
        both = np.concatenate([truth > 0, apply_thresholds(probabilities, thresholds)], axis=1)
        rows, counts = np.unique(both, axis=0, return_counts=True)
        true, predicted = rows[:, :classes].astype(np.int64), rows[:, classes:].astype(np.int64)
        draws = generator.multinomial(n, counts / n, resamples)
        exact = (true == predicted).all(axis=1)
        hits, size = draws @ (true & predicted), draws @ (true + predicted)  # (resamples, classes)
        scores = {
            "subset_accuracy": draws @ exact / n,
            "macro_f1": (2 * hits / np.maximum(size, 1)).mean(axis=1),
            "micro_f1": 2 * hits.sum(axis=1) / np.maximum(size.sum(axis=1), 1),
        }
    ends = {name: np.quantile(found, (0.025, 0.975)) for name, found in scores.items()}
    return {name: (float(low), float(high)) for name, (low, high) in ends.items()}


def micro_f1(true: Bools, predicted: Bools) -> float:
    """F1 over all labels of all texts together; 0 where there are none."""
    total = int(true.sum() + predicted.sum())
    return 2 * int((true & predicted).sum()) / total if total else 0.0


def _class_scores(
    labels: Sequence[object], hits: NDArray[Any], support: NDArray[Any], predicted: NDArray[Any]
) -> tuple[ClassScore, ...]:
    """Scores from counts per class; a precision, recall or F1 of nothing is 0."""
    shares = [(hits, predicted), (hits, support), (2 * hits, support + predicted)]
    ratios = [(part / np.maximum(whole, 1)).tolist() for part, whole in shares]
    rows = zip(labels, *ratios, support.tolist(), strict=True)
    return tuple(ClassScore(str(label), *scores) for label, *scores in rows)


@dataclass(frozen=True)
class Abstention:
    """Coverage, and accuracy when answered (none if nothing is), of a model that may abstain."""

    abstain_below: float
    coverage: float
    accuracy: float | None


def abstain(
    truth: NDArray[Any], probabilities: NDArray[Any], below: float, out_of_scope: int = OUT_OF_SCOPE
) -> Abstention:
    """Coverage and accuracy if texts whose highest probability is under ``below`` get no label.

    ``truth`` and ``out_of_scope`` are as for ``risk_coverage``.
    """
    best, hits, inside, answerable = _answers(truth, probabilities, out_of_scope)
    answered = answerable & (best >= below)
    accuracy = float(hits[answered].mean()) if answered.any() else None
    return Abstention(below, int((answered & inside).sum()) / max(1, int(inside.sum())), accuracy)


def _answers(
    truth: NDArray[Any], probabilities: NDArray[Any], out_of_scope: int
) -> tuple[Doubles, Bools, Bools, Bools]:
    """(N,) each: highest probability, whether correct, in scope, and not predicted out of scope."""
    predicted = probabilities.argmax(axis=1)
    # In double precision: in float32 a limit such as 0.9 would be slightly lower.
    best = probabilities.max(axis=1, initial=0).astype(np.float64)
    inside = (truth != OUT_OF_SCOPE) & (truth != out_of_scope)
    return best, inside & (predicted == truth), inside, predicted != out_of_scope


@dataclass(frozen=True)
class RiskCoverage:
    """What each threshold of abstention does on a set of texts; K thresholds, highest first.

    Texts of equal probability are on one side of every threshold. Answers to out-of-scope texts
    are errors; the coverage is that of the others.
    """

    thresholds: Doubles  # (K,) below which probability a text gets no label; between two texts
    answered: Ints  # (K,) texts that get a label
    correct: Ints  # (K,) those of them whose label is correct
    outside: Ints  # (K,) those of them that are out of scope
    examples: int  # number of texts that are in scope
    outside_examples: int = 0  # number of texts that are not

    @property
    def coverage(self) -> Doubles:
        """(K,) the share of texts in scope that get a label."""
        return (self.answered - self.outside) / max(1, self.examples)

    @property
    def precision(self) -> Doubles:
        """(K,) the share of answers that are correct; the risk is 1 minus this."""
        return self.correct / self.answered

    @property
    def precision_bound(self) -> Doubles:
        """(K,) the lower end of Wilson's interval of the precision, at 95 % confidence."""
        n, p, z = self.answered, self.precision, Z_95
        centre, spread = p + z**2 / (2 * n), z * np.sqrt(p * (1 - p) / n + z**2 / (4 * n**2))
        bound: Doubles = np.maximum(0, (centre - spread) / (1 + z**2 / n))  # 0 despite rounding
        return bound

    def choose(self, target: float) -> int | None:
        """The index of the lowest threshold with ``precision_bound`` >= ``target``, or None."""
        reached = np.flatnonzero(self.precision_bound >= target)
        return int(reached[-1]) if len(reached) else None

    def at_coverages(self, shares: Sequence[float]) -> list[int]:
        """The places of the highest thresholds of at least these coverages, without repetition."""
        places = np.searchsorted(self.coverage, shares)
        return sorted({int(place) for place in places if place < len(self.answered)})

    def describe(self, place: int) -> dict[str, Any]:
        """The threshold at a place and what it does, as plain values."""
        return {
            "threshold": float(self.thresholds[place]),
            "coverage": float(self.coverage[place]),
            "precision": float(self.precision[place]),
            "precision_bound": float(self.precision_bound[place]),
            "answered": int(self.answered[place]),
            "out_of_scope_answered": int(self.outside[place]),
        }

    def to_dict(self) -> dict[str, list[Any]]:
        """Plain values for JSON."""
        return {name: getattr(self, own).tolist() for name, own in STORED_COLUMNS.items()}

    def thinned(self, *kept: int) -> "RiskCoverage":
        """At most ``STORED_POINTS`` evenly spaced points, and those that decide, and ``kept``."""
        if not len(self.answered):
            return self
        steps = np.linspace(self.answered[0], self.answered[-1], STORED_POINTS)
        places = np.unique(
            [*np.searchsorted(self.answered, steps), int(self.precision_bound.argmax()), *kept]
        )
        columns = {own: getattr(self, own)[places] for own in STORED_COLUMNS.values()}
        return replace(self, **columns)

    def unreachable(self, target: float, data: str) -> DataError:
        """The error for a precision that no threshold has on ``data``."""
        best = "it answers no text"
        if len(self.answered):
            found = self.describe(int(self.precision_bound.argmax()))
            best = (
                f"the best is {100 * found['precision_bound']:.1f} %, which {found['answered']:,} "
                f"answers with {100 * found['precision']:.1f} % correct ones show with 95 % "
                f"confidence, at a coverage of {100 * found['coverage']:.1f} %"
            )
        return DataError(
            f"a precision of {100 * target:g} % cannot be reached on {data}: {best}; ask for a "
            "lower one, or give more examples"
        )


def risk_coverage(
    truth: NDArray[Any], probabilities: NDArray[Any], out_of_scope: int = OUT_OF_SCOPE
) -> RiskCoverage:
    """Risk and coverage at every threshold.

    Args:
        truth: (N,) class numbers; ``OUT_OF_SCOPE`` where no label would be correct.
        probabilities: (N, classes).
        out_of_scope: a class that means no answer: its texts should get no label, and a text for
            which it is predicted gets none.
    """
    best, hits, inside, answerable = _answers(truth, probabilities, out_of_scope)
    order = np.flatnonzero(answerable)
    order = order[np.argsort(-best[order], kind="stable")]
    ranked = best[order]
    below = np.append(ranked[1:], 0.0)[: len(ranked)]
    cuts = np.flatnonzero(ranked > below)
    return RiskCoverage(
        thresholds=((ranked + below) / 2)[cuts],
        answered=cuts + 1,
        correct=np.cumsum(hits[order], dtype=np.int64)[cuts],
        outside=np.cumsum(~inside[order], dtype=np.int64)[cuts],
        examples=int(inside.sum()),
        outside_examples=int((~inside).sum()),
    )


def abstention_record(
    curve: RiskCoverage, data: str, out_of_scope: object = None, target: float | None = None
) -> dict[str, Any]:
    """What a model folder stores: the curve, and the threshold of ``target`` if it is reached.

    ``data`` names the texts, ``out_of_scope`` is the label of the class that is no answer.
    """
    place = None if target is None else curve.choose(target)
    stored = curve.thinned() if place is None else curve.thinned(place)
    chosen = {} if place is None else {"target_precision": target, **curve.describe(place)}
    counts = {"examples": curve.examples, "out_of_scope_examples": curve.outside_examples}
    about = {"data": data, "out_of_scope": out_of_scope, **counts}
    return {**about, **chosen, "curve": stored.to_dict()}


def stored_curve(record: Mapping[str, Any]) -> RiskCoverage:
    """The curve of an ``abstention_record``."""
    columns: dict[str, Any] = {
        own: np.array(record["curve"][name], np.float64 if own == "thresholds" else np.int64)
        for name, own in STORED_COLUMNS.items()
    }
    return RiskCoverage(
        **columns, examples=record["examples"], outside_examples=record["out_of_scope_examples"]
    )


def apply_thresholds(probabilities: NDArray[Any], thresholds: Thresholds) -> Bools:
    """(N, labels): which labels are predicted."""
    # In double precision: float32 has no number for most thresholds.
    predicted: Bools = probabilities.astype(np.float64) >= np.asarray(thresholds, np.float64)
    return predicted


def choose_thresholds(truth: NDArray[Any], probabilities: NDArray[Any]) -> tuple[float, ...]:
    """A threshold per label; both arrays are (N, labels), ``truth`` of 0 and 1."""
    common = common_threshold(truth, probabilities)
    return tuple(
        _best_threshold(true, scores) if true.sum() >= MIN_POSITIVES else common
        for true, scores in zip(truth.T, probabilities.T, strict=True)
    )


def cross_fitted_thresholds(
    truth: NDArray[Any], probabilities: NDArray[Any], folds: int = 5
) -> NDArray[np.float64]:
    """(N, labels): thresholds for each text that were chosen on the texts of the other folds.

    ``choose_thresholds`` alone would choose them on the very texts that are then scored.
    """
    numbers = np.random.default_rng(0).permutation(len(truth)) % folds
    thresholds = np.full(truth.shape, DEFAULT_THRESHOLD)
    for number in np.unique(numbers):
        others = numbers != number
        thresholds[~others] = choose_thresholds(truth[others], probabilities[others])
    return thresholds


def common_threshold(truth: NDArray[Any], probabilities: NDArray[Any]) -> float:
    """The threshold for all labels that has the best micro F1."""
    if not truth.any():
        return DEFAULT_THRESHOLD
    return _best_threshold(truth.ravel(), probabilities.ravel())


def _best_threshold(truth: NDArray[Any], probabilities: NDArray[Any]) -> float:
    """The threshold between two probabilities (N,) with the best F1; of several, nearest to 0.5."""
    order = np.argsort(-probabilities, kind="stable")
    ranked = probabilities[order].astype(np.float64)
    hits = np.cumsum(truth[order])
    chosen = np.arange(1, len(ranked) + 1)
    f1 = 2 * hits / (chosen + truth.sum())
    below = np.append(ranked[1:], 0.0)
    thresholds = (ranked + below) / 2
    cuts = np.flatnonzero(ranked > below)  # equal probabilities are on one side
    if not len(cuts):
        return DEFAULT_THRESHOLD
    best = cuts[f1[cuts] == f1[cuts].max()]
    return float(thresholds[best[np.abs(thresholds[best] - DEFAULT_THRESHOLD).argmin()]])


@dataclass(frozen=True)
class Bin:
    """Predictions with confidences from ``low`` to ``high``: number, mean confidence, accuracy."""

    low: float
    high: float
    count: int
    confidence: float
    accuracy: float


def reliability(confidence: NDArray[Any], correct: Bools) -> tuple[Bin, ...]:
    """``BINS`` of equal width from 0 to 1, for predictions (N,) and whether each is correct."""
    places = np.minimum((confidence * BINS).astype(np.int64), BINS - 1)
    counts = np.bincount(places, minlength=BINS)
    means = [
        np.bincount(places, weights=values, minlength=BINS) / np.maximum(counts, 1)
        for values in (confidence, correct)
    ]
    return tuple(
        Bin(place / BINS, (place + 1) / BINS, int(count), float(mean), float(accuracy))
        for place, (count, mean, accuracy) in enumerate(zip(counts, *means, strict=True))
    )


def calibration_error(bins: Sequence[Bin]) -> float:
    """Mean distance between confidence and accuracy over the bins, weighted by their size."""
    total = sum(one.count for one in bins)
    return sum(one.count * abs(one.confidence - one.accuracy) for one in bins) / max(total, 1)


def confidences(
    probabilities: NDArray[Any], truth: NDArray[Any], *, multi_label: bool = False
) -> tuple[NDArray[Any], Bools]:
    """The confidence of each prediction and whether it is correct, for ``reliability``.

    A single-label prediction is the most probable label. Where multi-label, every label of every
    text is a prediction that it applies. Both arrays are (N, labels), or ``truth`` class numbers.
    """
    if multi_label:
        return probabilities.ravel(), truth.ravel() > 0
    true = truth if truth.ndim == 1 else truth.argmax(axis=1)
    return probabilities.max(axis=1), probabilities.argmax(axis=1) == true


@dataclass(frozen=True)
class Calibration:
    """A temperature, with calibration error and mean negative log-likelihood on dev around it."""

    temperature: float
    error_before: float
    error_after: float
    loss_before: float
    loss_after: float

    def to_dict(self) -> dict[str, float]:
        """Plain values, for the metadata of a model folder."""
        return {name: round(value, 6) for name, value in asdict(self).items()}


def row_blocks(values: NDArray[Any]) -> Iterator[slice]:
    """Some rows of (N, labels) after the other, so that copies of them are small."""
    rows, labels = values.shape
    step = max(1, BLOCK // labels)
    return (slice(start, start + step) for start in range(0, rows, step))


def target_distributions(
    targets: NDArray[Any], classes: int, label_smoothing: float = 0.0, multi_label: bool = False
) -> NDArray[np.float32]:
    """Class numbers (N,) or soft targets (N, classes) as distributions (N, classes) in float32.

    Hard targets spread ``label_smoothing`` of their mass evenly over all classes; each 0/1 target
    of a multi-label model is moved towards 0.5 by that share.
    """
    if multi_label:
        return np.asarray(targets * (1 - label_smoothing) + label_smoothing / 2, np.float32)
    if targets.ndim == 2:
        return targets.astype(np.float32)
    distributions = np.full((len(targets), classes), label_smoothing / classes, np.float32)
    distributions[np.arange(len(targets)), targets] += 1 - label_smoothing
    return distributions


def calibrate(
    logits: NDArray[Any], targets: NDArray[Any], *, multi_label: bool = False
) -> Calibration:
    """Find the temperature for ``logits`` (N, labels) of a dev set, one example or more.

    ``targets`` are class numbers (N,) or (N, labels) distributions; 0/1 where ``multi_label``.
    """
    temperature = _temperature(logits, targets, multi_label)
    before, after = (_error_and_loss(logits, targets, t, multi_label) for t in (1, temperature))
    return Calibration(temperature, before[0], after[0], before[1], after[1])


def _temperature(logits: NDArray[Any], targets: NDArray[Any], multi_label: bool) -> float:
    """The temperature of the least negative log-likelihood, which is convex in 1/T.

    By Newton's method, and by bisection where that leaves the interval: importing scipy's would
    take a tenth of a small training.
    """
    doubt, labels = 1 / (len(logits) + 2), logits.shape[1]
    classes = 2 if multi_label else labels  # of one softmax; a sigmoid decides between 2
    activation: Callable[[Any], Any] = sigmoid if multi_label else softmax
    expected = 0.0  # the sum of logits times smoothed targets
    for rows in row_blocks(logits):
        truth = target_distributions(targets[rows], labels).astype(np.float64)
        smoothed = truth * (1 - doubt) + (1 - truth) * doubt / (classes - 1)
        expected += float((smoothed * logits[rows]).sum())

    def derivatives(inverse: float) -> tuple[float, float]:
        """The first and the second in 1/T."""
        slope, curvature = -expected, 0.0
        for rows in row_blocks(logits):
            scores = logits[rows].astype(np.float64)
            chances = activation(inverse * scores)
            weighted = chances * scores
            # The variance of the scores: of each label, or of the one that the softmax chooses.
            means = weighted if multi_label else weighted.sum(axis=1)
            slope += float(weighted.sum())
            curvature += float((weighted * scores).sum() - (means**2).sum())
        return slope, curvature

    low, high = 1 / MAX_TEMPERATURE, 1 / MIN_TEMPERATURE
    at_low, at_high = derivatives(low)[0], derivatives(high)[0]
    if at_low == at_high:  # logits that are all equal fit any temperature
        return 1.0
    if at_low >= 0 or at_high <= 0:  # the best one lies beyond
        return MAX_TEMPERATURE if at_low >= 0 else MIN_TEMPERATURE
    inverse = 1.0
    for _ in range(100):
        slope, curvature = derivatives(inverse)
        low, high = (inverse, high) if slope < 0 else (low, inverse)
        step = slope / curvature if curvature > 0 else float("inf")
        if abs(step) <= 1e-12 * inverse:
            break
        inverse = inverse - step if low < inverse - step < high else (low * high) ** 0.5
    return 1 / inverse


def _error_and_loss(
    logits: NDArray[Any], targets: NDArray[Any], temperature: float, multi_label: bool
) -> tuple[float, float]:
    found, loss = [], 0.0
    for rows in row_blocks(logits):
        scores = logits[rows].astype(np.float64) / temperature
        truth = target_distributions(targets[rows], logits.shape[1])
        if multi_label:
            loss += float((np.logaddexp(0, scores) - truth * scores).sum())
        else:
            scores -= scores.max(axis=1, keepdims=True)
            norms = np.log(np.exp(scores).sum(axis=1, keepdims=True))
            loss += float((truth * (norms - scores)).sum())
        probabilities = sigmoid(scores) if multi_label else softmax(scores)
        found.append(confidences(probabilities, truth, multi_label=multi_label))
    confidence, correct = (np.concatenate(parts) for parts in zip(*found, strict=True))
    return calibration_error(reliability(confidence, correct)), loss / len(logits)


def evaluate_logits(
    logits: NDArray[np.float32], targets: NDArray[Any], multi_label: bool = False
) -> tuple[float, float, float | None]:
    """Accuracy, mean loss and, of multi-label targets, micro F1.

    Accuracy of multi-label targets is subset accuracy. All labels have the same threshold here, the
    one with the best micro F1; the final thresholds are chosen at the end of training.
    """
    number = max(len(logits), 1)  # of several processes, one may have no example
    if multi_label:
        scores = logits.astype(np.float64)
        truth, probabilities = targets > 0, sigmoid(logits)
        least = common_threshold(truth, probabilities)
        given = apply_thresholds(probabilities, [least])
        losses = np.logaddexp(0, scores) - truth * scores
        hits = (truth == given).all(axis=1)
        f1 = micro_f1(truth, given)
        return float(hits.sum()) / number, float(losses.sum()) / number, f1
    correct, loss = 0, 0.0
    for rows in row_blocks(logits):
        expected, part = target_distributions(targets[rows], logits.shape[1]), logits[rows]
        correct += int((part.argmax(axis=1) == expected.argmax(axis=1)).sum())
        shifted = part.astype(np.float64) - part.max(axis=1, keepdims=True)
        norms = np.log(np.exp(shifted).sum(axis=1, keepdims=True))
        loss += float((expected * (norms - shifted)).sum())
    return correct / number, loss / number, None
