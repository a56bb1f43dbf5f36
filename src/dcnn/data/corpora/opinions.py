"""The built-in corpus: English opinions whose label depends on the order of the words.

Every sentence is generated, none was collected: patterns are filled with words (``opinions.toml``)
by a seeded generator, so that a model can be trained and shown without a download. It is a
demonstration, not a benchmark of sentiment.

Design. The label of a sentence follows from its structure: what a negator reaches ("nobody would
call the plot dull", but "not only clever but funny"), which clause a connective lets win, whether a
degree word turns what it modifies ("hardly", "anything but", "too clever to be dull"), which side
of a comparison is the reviewed work, and whether an opinion is the outcome or was the expectation.
The words alone say little. Sentences come in couples, one per label, from one skeleton and with the
same opening and ending: neither length nor punctuation nor a function word gives the label away.
Where the pattern allows it the two are twins, with the same bag of words. Opinion words occur with
both labels, only somewhat more often with their own, since some sentences are plain.

Split. Train, dev and test share neither

- skeletons, which are sentences without opening and ending, their nouns and opinion words blanked,
- nor pairs of a noun and a word said of it, such as (plot, dull).

So a test sentence is a new skeleton filled with new pairs. Its parts are not new: every option of
every pattern, and every word, is in the training sentences. The dev set is made like the test set,
because a dev set like the training set would prefer the epoch that remembers pairs best.

Patterns. ``(a|b|)`` is a choice, possibly of nothing; every combination of choices is one skeleton.
``{...}`` is a slot. Slots for what is reviewed: ``n`` an aspect or the work, ``m`` an aspect that
takes no article, ``w`` the work, ``r`` a rival of the work. Slots for what is said: ``a``
adjective, ``v`` verdict, ``d`` verb in the past, ``i`` verb in the base form, ``c`` comparative. A
digit distinguishes slots of a kind, and ties ``{+a1}`` to ``{n1}``.

The sign of an opinion slot is the whole semantics: a word in ``+`` has the sentence's polarity, a
word in ``-`` the opposite one. "The {n} is not {-a}" says that the label is what the word is not.
Sentences come as twins where a pattern allows it:

- a pattern with a rival is its own twin, the work and the rival exchanged;
- a pattern with words of both signs, numbered 1 and 2, is its own twin with 1 and 2 exchanged;
- otherwise the twin may be written out after ``||``, with its choices in the same order.
"""

import re
import tomllib
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache, cached_property
from itertools import cycle, product
from pathlib import Path
from random import Random

_POLARITIES = {"positive": 1, "negative": -1}
_LABELS = {polarity: label for label, polarity in _POLARITIES.items()}

_Words = dict[tuple[str, int], tuple[str, ...]]  # by kind of slot and polarity


@dataclass(frozen=True)
class Lexicon:
    """The content of ``opinions.toml``.

    Attributes:
        works: what is reviewed.
        rivals: what it is compared with.
        nouns: what fills a slot for a noun, by the kind of the slot.
        all_nouns: each once.
        telling: nouns that tell something, of which more words can be said.
        words: what fills a slot for an opinion.
        telling_words: what more can be said of ``telling``.
        patterns: by the construct that decides the label.
        openers: what a sentence may start with.
        closers: what it may end with.
    """

    works: tuple[str, ...]
    rivals: tuple[str, ...]
    nouns: dict[str, tuple[str, ...]]
    all_nouns: tuple[str, ...]
    telling: frozenset[str]
    words: _Words
    telling_words: _Words
    patterns: dict[str, tuple[str, ...]]
    openers: tuple[str, ...]
    closers: tuple[str, ...]

    def words_about(self, noun: str, kind: str, polarity: int) -> tuple[str, ...]:
        """The words of a kind and polarity (1 or -1) that go with ``noun``."""
        more = self.telling_words.get((kind, polarity), ()) if noun in self.telling else ()
        return (*self.words[kind, polarity], *more)


@cache
def lexicon() -> Lexicon:
    """The words and patterns of the corpus."""
    content = tomllib.loads(Path(__file__).with_name("opinions.toml").read_text(encoding="utf-8"))
    nouns = {name: tuple(values) for name, values in content["nouns"].items()}
    telling = (*nouns["telling_mass"], *nouns["telling"])
    aspects = (*telling, *nouns["craft_mass"], *nouns["craft"])
    works, rivals = nouns["works"], nouns["rivals"]

    def words(name: str) -> _Words:
        return {
            (kind, _POLARITIES[label]): tuple(values)
            for kind, by_label in content[name].items()
            for label, values in by_label.items()
        }

    return Lexicon(
        works=works,
        rivals=rivals,
        nouns={
            "n": (*aspects, *nouns["works_beside_aspects"]),
            "m": (*nouns["telling_mass"], *nouns["craft_mass"]),
            "w": works,
            "r": rivals,
        },
        all_nouns=(*aspects, *works, *rivals),
        telling=frozenset((*telling, *works, *rivals)),
        words=words("words"),
        telling_words=words("telling_words"),
        patterns={name: tuple(values) for name, values in content["patterns"].items()},
        openers=tuple(content["frame"]["openers"]),
        closers=tuple(content["frame"]["closers"]),
    )


