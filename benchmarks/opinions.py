"""The generator of the built-in corpus: English opinions whose label depends on the word order.

    python benchmarks/opinions.py --write  # regenerates the file that the package ships
    python benchmarks/opinions.py --check  # fails where that file is not what is generated

Patterns are filled with words (``opinions.toml``, which explains them) by a seeded generator. The
package ships the sentences of seed 0 and reads them with ``dcnn.data.corpora.opinions``.

Split. Train, dev and test share neither skeletons, which are sentences without opening and ending,
their nouns and opinion words blanked, nor pairs of a noun and a word said of it, such as (plot,
dull). So a test sentence is a new skeleton filled with new pairs. Its parts are not new: every
option of every pattern, and every word, is in the training sentences. The dev set is made like the
test set, because a dev set like the training set would prefer the epoch that remembers pairs best.
"""

import argparse
import re
import sys
import tomllib
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cache, cached_property
from itertools import chain, cycle, product
from pathlib import Path
from random import Random
from typing import NamedTuple

SHIPPED = Path(__file__).parent.parent / "src" / "dcnn" / "data" / "corpora" / "opinions.tsv"
_LABELS = {1: "positive", -1: "negative"}  # by polarity


@dataclass(frozen=True)
class Lexicon:
    """The content of ``opinions.toml``."""

    sizes: dict[str, int]
    percent: dict[str, dict[str, int]]
    nouns: dict[str, list[str]]
    words: dict[str, dict[str, list[str]]]  # by kind of slot and label
    telling_words: dict[str, dict[str, list[str]]]
    frame: dict[str, list[str]]
    patterns: dict[str, list[str]]  # by the construct that decides the label

    @cached_property
    def nouns_by_kind(self) -> dict[str, list[str]]:
        """What fills a slot for a noun, by the kind of the slot."""
        in_order = ("telling_mass", "telling", "craft_mass", "craft", "works_beside_aspects")
        return {
            "n": [noun for group in in_order for noun in self.nouns[group]],
            "m": self.nouns["telling_mass"] + self.nouns["craft_mass"],
            "w": self.nouns["works"],
            "r": self.nouns["rivals"],
        }

    @property
    def all_nouns(self) -> list[str]:
        """Each once."""
        return list(dict.fromkeys(chain.from_iterable(self.nouns_by_kind.values())))

    def words_about(self, noun: str, kind: str, polarity: int) -> list[str]:
        """The words of a kind and polarity (1 or -1) that go with ``noun``."""
        label = _LABELS[polarity]
        telling = noun not in self.nouns["craft_mass"] + self.nouns["craft"]
        more = self.telling_words.get(kind, {}).get(label, []) if telling else []
        return self.words[kind][label] + more


@cache
def lexicon() -> Lexicon:
    """The words and patterns of the corpus."""
    path = Path(__file__).with_suffix(".toml")
    return Lexicon(**tomllib.loads(path.read_text(encoding="utf-8")))


_CHOICE = re.compile(r"\(([^()]*)\)")
_SLOT = re.compile(r"\{(?P<sign>[+-]?)(?P<kind>[a-z])(?P<number>\d?)\}")
_SIGNS = {"+": 1, "-": -1, "": 0}
_BLANKS = {"a": "adjective", "v": "verdict", "d": "verb", "i": "verb", "c": "comparative"}
_OTHER = {"w": "r", "r": "w", "+": "-", "-": "+", "1": "2", "2": "1"}


class Slot(NamedTuple):
    """A gap in a form."""

    sign: int  # 0 for a noun; 1 for a word of the sentence's polarity, -1 for the opposite one
    kind: str  # the letter that says what fits
    key: str  # kind and number, the slot's name within its form
    subjects: list[str]  # keys of the nouns that an opinion is about; empty for a noun


@cache
def _slots(form: str) -> list[Slot]:
    """The slots of a form, a sentence with its choices made, from left to right."""
    found = _SLOT.findall(form)
    nouns = [kind + number for sign, kind, number in found if not sign]

    def subjects(number: str) -> list[str]:
        tied = [noun for noun in nouns if number and noun.endswith(number)]
        aspects = [noun for noun in nouns if noun in ("n", "m")]
        return tied or aspects or [noun for noun in nouns if noun in ("w", "r")]

    return [
        Slot(_SIGNS[sign], kind, kind + number, subjects(number) if sign else [])
        for sign, kind, number in found
    ]


