"""What may be wrong with labelled texts: duplicates, conflicts, leakage, odd texts, wrong labels.

Duplicates are equal but for case, white space and Unicode form. Near duplicates share at least
``NEAR`` of their character 5-grams (Jaccard), found by MinHash: of a thousand such pairs about one
is missed. Short texts have too few 5-grams to be compared.

Likely label errors are found by confident learning (Northcutt et al., 2021) from probabilities of
models that were not trained on the text. The threshold of a label is its mean probability over the
texts that have it. A text is suspect if another label reaches its threshold and the text's own
label is below half of its own threshold, so that a model that knows little suspects little.
"""

import unicodedata
from collections import Counter, defaultdict
from collections.abc import Hashable, Iterator, Sequence
from dataclasses import dataclass
from functools import cache
from itertools import chain, pairwise
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dcnn.data.columns import shown, shown_names
from dcnn.data.labels import LabelledTexts
from dcnn.text.tokenizer import composed

ERROR, WARNING, INFO = "error", "warning", "info"
LEVELS = {  # of each kind of finding, in the order of a report
    "no label": ERROR,
    "one label": ERROR,
    "conflicting labels": ERROR,
    "leakage": ERROR,
    "unknown label": ERROR,
    "near leakage": WARNING,
    "likely label error": WARNING,
    "duplicate": WARNING,
    "near duplicate": WARNING,
    "empty text": WARNING,
    "rare label": WARNING,
    "imbalance": WARNING,
    "long text": INFO,
    "rare script": INFO,
}

NEAR = 0.8  # of the 5-grams of near duplicates are the same
MIN_CHARACTERS = 15  # letters and digits of a text that is compared
RARE_LABEL = 10  # examples: a label with fewer is rare
IMBALANCE = 20  # times as many examples of the most frequent label as of the rarest
LONG = 8  # times the median number of words
RARE_SCRIPT = 0.05  # of the texts

_SHINGLE = 5
_BANDS, _ROWS = 16, 4  # of the MinHash signature
_BLOCK = 1 << 22  # characters hashed together


@dataclass(frozen=True)
class Finding:
    """Something that may be wrong.

    Attributes:
        kind: one of ``LEVELS``.
        where: file and line; the file alone if it is about the whole data.
        label: of the text.
        text: the text.
        detail: what is wrong, in words.
        score: how sure: similarity, or by how much another label is more probable; or a count.
    """

    kind: str
    where: str
    label: str = ""
    text: str = ""
    detail: str = ""
    score: float | None = None

    @property
    def level(self) -> str:
        """``error``, ``warning`` or ``info``."""
        return LEVELS[self.kind]


def check_texts(train: LabelledTexts, test: LabelledTexts | None = None) -> list[Finding]:
    """All findings that need no model, those of one kind together, as in ``LEVELS``."""
    found = [*_labels(train, test), *_same_texts(train, test), *_odd_texts(train)]
    return sort_findings(found)


def sort_findings(found: Sequence[Finding]) -> list[Finding]:
    """In the order of ``LEVELS``, and of one kind the surest first."""
    kinds = list(LEVELS)
    return sorted(found, key=lambda one: (kinds.index(one.kind), -(one.score or 0)))


def _name(label: Any) -> str:
    """A label, or the labels of a multi-label text."""
    return "|".join(map(str, label)) if isinstance(label, tuple) else str(label)


def _labels(train: LabelledTexts, test: LabelledTexts | None) -> Iterator[Finding]:
    several = train.labels if train.multi_label else [(label,) for label in train.labels]
    counts = Counter(chain.from_iterable(several))
    if len(counts) < 2:
        yield Finding(
            "one label",
            train.source,
            detail=f"all texts have {shown_names(list(map(str, counts)))}",
        )
        return
    for label, count in counts.items():
        if count < RARE_LABEL:
            detail = f"{shown(label)} has {count} of {len(train):,} texts"
            yield Finding("rare label", train.source, str(label), detail=detail, score=count)
    (most, high), (least, low) = counts.most_common(1)[0], counts.most_common()[-1]
    if high >= IMBALANCE * low:
        detail = f"{high / low:.0f} times as many texts of {shown(most)} as of {shown(least)}"
        yield Finding("imbalance", train.source, str(least), detail=detail, score=high / low)
    if test is not None:
        tested = test.labels if test.multi_label else [(label,) for label in test.labels]
        for index, labels in enumerate(tested):
            for label in (one for one in labels if one not in counts):
                yield Finding(
                    *("unknown label", test.where(index), str(label), test.texts[index]),
                    detail=f"{shown(label)} does not occur in {train.source}",
                )


