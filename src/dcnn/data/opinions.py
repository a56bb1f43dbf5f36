"""The built-in corpus: English opinions whose label depends on the order of the words.

Every sentence is generated, none was collected: patterns are filled with words of a lexicon
(``opinions_patterns``, ``opinions_lexicon``) by a seeded generator, so that a model can be trained
and shown without a download. It is a demonstration, not a benchmark of sentiment.

Design. The label of a sentence follows from its structure: what a negator reaches ("nobody would
call the plot dull", but "not only clever but funny"), which clause a connective lets win, whether a
degree word turns what it modifies ("hardly", "anything but", "too clever to be dull"), which side
of a comparison is the reviewed work, and whether an opinion is the outcome or was the expectation.
The words alone say little. Sentences are made in couples, one of each label, from one skeleton and
with the same opening and ending: neither length nor punctuation nor a function word gives the label
away. Where the pattern allows it the two are twins, with the same bag of words. Opinion words occur
with both labels, only somewhat more often with their own, since some sentences are plain.

Held out. Two things are dealt to train, dev and test so that no two of these share any:

- skeletons, which are sentences without opening and ending, their nouns and opinion words blanked;
- pairs of a noun and a word said of it, such as (plot, dull).

So a test sentence is a new skeleton filled with new pairs. Its parts are not new: every option of
every pattern, and every word, is in the training sentences. The dev set is dealt as the test set
is, because a dev set like the training set would prefer the epoch that remembers pairs best.
"""

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import cycle
from random import Random

from dcnn.data.opinions_lexicon import ALL_NOUNS, NOUNS, WORDS, words_about
from dcnn.data.opinions_patterns import CLOSERS, OPENERS, PATTERNS, Form, Skeleton, skeletons

SIZES = {"train": 6000, "dev": 800, "test": 1200}
# Sentences of each construct in a hundred. Plain ones, from which the network learns what the words
# mean, are more frequent in training; dev and test ask more about structure.
_HELD_OUT_PERCENT = {
    "plain": 10,
    "negation": 24,
    "degree": 15,
    "concession": 18,
    "comparison": 18,
    "expectation": 15,
}
PERCENT = {
    "train": {
        "plain": 25,
        "negation": 18,
        "degree": 12,
        "concession": 14,
        "comparison": 19,
        "expectation": 12,
    },
    "dev": _HELD_OUT_PERCENT,
    "test": _HELD_OUT_PERCENT,
}

_HELD_OUT_SKELETONS = {"test": 0.2, "dev": 0.12}
_HELD_OUT_PAIRS = {"test": 0.2, "dev": 0.2}
_OPENER_RATE = 0.15
_CLOSER_RATE = 0.15
_LABELS = {1: "positive", -1: "negative"}

# The words of one split: (noun, kind of slot, polarity) -> the words said of the noun in it.
_Pairs = dict[tuple[str, str, int], tuple[str, ...]]


@dataclass(frozen=True)
class Opinion:
    """A generated sentence.

    Attributes:
        text: the sentence.
        label: ``positive`` or ``negative``, what it says of the reviewed work.
        construct: the phenomenon that decides the label, a key of ``PATTERNS``.
        skeleton: the sentence without opening and ending, nouns and opinion words blanked.
        pairs: every noun with every word said of it.
    """

    text: str
    label: str
    construct: str
    skeleton: str
    pairs: tuple[tuple[str, str], ...]