_CHOICE = re.compile(r"\(([^()]*)\)")
_SLOT = re.compile(r"\{(?P<sign>[+-]?)(?P<kind>[a-z])(?P<number>\d?)\}")
_BLANKS = {"a": "adjective", "v": "verdict", "d": "verb", "i": "verb", "c": "comparative"}
_OTHER = {"w": "r", "r": "w", "+": "-", "-": "+", "1": "2", "2": "1"}


@dataclass(frozen=True)
class Slot:
    """A gap in a form.

    Attributes:
        sign: 0 for a noun; 1 for a word of the sentence's polarity, -1 for one of the opposite.
        kind: the letter that says what fits.
        key: kind and number, the slot's name within its form.
        subjects: keys of the nouns that an opinion is about; empty for a noun.
    """

    sign: int
    kind: str
    key: str
    subjects: tuple[str, ...]


@dataclass(frozen=True)
class Form:
    """A skeleton: a sentence with its choices made and its slots open."""

    text: str

    @cached_property
    def slots(self) -> tuple[Slot, ...]:
        """The slots from left to right."""
        found = [match.groupdict() for match in _SLOT.finditer(self.text)]
        nouns = [slot["kind"] + slot["number"] for slot in found if not slot["sign"]]

        def subjects(number: str) -> tuple[str, ...]:
            tied = tuple(noun for noun in nouns if number and noun.endswith(number))
            aspects = tuple(noun for noun in nouns if noun in ("n", "m"))
            return tied or aspects or tuple(noun for noun in nouns if noun in ("w", "r"))

        return tuple(
            Slot(
                sign={"+": 1, "-": -1, "": 0}[slot["sign"]],
                kind=slot["kind"],
                key=slot["kind"] + slot["number"],
                subjects=subjects(slot["number"]) if slot["sign"] else (),
            )
            for slot in found
        )

    @property
    def blanked(self) -> str:
        """The form for people: what fits is named, the signs are left out."""
        return _SLOT.sub(lambda slot: f"[{_BLANKS.get(slot['kind'], 'noun')}]", self.text)

    def filled(self, filling: dict[str, str]) -> str:
        """The sentence with the words of ``filling``, by key, and the articles they ask for."""
        text = _SLOT.sub(lambda slot: filling[slot["kind"] + slot["number"]], self.text)
        return re.sub(r"\b([Aa]) (?=[aeiou])", r"\1n ", text)


@dataclass(frozen=True)
class Skeleton:
    """One combination of a pattern's choices.

    Attributes:
        choices: what was chosen, with the place of the choice in the pattern.
        form: the sentence.
        twin: the sentence that says the opposite in the same words, if there is one.
    """

    choices: tuple[tuple[int, str], ...]
    form: Form
    twin: Form | None


def skeletons(pattern: str) -> Iterator[Skeleton]:
    """Every skeleton of ``pattern``, in a fixed order."""
    first, _, second = pattern.partition(" || ")
    for options in product(*(choice.split("|") for choice in _CHOICE.findall(first))):
        form = Form(_choose(first, options))
        twin = Form(_choose(second, options)) if second else _own_twin(form)
        yield Skeleton(tuple(enumerate(options)), form, twin)


def _choose(pattern: str, options: tuple[str, ...]) -> str:
    remaining = iter(options)
    return " ".join(_CHOICE.sub(lambda _: next(remaining), pattern).split())


def _own_twin(form: Form) -> Form | None:
    slots = form.slots
    if any(slot.kind == "r" for slot in slots):
        return Form(_SLOT.sub(lambda slot: _exchanged(slot, "sign", "kind"), form.text))
    if {slot.sign for slot in slots if slot.key[1:]} >= {1, -1}:
        return Form(_SLOT.sub(lambda slot: _exchanged(slot, "number"), form.text))
    return None


def _exchanged(slot: re.Match[str], *parts: str) -> str:
    values = (
        _OTHER.get(value, value) if part in parts else value
        for part, value in slot.groupdict().items()
    )
    return "{" + "".join(values) + "}"


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

# The words of one split: (noun, kind of slot, polarity) -> the words said of the noun in it.
_Pairs = dict[tuple[str, str, int], tuple[str, ...]]