def _same_texts(train: LabelledTexts, test: LabelledTexts | None) -> Iterator[Finding]:
    """Duplicates and near duplicates, within the training set and between it and the test set."""
    sets = [train] if test is None else [train, test]
    texts = list(chain.from_iterable(one.texts for one in sets))
    labels = list(chain.from_iterable(one.labels for one in sets))
    n = len(train)

    def where(index: int) -> str:
        return train.where(index) if index < n else sets[1].where(index - n)

    def finding(kind: str, index: int, detail: str, score: float | None = None) -> Finding:
        return Finding(kind, where(index), _name(labels[index]), texts[index], detail, score)

    groups: dict[str, list[int]] = defaultdict(list)
    for index, text in enumerate(texts):
        if text.strip():
            groups[normalized(text)].append(index)
    for group in groups.values():
        trained = [index for index in group if index < n]
        kinds = {_key(labels[index]) for index in trained}
        for index in trained:
            if len(kinds) > 1:
                other = next(i for i in trained if _key(labels[i]) != _key(labels[index]))
                detail = f"the same text has {shown(_name(labels[other]))} in {where(other)}"
                yield finding("conflicting labels", index, detail)
            elif index != trained[0]:
                yield finding("duplicate", index, f"same as {where(trained[0])}")
        for index in group:
            if index >= n and trained:
                differs = _key(labels[index]) not in kinds
                detail = f"also in {where(trained[0])}" + ", with another label" * differs
                yield finding("leakage", index, detail)
    firsts = [group[0] for group in groups.values()]
    for one, other, similarity in near_duplicates([texts[index] for index in firsts]):
        first, second = sorted((firsts[one], firsts[other]))
        differs = _key(labels[first]) != _key(labels[second])
        kind = "near duplicate" if second < n else "near leakage"
        if first < n:
            detail = f"nearly the same as {where(first)}" + ", with another label" * differs
            yield finding(kind, second, detail, similarity)


def _key(label: Any) -> Hashable:
    return frozenset(label) if isinstance(label, tuple) else label


def _odd_texts(train: LabelledTexts) -> Iterator[Finding]:
    lengths = [len(text.split()) for text in train.texts]
    limit = LONG * max(1.0, float(np.median(lengths)))
    scripts = list(map(script_of, train.texts))
    shares = Counter(script for script in scripts if script)
    for index, (text, length, script) in enumerate(zip(train.texts, lengths, scripts, strict=True)):
        place = train.where(index), _name(train.labels[index]), text
        if not text.strip():
            yield Finding("empty text", *place, detail="nothing but white space")
        if length > limit:
            detail = f"{length:,} words; the median is {np.median(lengths):.0f}"
            yield Finding("long text", *place, detail=detail, score=length)
        if script and shares[script] < RARE_SCRIPT * shares.total():
            detail = f"{script} script, {shares[script]:,} of {shares.total():,} texts"
            yield Finding("rare script", *place, detail=detail)


def normalized(text: str) -> str:
    """``text`` without what makes no difference: case, white space, Unicode form."""
    return " ".join(composed(text, "NFKC").casefold().split())


def script_of(text: str) -> str:
    """The script of most letters, as Unicode names it: ``Latin``, ``Cjk``; empty without any."""
    counts = Counter(_script(character) for character in text[:1000] if character.isalpha())
    return counts.most_common(1)[0][0] if counts else ""


@cache
def _script(character: str) -> str:
    return unicodedata.name(character, "unknown").split()[0].capitalize()


def near_duplicates(texts: Sequence[str]) -> list[tuple[int, int, float]]:
    """Near duplicates: for each text the first similar text before it, and their similarity."""
    # Letters and digits, with spaces between words.
    words = ("".join(c if c.isalnum() else " " for c in normalized(text)) for text in texts)
    letters = [" ".join(some.split()) for some in words]
    places = [index for index, text in enumerate(letters) if len(text) >= MIN_CHARACTERS]
    hashes = [_shingles(letters[index]) for index in places]
    signatures = _signatures(hashes)
    pairs: set[tuple[int, int]] = set()
    for band in range(_BANDS):
        keys = np.ascontiguousarray(signatures[:, band * _ROWS : (band + 1) * _ROWS])
        groups = np.unique(keys, axis=0, return_inverse=True)[1].ravel()
        order = np.argsort(groups, kind="stable").tolist()  # ascending within a group
        first = order[0] if order else 0
        for before, here in pairwise(order):
            if groups[before] == groups[here]:
                pairs |= {(before, here), (first, here)}  # not all pairs: a group may be large
            else:
                first = here
    sets: dict[int, set[int]] = {}
    best: dict[int, tuple[int, float]] = {}
    for one, other in sorted(pairs):
        a, b = (sets.setdefault(i, set(hashes[i].tolist())) for i in (one, other))
        similarity = len(a & b) / len(a | b)
        if similarity >= NEAR and other not in best:
            best[other] = one, similarity
    return [(places[one], places[other], similarity) for other, (one, similarity) in best.items()]