def blanked(form: str) -> str:
    """The form for people: what fits is named, the signs are left out."""
    return _SLOT.sub(lambda slot: f"[{_BLANKS.get(slot['kind'], 'noun')}]", form)


def _filled(form: str, filling: dict[str, str]) -> str:
    """The sentence with the words of ``filling``, by key, and the articles they ask for."""
    text = _SLOT.sub(lambda slot: filling[slot["kind"] + slot["number"]], form)
    return re.sub(r"\b([Aa]) (?=[aeiou])", r"\1n ", text)


def _own_twin(form: str) -> str | None:
    """The form with its work and rival, or its numbers 1 and 2, exchanged."""
    if any(slot.kind == "r" for slot in _slots(form)):
        exchanged = {"sign", "kind"}
    elif {slot.sign for slot in _slots(form) if slot.key[1:]} >= {1, -1}:
        exchanged = {"number"}
    else:
        return None

    def exchange(slot: re.Match[str]) -> str:
        parts = slot.groupdict().items()
        return "".join(
            _OTHER.get(part, part) if name in exchanged else part for name, part in parts
        )

    return _SLOT.sub(lambda slot: "{" + exchange(slot) + "}", form)


class Skeleton(NamedTuple):
    """One combination of a pattern's choices."""

    choices: tuple[tuple[int, str], ...]  # with the place of each in the pattern
    form: str
    twin: str | None  # says the opposite in the same words


def skeletons(pattern: str) -> Iterator[Skeleton]:
    """Every skeleton of ``pattern``, in a fixed order."""
    first, _, second = pattern.partition(" || ")
    for options in product(*(choice.split("|") for choice in _CHOICE.findall(first))):
        form, twin = (_choose(some, options) for some in (first, second))
        yield Skeleton(tuple(enumerate(options)), form, twin or _own_twin(form))


def _choose(pattern: str, options: tuple[str, ...]) -> str:
    remaining = iter(options)
    return " ".join(_CHOICE.sub(lambda _: next(remaining), pattern).split())


_HELD_OUT_SKELETONS = {"test": 0.2, "dev": 0.12}
_HELD_OUT_PAIRS = {"test": 0.2, "dev": 0.2}
_FRAME_RATE = 0.15  # of sentences with an opener, and of those with a closer

# The words of one split: (noun, kind of slot, polarity) -> the words said of the noun in it.
_Pairs = dict[tuple[str, str, int], list[str]]