def generate(seed: int = 0) -> dict[str, list[Opinion]]:
    """Make the corpus: ``train``, ``dev`` and ``test``, the same for a seed on every platform."""
    rng = Random(seed)  # noqa: S311
    pairs = _deal_pairs(rng)
    hands = {construct: _deal_skeletons(rng, construct) for construct in PATTERNS}
    corpus: dict[str, list[Opinion]] = {}
    for split, size in SIZES.items():
        writer = _Writer(rng, pairs[split])
        corpus[split] = [
            opinion
            for construct, percent in PERCENT[split].items()
            for opinion in writer.write(construct, hands[construct][split], size * percent // 100)
        ]
        rng.shuffle(corpus[split])
    return corpus


def _deal_pairs(rng: Random) -> dict[str, _Pairs]:
    """Give every pair of a noun and an opinion word to one split."""
    dealt: dict[str, _Pairs] = {split: {} for split in SIZES}
    for noun in ALL_NOUNS:
        for kind, polarity in WORDS:
            words = list(words_about(noun, kind, polarity))
            rng.shuffle(words)
            size = len(words)
            for split, share in _HELD_OUT_PAIRS.items():
                count = max(1, round(size * share))
                dealt[split][noun, kind, polarity] = tuple(words[:count])
                del words[:count]
            dealt["train"][noun, kind, polarity] = tuple(words)
    return dealt


def _deal_skeletons(rng: Random, construct: str) -> dict[str, list[list[Skeleton]]]:
    """Give every skeleton of a construct to one split, by pattern.

    Whatever can be chosen in a pattern stays in training with two skeletons at least, and with at
    least half of those that it is in.
    """
    dealt: dict[str, list[list[Skeleton]]] = {split: [] for split in SIZES}
    for pattern in PATTERNS[construct]:
        deck = list(skeletons(pattern))
        rng.shuffle(deck)
        kept = Counter(choice for skeleton in deck for choice in skeleton.choices)
        floor = {choice: max(2, count / 2) for choice, count in kept.items()}
        hands: dict[str, list[Skeleton]] = {split: [] for split in SIZES}
        room = {split: max(1, share * len(deck)) for split, share in _HELD_OUT_SKELETONS.items()}
        for skeleton in deck:
            split = next((name for name in room if len(hands[name]) < room[name]), "train")
            if any(kept[choice] <= floor[choice] for choice in skeleton.choices):
                split = "train"
            if split != "train":
                kept.subtract(skeleton.choices)
            hands[split].append(skeleton)
        for split, hand in hands.items():
            if hand:
                dealt[split].append(hand)
    return dealt


class _Writer:
    """Writes the sentences of one split."""

    def __init__(self, rng: Random, pairs: _Pairs) -> None:
        self.rng = rng
        self.pairs = pairs
        self.uses: Counter[tuple[str, int]] = Counter()  # of a word with a label
        self.written: set[str] = set()

    def write(self, construct: str, hands: list[list[Skeleton]], count: int) -> list[Opinion]:
        """``count`` different sentences, half of each label, patterns and skeletons in turn."""
        opinions: list[Opinion] = []
        for skeleton in _in_turn(hands):
            couple = self._couple(construct, skeleton)
            texts = {opinion.text for opinion in couple}
            if len(texts) < 2 or texts & self.written:
                continue
            self.written |= texts
            opinions.extend(couple)
            if len(opinions) >= count:
                break
        return opinions

    def _couple(self, construct: str, skeleton: Skeleton) -> tuple[Opinion, ...]:
        """A sentence of each label; none if the words of this split do not fit together."""
        label = self.rng.choice((1, -1))
        opener = self.rng.choice(OPENERS) if self.rng.random() < _OPENER_RATE else ""
        closer = self.rng.choice(CLOSERS) if self.rng.random() < _CLOSER_RATE else ""
        filling = self._fill(skeleton.form, label)
        other = filling if skeleton.twin else self._fill(skeleton.form, -label)
        if not filling or not other:
            return ()
        members = ((skeleton.form, filling, label), (skeleton.twin or skeleton.form, other, -label))
        for form, words, polarity in members:
            self.uses.update((words[slot.key], polarity) for slot in form.slots if slot.sign)
        return tuple(
            Opinion(
                text=_sentence(form.filled(words), opener, closer),
                label=_LABELS[polarity],
                construct=construct,
                skeleton=form.blanked,
                pairs=tuple(
                    (words[noun], words[slot.key]) for slot in form.slots for noun in slot.subjects
                ),
            )
            for form, words, polarity in members
        )

    def _fill(self, form: Form, label: int) -> dict[str, str]:
        """Words for the slots, by key; nothing if some slot has none left."""
        filling: dict[str, str] = {}
        for slot in form.slots:
            if not slot.sign:
                nouns = [noun for noun in NOUNS[slot.kind] if noun not in filling.values()]
                filling[slot.key] = self.rng.choice(nouns)
        for slot in form.slots:
            if slot.sign:
                allowed = [
                    self.pairs[filling[noun], slot.kind, slot.sign * label]
                    for noun in slot.subjects
                ]
                words = [
                    word
                    for word in allowed[0]
                    if word not in filling.values() and all(word in others for others in allowed)
                ]
                if not words:
                    return {}
                # The word least used with this label so far: every word comes to be seen often
                # enough, and none gives the label away more than the others do.
                self.rng.shuffle(words)
                filling[slot.key] = min(words, key=lambda word: self.uses[word, label])
        return filling


def _in_turn(hands: list[list[Skeleton]]) -> Iterator[Skeleton]:
    """Endlessly one skeleton of each pattern, then the next of each."""
    patterns = [cycle(hand) for hand in hands]
    for pattern in cycle(patterns):
        yield next(pattern)


def _sentence(body: str, opener: str, closer: str) -> str:
    if opener:
        body = f"{opener} {body if body.startswith('I ') else body[0].lower() + body[1:]}"
    return body[0].upper() + body[1:-1] + closer + body[-1]