def _shingles(text: str) -> NDArray[np.uint64]:
    """The hashes of the character 5-grams of a text."""
    powers = np.uint64(0x9E3779B97F4A7C15) ** np.arange(_SHINGLE, dtype=np.uint64)
    codes = np.frombuffer(text.encode("utf-32-le", "replace"), np.uint32).astype(np.uint64)
    windows = np.lib.stride_tricks.sliding_window_view(codes, _SHINGLE)
    return np.unique((windows + np.uint64(1)) @ powers)


def _signatures(hashes: Sequence[NDArray[np.uint64]]) -> NDArray[np.uint32]:
    """(texts, bands * rows) the smallest value of each of some hash functions over the 5-grams."""
    generator = np.random.default_rng(0)
    factors = generator.integers(1, 1 << 63, _BANDS * _ROWS, np.uint64) | np.uint64(1)
    signatures = np.zeros((len(hashes), len(factors)), np.uint32)
    start = 0
    while start < len(hashes):
        stop, total = start, 0
        while stop < len(hashes) and total < _BLOCK:
            total, stop = total + len(hashes[stop]), stop + 1
        flat = np.concatenate(hashes[start:stop])
        flat = (flat ^ (flat >> np.uint64(31))) * np.uint64(0xBF58476D1CE4E5B9)
        begins = np.cumsum([0, *(len(one) for one in hashes[start : stop - 1])])
        for column, factor in enumerate(factors):
            values = ((flat * factor) >> np.uint64(32)).astype(np.uint32)
            signatures[start:stop, column] = np.minimum.reduceat(values, begins)
        start = stop
    return signatures


def find_label_errors(examples: LabelledTexts, probabilities: NDArray[Any]) -> list[Finding]:
    """Likely label errors, by confident learning, the surest first.

    ``probabilities`` (N, classes) are of models that did not learn the texts. In multi-label data
    each label of a text is judged on its own.
    """
    hard, p = examples.with_hard_labels(), probabilities.astype(np.float64)
    if examples.multi_label:
        return _wrong_flags(hard, p)
    given = hard.targets
    counts = np.bincount(given, minlength=p.shape[1])
    own = np.bincount(given, p[np.arange(len(p)), given], p.shape[1])
    usual = np.where(counts > 0, own / np.maximum(counts, 1), 2)  # no text reaches 2
    confident = np.where(p >= usual, p, -1)
    suggested = confident.argmax(axis=1)
    rows = np.arange(len(p))
    is_suspect = (confident[rows, suggested] >= 0) & (p[rows, given] < usual[given] / 2)
    margins = p[rows, suggested] - p[rows, given]
    found = []
    for index in np.flatnonzero(is_suspect & (margins > 0)).tolist():
        label, other = hard.labels[index], hard.classes[suggested[index]]
        detail = (
            f"rather {shown(str(other))} ({p[index, suggested[index]]:.2f}) than "
            f"{shown(str(label))} ({p[index, given[index]]:.2f})"
        )
        place = hard.where(index), str(label), hard.texts[index]
        found.append(Finding("likely label error", *place, detail, float(margins[index])))
    return sort_findings(found)


def _wrong_flags(hard: LabelledTexts, p: NDArray[np.float64]) -> list[Finding]:
    found = []
    for number, label in enumerate(hard.classes):
        has, share = hard.targets[:, number] > 0, p[:, number]
        if not has.any() or has.all():
            continue
        usual, usual_without = share[has].mean(), share[~has].mean()
        missing = (share >= usual) & (1 - share < (1 - usual_without) / 2)
        suspect = np.where(has, (share <= usual_without) & (share < usual / 2), missing)
        for index in np.flatnonzero(suspect).tolist():
            verb = "is probably wrong" if has[index] else "is probably missing"
            detail = f"{shown(str(label))} {verb} ({share[index]:.2f})"
            place = hard.where(index), _name(hard.labels[index]), hard.texts[index]
            score = float(1 - share[index] if has[index] else share[index])
            found.append(Finding("likely label error", *place, detail, score))
    return sort_findings(found)


def describe_texts(examples: LabelledTexts) -> dict[str, Any]:
    """Counts of labels and scripts, and quantiles of the number of words."""
    several = examples.labels if examples.multi_label else [(one,) for one in examples.labels]
    lengths = [len(text.split()) for text in examples.texts]
    quantiles = np.quantile(lengths, (0, 0.25, 0.5, 0.75, 0.95, 1)).round().astype(int).tolist()
    scripts = Counter(script_of(text) or "none" for text in examples.texts)
    return {
        "texts": len(examples),
        "labels": dict(Counter(map(str, chain.from_iterable(several))).most_common()),
        "words": dict(
            zip(("min", "25 %", "median", "75 %", "95 %", "max"), quantiles, strict=True)
        ),
        "scripts": dict(scripts.most_common()),
    }