@dataclass(frozen=True)
class Opinion:
    """A generated sentence.

    Attributes:
        text: the sentence.
        label: ``positive`` or ``negative``, what it says of the reviewed work.
        construct: the phenomenon that decides the label, such as ``negation``.
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
    for split, size in lexicon().sizes.items():
        writer = _Writer(rng, pairs[split])
        corpus[split] = [
            opinion
            for construct, percent in lexicon().percent[split].items()
            for opinion in writer.write(
                construct, by_construct[construct][split], size * percent // 100
            )
        ]
        rng.shuffle(corpus[split])
    return corpus


def _split_pairs(rng: Random) -> dict[str, _Pairs]:
    """Give every pair of a noun and an opinion word to one split."""
    pairs: dict[str, _Pairs] = {split: {} for split in lexicon().sizes}
    for noun in lexicon().all_nouns:
        for kind, polarity in product(lexicon().words, _LABELS):
            words = lexicon().words_about(noun, kind, polarity)
            rng.shuffle(words)
            size = len(words)
            for split, share in _HELD_OUT_PAIRS.items():
                count = max(1, round(size * share))
                pairs[split][noun, kind, polarity] = words[:count]
                del words[:count]
            pairs["train"][noun, kind, polarity] = words
    return pairs


def _split_skeletons(rng: Random, patterns: Sequence[str]) -> dict[str, list[list[Skeleton]]]:
    """Give every skeleton of a construct to one split, by pattern.

    Whatever can be chosen in a pattern stays in training with at least two skeletons, and with at
    least half of those that it is in.
    """
    splits: dict[str, list[list[Skeleton]]] = {split: [] for split in lexicon().sizes}
    for pattern in patterns:
        shuffled = list(skeletons(pattern))
        rng.shuffle(shuffled)
        kept = Counter(choice for skeleton in shuffled for choice in skeleton.choices)
        floor = {choice: max(2, count / 2) for choice, count in kept.items()}
        own: dict[str, list[Skeleton]] = {split: [] for split in splits}
        limits = {s: max(1, share * len(shuffled)) for s, share in _HELD_OUT_SKELETONS.items()}
        for skeleton in shuffled:
            split = next((name for name in limits if len(own[name]) < limits[name]), "train")
            if any(kept[choice] <= floor[choice] for choice in skeleton.choices):
                split = "train"
            if split != "train":
                kept.subtract(skeleton.choices)
            own[split].append(skeleton)
        for split, chosen in own.items():
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
        in_turn = cycle([cycle(skeletons) for skeletons in patterns if skeletons])
        while len(opinions) < count:
            couple = self._couple(construct, next(next(in_turn)))
            texts = {opinion.text for opinion in couple}
            if len(texts) == 2 and not texts & self.written:
                self.written |= texts
                opinions.extend(couple)
        return opinions

    def _couple(self, construct: str, skeleton: Skeleton) -> list[Opinion]:
        """A sentence of each label; none if the words of this split do not fit together."""
        label = self.rng.choice((1, -1))
        opener, closer = (
            self.rng.choice(choices) if self.rng.random() < _FRAME_RATE else ""
            for choices in (lexicon().frame["openers"], lexicon().frame["closers"])
        )
        filling = self._fill(skeleton.form, label)
        other = filling if skeleton.twin else self._fill(skeleton.form, -label)
        if not filling or not other:
            return []
        couple = []
        for form, words, polarity in (
            (skeleton.form, filling, label),
            (skeleton.twin or skeleton.form, other, -label),
        ):
            said = [(slot.subjects, words[slot.key]) for slot in _slots(form) if slot.sign]
            self.uses.update((word, polarity) for _, word in said)
            pairs = tuple((words[noun], word) for nouns, word in said for noun in nouns)
            text = _sentence(_filled(form, words), opener, closer)
            couple.append(Opinion(text, _LABELS[polarity], construct, blanked(form), pairs))
        return couple

    def _fill(self, form: str, label: int) -> dict[str, str]:
        """Words for the slots, by key; nothing if some slot has none left."""
        filling: dict[str, str] = {}
        for slot in sorted(_slots(form), key=lambda slot: slot.sign != 0):  # nouns first
            taken = filling.values()
            if not slot.sign:
                nouns = [noun for noun in lexicon().nouns_by_kind[slot.kind] if noun not in taken]
                filling[slot.key] = self.rng.choice(nouns)
                continue
            allowed = [
                self.pairs[filling[noun], slot.kind, slot.sign * label] for noun in slot.subjects
            ]
            words = [
                word
                for word in allowed[0]
                if word not in taken and all(word in others for others in allowed)
            ]
            if not words:
                return {}
            # The word least used with this label so far: every word comes to be seen often enough,
            # and none gives the label away more than the others do.
            self.rng.shuffle(words)
            filling[slot.key] = min(words, key=lambda word: self.uses[word, label])
        return filling


def _sentence(body: str, opener: str, closer: str) -> str:
    if opener:
        body = f"{opener} {body if body.startswith('I ') else body[0].lower() + body[1:]}"
    return body[0].upper() + body[1:-1] + closer + body[-1]


def table(corpus: dict[str, list[Opinion]]) -> str:
    """The corpus as tab-separated lines, in the order of the sentences, below a header."""
    rows = [("split", "text", "label", "construct")]
    for split, opinions in corpus.items():
        rows += [(split, one.text, one.label, one.construct) for one in opinions]
    return "".join("\t".join(row) + "\n" for row in rows)


def main() -> str | None:
    """Write or check the shipped file; what is wrong with it, if anything."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    action = parser.add_mutually_exclusive_group(required=True)
    action.add_argument("--write", action="store_true", help="regenerate the shipped file")
    action.add_argument("--check", action="store_true", help="compare the shipped file")
    arguments = parser.parse_args()
    generated = table(generate()).encode()
    if arguments.write:
        SHIPPED.write_bytes(generated)
    elif not SHIPPED.exists() or SHIPPED.read_bytes() != generated:
        return f"{SHIPPED} is not what is generated; run: python benchmarks/opinions.py --write"
    return None


if __name__ == "__main__":
    sys.exit(main())
