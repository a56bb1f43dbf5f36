"""The built-in corpus."""

import re
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import product
from random import Random

from dcnn.data import opinions_lexicon as lexicon
from dcnn.data.opinions_patterns import CLOSERS, OPENERS, PATTERNS

SIZES = {"train": 6000, "dev": 800, "test": 1200}
SHARES = {
    "plain": 0.18,
    "negation": 0.22,
    "degree": 0.14,
    "concession": 0.16,
    "comparison": 0.18,
    "expectation": 0.12,
}
LABELS = {1: "positive", -1: "negative"}

_CHOICE = re.compile(r"\(([^()]*)\)")
_SLOT = re.compile(r"\{([+-]?)([a-z])(\d?)\}")
_NOUNS = {
    "n": lexicon.ASPECTS + lexicon.WORKS[:4],
    "m": lexicon.MASS_ASPECTS,
    "w": lexicon.WORKS,
    "r": lexicon.RIVALS,
}
_TELLING = lexicon.TELLING_ASPECTS + lexicon.WORKS + lexicon.RIVALS
_WORDS = {
    ("a", 1): lexicon.GOOD_ADJECTIVES,
    ("a", -1): lexicon.BAD_ADJECTIVES,
    ("v", 1): lexicon.GOOD_VERDICTS,
    ("v", -1): lexicon.BAD_VERDICTS,
    ("d", 1): lexicon.GOOD_PAST_VERBS,
    ("d", -1): lexicon.BAD_PAST_VERBS,
    ("i", 1): lexicon.GOOD_BASE_VERBS,
    ("i", -1): lexicon.BAD_BASE_VERBS,
    ("c", 1): lexicon.GOOD_COMPARATIVES,
    ("c", -1): lexicon.BAD_COMPARATIVES,
}
_TELLING_WORDS = {
    ("a", 1): lexicon.GOOD_TELLING_ADJECTIVES,
    ("a", -1): lexicon.BAD_TELLING_ADJECTIVES,
}
_BLANKS = {
    **dict.fromkeys("nmwr", "[noun]"),
    "a": "[adjective]",
    "v": "[verdict]",
    "d": "[verb]",
    "i": "[verb]",
    "c": "[comparative]",
}

Vocabulary = dict[tuple[str, str, int], tuple[str, ...]]


@dataclass(frozen=True)
class Opinion:
    text: str
    label: str
    construct: str
    skeleton: str
    pairs: tuple[tuple[str, str], ...]


@dataclass(frozen=True)
class _Form:
    """A skeleton with slots, and the one that says the opposite with the same words."""

    text: str
    twin: str | None


def generate(seed: int = 0) -> dict[str, list[Opinion]]:
    rng = Random(seed)  # noqa: S311
    vocabularies = _deal_pairs(rng)
    forms = _deal_forms(rng)
    seen: set[str] = set()
    corpus: dict[str, list[Opinion]] = {}
    for split, size in SIZES.items():
        opinions: list[Opinion] = []
        for construct, share in SHARES.items():
            writer = _Writer(rng, construct, vocabularies[split])
            kinds = [own for own in forms[split][construct] if own]
            made, turn = 0, 0
            while made < round(size * share / 2):
                turn += 1
                couple = writer.couple(rng.choice(kinds[turn % len(kinds)]))
                texts = [opinion.text for opinion in couple]
                if not couple or seen.intersection(texts) or texts[0] == texts[1]:
                    continue
                seen.update(texts)
                opinions.extend(couple)
                made += 1
        rng.shuffle(opinions)
        corpus[split] = opinions
    return corpus


def _deal_pairs(rng: Random) -> dict[str, Vocabulary]:
    dealt: dict[str, Vocabulary] = {split: {} for split in SIZES}
    for noun in (*lexicon.ASPECTS, *lexicon.WORKS, *lexicon.RIVALS):
        for (kind, polarity), general in _WORDS.items():
            words = [*general]
            if noun in _TELLING:
                words += _TELLING_WORDS.get((kind, polarity), ())
            rng.shuffle(words)
            fifth = max(1, round(len(words) / 5))
            key = (noun, kind, polarity)
            dealt["dev"][key] = tuple(words[:fifth])
            dealt["test"][key] = tuple(words[fifth : 2 * fifth])
            dealt["train"][key] = tuple(words[2 * fifth :])
    return dealt