@dataclass(frozen=True)
class Opinion:
    """A generated sentence.

    Attributes:
        text: the sentence.
        label: ``positive`` or ``negative``, what it says of the reviewed work.
        construct: the phenomenon that decides the label, a key of ``Lexicon.patterns``.
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
    pairs = _split_pairs(rng)
    by_construct = {
        construct: _split_skeletons(rng, patterns)
        for construct, patterns in lexicon().patterns.items()
    }
    corpus: dict[str, list[Opinion]] = {}
    for split, size in SIZES.items():
        writer = _Writer(rng, pairs[split])
        corpus[split] = [
            opinion
            for construct, percent in PERCENT[split].items()
            for opinion in writer.write(
                construct, by_construct[construct][split], size * percent // 100
            )
        ]
        rng.shuffle(corpus[split])
    return corpus


def _split_pairs(rng: Random) -> dict[str, _Pairs]:
    """Give every pair of a noun and an opinion word to one split."""
    pairs: dict[str, _Pairs] = {split: {} for split in SIZES}
    for noun in lexicon().all_nouns:
        for kind, polarity in lexicon().words:
            words = list(lexicon().words_about(noun, kind, polarity))
            rng.shuffle(words)
            size = len(words)
            for split, share in _HELD_OUT_PAIRS.items():
                count = max(1, round(size * share))
                pairs[split][noun, kind, polarity] = tuple(words[:count])
                del words[:count]
            pairs["train"][noun, kind, polarity] = tuple(words)
    return pairs


def _split_skeletons(rng: Random, patterns: tuple[str, ...]) -> dict[str, list[list[Skeleton]]]:
    """Give every skeleton of a construct to one split, by pattern.

    Whatever can be chosen in a pattern stays in training with at least two skeletons, and with at
    least half of those that it is in.
    """
    splits: dict[str, list[list[Skeleton]]] = {split: [] for split in SIZES}
    for pattern in patterns:
        shuffled = list(skeletons(pattern))
        rng.shuffle(shuffled)
        kept = Counter(choice for skeleton in shuffled for choice in skeleton.choices)
        floor = {choice: max(2, count / 2) for choice, count in kept.items()}
        own: dict[str, list[Skeleton]] = {split: [] for split in SIZES}
        limits = {
            split: max(1, share * len(shuffled)) for split, share in _HELD_OUT_SKELETONS.items()
        }
        for skeleton in shuffled:
            split = next((name for name in limits if len(own[name]) < limits[name]), "train")
            if any(kept[choice] <= floor[choice] for choice in skeleton.choices):
                split = "train"
            if split != "train":
                kept.subtract(skeleton.choices)
            own[split].append(skeleton)
        for split, chosen in own.items():
            if chosen:
                splits[split].append(chosen)
    return splits


class _Writer:
    """Writes the sentences of one split."""

    def __init__(self, rng: Random, pairs: _Pairs) -> None:
        self.rng = rng
        self.pairs = pairs
        self.uses: Counter[tuple[str, int]] = Counter()  # of a word with a label
        self.written: set[str] = set()

    def write(self, construct: str, patterns: list[list[Skeleton]], count: int) -> list[Opinion]:
        """``count`` different sentences, half of each label, patterns and skeletons in turn."""
        opinions: list[Opinion] = []
        for skeleton in _in_turn(patterns):
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
        opener = self.rng.choice(lexicon().openers) if self.rng.random() < _OPENER_RATE else ""
        closer = self.rng.choice(lexicon().closers) if self.rng.random() < _CLOSER_RATE else ""
        filling = self._fill(skeleton.form, label)
        other = filling if skeleton.twin else self._fill(skeleton.form, -label)
        if not filling or not other:
            return ()
        couple = (
            (skeleton.form, filling, label),
            (skeleton.twin or skeleton.form, other, -label),
        )
        for form, words, polarity in couple:
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
            for form, words, polarity in couple
        )

    def _fill(self, form: Form, label: int) -> dict[str, str]:
        """Words for the slots, by key; nothing if some slot has none left."""
        filling: dict[str, str] = {}
        for slot in form.slots:
            if not slot.sign:
                nouns = [
                    noun for noun in lexicon().nouns[slot.kind] if noun not in filling.values()
                ]
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


def _in_turn(patterns: list[list[Skeleton]]) -> Iterator[Skeleton]:
    """Endlessly one skeleton per pattern, then the next of each."""
    for pattern in cycle([cycle(skeletons) for skeletons in patterns]):
        yield next(pattern)


def _sentence(body: str, opener: str, closer: str) -> str:
    if opener:
        body = f"{opener} {body if body.startswith('I ') else body[0].lower() + body[1:]}"
    return body[0].upper() + body[1:-1] + closer + body[-1]