def _deal_forms(rng: Random) -> dict[str, dict[str, list[list[_Form]]]]:
    dealt: dict[str, dict[str, list[list[_Form]]]] = {
        split: {construct: [] for construct in PATTERNS} for split in SIZES
    }
    for construct, patterns in PATTERNS.items():
        for pattern in patterns:
            forms = list(_expand(pattern))
            rng.shuffle(forms)
            uses = Counter(option for options, _ in forms for option in options)
            hands: dict[str, list[_Form]] = {split: [] for split in SIZES}
            wanted = {"test": max(1, len(forms) // 5), "dev": max(1, len(forms) // 8)}
            for options, form in forms:
                split = next((s for s, n in wanted.items() if len(hands[s]) < n), "train")
                if any(uses[option] <= 2 for option in options):
                    split = "train"
                if split != "train":
                    uses.subtract(options)
                hands[split].append(form)
            for split, hand in hands.items():
                dealt[split][construct].append(hand)
    return dealt


def _expand(pattern: str) -> Iterator[tuple[tuple[tuple[int, str], ...], _Form]]:
    first, _, second = pattern.partition(" || ")
    alternatives = [choice.split("|") for choice in _CHOICE.findall(first)]
    for options in product(*alternatives):
        text = _resolve(first, options)
        yield tuple(enumerate(options)), _Form(text, _resolve(second, options) or _own_twin(text))


def _resolve(pattern: str, options: tuple[str, ...]) -> str:
    remaining = iter(options)
    return " ".join(_CHOICE.sub(lambda _: next(remaining), pattern).split())


def _own_twin(text: str) -> str | None:
    slots = _SLOT.findall(text)
    if any(kind == "r" for _, kind, _ in slots):
        exchanged = {"w": "r", "r": "w", "+": "-", "-": "+"}
        return _SLOT.sub(
            lambda slot: (
                "{%s%s%s}"
                % (
                    exchanged.get(slot[1], slot[1]),
                    exchanged.get(slot[2], slot[2]),
                    slot[3],
                )
            ),
            text,
        )
    signs = {number: sign for sign, _, number in slots if sign and number}
    if len(set(signs.values())) == 2:
        other = {"1": "2", "2": "1", "": ""}
        return _SLOT.sub(lambda slot: "{%s%s%s}" % (slot[1], slot[2], other[slot[3]]), text)
    return None


class _Writer:
    def __init__(self, rng: Random, construct: str, vocabulary: Vocabulary) -> None:
        self.rng = rng
        self.construct = construct
        self.vocabulary = vocabulary

    def couple(self, form: _Form) -> tuple[Opinion, ...]:
        """Two sentences of opposite labels, with the same words where the form has a twin."""
        opener = self.rng.choice(OPENERS) if self.rng.random() < 0.2 else ""
        closer = self.rng.choice(CLOSERS) if self.rng.random() < 0.2 else ""
        label = self.rng.choice((1, -1))
        filling = self._fill(form.text, label)
        other = filling if form.twin else self._fill(form.text, -label)
        if filling is None or other is None:
            return ()
        return (
            self._opinion(form.text, filling, label, opener, closer),
            self._opinion(form.twin or form.text, other, -label, opener, closer),
        )

    def _fill(self, form: str, label: int) -> dict[str, str] | None:
        filling: dict[str, str] = {}
        slots = _SLOT.findall(form)
        for sign, kind, number in slots:
            if not sign:
                free = [noun for noun in _NOUNS[kind] if noun not in filling.values()]
                filling[kind + number] = self.rng.choice(free)
        for sign, kind, number in slots:
            if sign:
                polarity = label if sign == "+" else -label
                nouns = [filling[key] for key in _subjects(form, number)]
                words = [
                    word
                    for word in self.vocabulary[nouns[0], kind, polarity]
                    if word not in filling.values()
                    and all(word in self.vocabulary[noun, kind, polarity] for noun in nouns)
                ]
                if not words:
                    return None
                filling[kind + number] = self.rng.choice(words)
        return filling

    def _opinion(
        self, form: str, filling: dict[str, str], label: int, opener: str, closer: str
    ) -> Opinion:
        body = _SLOT.sub(lambda slot: filling[slot[2] + slot[3]], form)
        body = re.sub(r"\b([Aa]) (?=[aeiou])", r"\1n ", body)
        if opener:
            body = f"{opener} {body if body.startswith('I ') else body[0].lower() + body[1:]}"
        text = body[0].upper() + body[1:-1] + closer + body[-1]
        skeleton = _SLOT.sub(lambda slot: _BLANKS[slot[2]], form)
        pairs = tuple(
            (filling[noun], filling[kind + number])
            for sign, kind, number in _SLOT.findall(form)
            if sign
            for noun in _subjects(form, number)
        )
        return Opinion(text, LABELS[label], self.construct, skeleton, pairs)


def _subjects(form: str, number: str) -> list[str]:
    """The noun slots that an opinion slot with this number is about."""
    nouns = [kind + digit for sign, kind, digit in _SLOT.findall(form) if not sign]
    tied = [noun for noun in nouns if number and noun.endswith(number)]
    general = [noun for noun in nouns if noun in ("n", "m")]
    return tied or general or [noun for noun in nouns if noun in ("w", "r")]
