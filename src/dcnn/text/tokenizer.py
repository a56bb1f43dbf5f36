"""Splitting a text into tokens, the same in training and in prediction.

Of the standard library alone: ``dcnn.export`` copies this file beside a model. Four presets:

- ``words``: any language. A word is a run of letters, digits and their combining marks, with the
  apostrophes inside it; a number keeps its points and commas; every other visible character is a
  token of its own, an emoji together with its modifiers. Scripts written without spaces (Chinese,
  Japanese, Thai, Lao, Khmer, Burmese) give one token per character with its marks.
- ``tweet``: ``words`` after the preprocessing of Go et al. (2009), which the paper follows
  (Sect. 5.4): mentions become USER, links URL, letters repeated more than twice are squeezed to
  two, and the rest is lower-cased.
- ``whitespace``: the text is tokenized already.
- ``characters``: one token per code point, and one for each gap between words. Code points rather
  than grapheme clusters: Hindi and emoji combine a few hundred signs into many thousands, most of
  which a corpus shows once or never.

Text is normalized to Unicode NFC first, so that a letter and its accent are one character however
they were typed; a typographic apostrophe becomes a plain one. Invisible characters (controls,
directional marks, lone surrogates) separate tokens and are dropped.

Two more are learned from the training texts, by ``dcnn.text.encoder``: subwords by byte-pair
encoding (``bpe``) or by the unigram model (``unigram``). A text is split into words as by
``words``, except that neighbouring letters of a script without spaces are one word, and each word
into subwords. A subword inside a word is written ``##subword``, so that "able" and the end of
"unable" are two tokens and a reader can tell where a word ends. No word has two ``#`` in it, so the
two never collide. Each distinct word is split once.
"""

import math
import re
import unicodedata
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from functools import cache, cached_property, lru_cache, partial
from itertools import chain, pairwise
from typing import Any, Literal, Self

Preset = Literal["words", "tweet", "whitespace", "characters"]
PRESETS: tuple[Preset, ...] = ("words", "tweet", "whitespace", "characters")
GAP = "\u2423"  # the open box, a visible token for a space

# Patterns are compiled when the first text needs them, which the native library may never do.
_ASCII_WORDS = r"""(?ax)
    [0-9]+ (?: [.,][0-9]+ )+ (?! \w )         # 1,000 and 3.14, but not 3.11rc1
    | \w+ (?: ' \w+ )*                        # don't
    | [!-/:-@\[-`{-~]
    """

# Letters of scripts that put no space between words: CJK and kana, Thai, Lao, Burmese, Khmer.
SPACELESS = (
    "\u3005-\u3007\u3041-\u30ff\u31f0-\u31ff\u3400-\u4dbf\u4e00-\u9fff\uf900-\ufaff\uff66-\uff9d"
    "\U0001b000-\U0001b16f\U00020000-\U000323af"
    "\u0e01-\u0e2e\u0e30\u0e32-\u0e33\u0e40-\u0e46\u0e81-\u0eb0\u0eb2-\u0eb3\u0ebd-\u0ec6"
    "\u1000-\u102a\u103f\u1780-\u17b3"
)
JOINERS = "\u200c\u200d"  # zero-width, but part of the word in Persian and Indic scripts
_WITHOUT_JOINERS = str.maketrans("\u2019", "'", JOINERS)
INVISIBLE = (
    "\\s\u0000-\u001f\u007f-\u00a0\u00ad\u061c\u180e\u200b-\u200f\u2028-\u202f\u2060-\u206f\ufeff"
    "\ufff9-\ufffb\ud800-\udfff\U000e0000-\U000e007f"
)
FLAG_LETTERS = "\U0001f1e6-\U0001f1ff"
SKIN_TONES = "\U0001f3fb-\U0001f3ff"
# Combining marks are in the first two planes; variation selectors at the start of the fifteenth.
_MARK_PLANES = (range(0x0300, 0x20000), range(0xE0100, 0xE01F0))
GAPS = f"[{INVISIBLE}]+"


@cache
def marks_class() -> str:
    r"""All combining marks as ranges of a regular expression; finding them takes a moment.

    ``\w`` leaves them out, and without them Hindi and Thai words would be split.
    """
    marks = (n for n in chain(*_MARK_PLANES) if unicodedata.category(chr(n)).startswith("M"))
    return "".join(f"{chr(first)}-{chr(last)}" for first, last in grouped(marks))


def grouped(codes: Iterable[int]) -> list[tuple[int, int]]:
    """Ascending code points as ranges, each by its first and last."""
    ranges: list[tuple[int, int]] = []
    for code in codes:
        if ranges and code == ranges[-1][1] + 1:
            ranges[-1] = ranges[-1][0], code
        else:
            ranges.append((code, code))
    return ranges


@cache
def letter_pattern() -> str:
    """A character of a word in a script with spaces, for ``re.VERBOSE``."""
    return rf"(?: (?![{SPACELESS}]) [\w{marks_class()}{JOINERS}] )"


@cache
def unicode_token(runs: bool = False) -> re.Pattern[str]:
    """The pattern for text beyond ASCII, and for any other; ``runs`` as in ``Tokenizer``."""
    marks, letter = marks_class(), letter_pattern()
    return re.compile(
        rf"""
        [0-9]+ (?: [.,][0-9]+ )+ (?! {letter} )
        | (?: [{SPACELESS}] [{marks}]* ){"+" if runs else ""}
        | (?![{JOINERS}]) {letter}+ (?: ' {letter}+ )*
        | [{FLAG_LETTERS}]{{2}}
        | [^\w{marks}{INVISIBLE}] (?: [{marks}{SKIN_TONES}] | \u200d [^\w{INVISIBLE}] )*
        """,
        re.VERBOSE,
    )


_LONE_SURROGATE = "[\ud800-\udfff]"
# Characters that no label may contain, as they would affect the output around it: control
# characters, line ends, marks that change the text direction, and lone surrogates.
UNPRINTABLE = re.compile("[\0-\x1f\x7f-\x9f\u2028-\u202e\u2066-\u2069\ud800-\udfff]")
LINK = r"(?<!\w)(?:[Hh][Tt]{2}[Pp][Ss\u017f]?://|[Ww]{3}\.)\S+"
MENTION = r"(?<!\w)@\w+"
REPEATED_LETTER = r"([^\W\d_])\1{2,}"
PLACEHOLDERS = ("USER", "URL")
LONG_TEXT = 1000  # above it, runs of combining marks are cut as in Unicode's stream-safe format
GRAPHEME_JOINER = "\u034f"


@dataclass(frozen=True)
class Tokenizer:
    """One of the presets; calling it splits a text.

    ``runs`` keeps neighbouring letters of a script without spaces together in ``words``, for
    ``dcnn.text.encoder`` to split.
    """

    preset: Preset = "words"
    lowercase: bool = True  # ``tweet`` always drops the case
    runs: bool = False

    def __call__(self, text: str) -> list[str]:
        """Return the tokens of ``text`` in order; an empty or blank text has none."""
        text = self.normalized(text)
        match self.preset:
            case "whitespace":
                return text.split()
            case "words":
                return _split_words(text, self.runs)
            case "tweet":
                return list(map(_tweet_word, _split_words(_masked(text))))
            case "characters":
                return list(re.sub(GAPS, GAP, text.translate(_WITHOUT_JOINERS)).strip(GAP))

    def spell(self, token: str) -> str:
        """What a token adds to a text: a word has a space before it."""
        if self.preset == "characters":
            return token.replace(GAP, " ")
        return " " + token

    def normalized(self, text: str) -> str:
        """``text`` composed and, if set, lower-cased; ``tweet`` lower-cases after the split."""
        text, lower = composed(text), self.lowercase and self.preset != "tweet"
        return composed(text.lower()) if lower else text


def _masked(text: str) -> str:
    """A tweet with its links and mentions replaced; most have neither, and the check is cheap."""
    if "://" in text or "www." in text.lower():
        text = re.sub(LINK, " URL ", text)
    if "@" in text:
        text = re.sub(MENTION, " USER ", text)
    # Spaceless scripts give one token per letter, so repeated ones must go before the split.
    return text if text.isascii() else re.sub(REPEATED_LETTER, r"\1\1", text)


@lru_cache(maxsize=1 << 17)  # tweets repeat their words
def _tweet_word(token: str) -> str:
    return token if token in PLACEHOLDERS else re.sub(REPEATED_LETTER, r"\1\1", token.lower())


def composed(text: str, form: Literal["NFC", "NFKC"] = "NFC") -> str:
    """``text`` in a normal form of Unicode, in a time that grows with its length alone."""
    if text.isascii():
        return text
    if len(text) > LONG_TEXT:  # the time to sort a run of marks is quadratic in its length
        halfwidth = "\uff9e\uff9f" if form == "NFKC" else ""  # become marks there, as no others do
        mark = f"(?:(?!{GRAPHEME_JOINER})[{marks_class()}{halfwidth}])"
        text = re.sub(f"({mark}{{30}})(?={mark})", rf"\1{GRAPHEME_JOINER}", text)
    return unicodedata.normalize(form, re.sub(_LONE_SURROGATE, " ", text))


def _split_words(text: str, runs: bool = False) -> list[str]:
    if text.isascii():
        return re.findall(_ASCII_WORDS, text)
    return unicode_token(runs).findall(text.replace("\u2019", "'"))


Learned = Literal["bpe", "unigram"]
LEARNED: tuple[Learned, ...] = ("bpe", "unigram")
CONTINUES = "##"

# Longer words are first cut into parts of this length, so that the time is linear in the length of
# a text: BPE goes through all pairs of a word after each merge.
MAX_WORD_LENGTH = 64
UNKNOWN_PENALTY = 10.0  # of a character, beyond the least likely subword, as in SentencePiece
_CACHED_WORDS = 1 << 17  # words repeat

# How a model folder stores what was learned: its key in the JSON, the pattern of an entry, the rule
# for messages, and what must not occur twice.
_FORMATS: dict[Learned, tuple[str, str, str, str]] = {
    "bpe": ("merges", r"([^ ]+) ([^ ]+)", "two subwords separated by a space", "a pair"),
    "unigram": (
        "pieces",
        r"([^ ]+) (-?\d+(?:\.\d+)?(?:e[+-]?\d+)?)",
        "a subword, a space and a finite number",
        "a subword",
    ),
}


@dataclass(frozen=True)
class SubwordTokenizer:
    """Splits a text into subwords; callers use it as they use ``Tokenizer``.

    The entries of byte-pair encoding are pairs of neighbours that become one subword, the most
    important first; those of the unigram model are subwords with their logarithmic probabilities.
    """

    preset: Learned
    lowercase: bool
    entries: tuple[tuple[str, Any], ...]
    _known: dict[str, list[str]] = field(
        init=False, repr=False, compare=False, default_factory=dict
    )

    def __call__(self, text: str) -> list[str]:
        """Return the tokens of ``text`` in order; an empty or blank text has none."""
        return [token for word in self.splitter(text) for token in self.split_word(word)]

    @property
    def splitter(self) -> Tokenizer:
        """What splits a text into the words that are split into subwords."""
        return Tokenizer("words", self.lowercase, runs=True)

    @property
    def unknown_score(self) -> float:
        """Of a character that is no subword of the unigram model."""
        scores = [] if self.preset == "bpe" else [score for _, score in self.entries]
        return min(scores, default=0.0) - UNKNOWN_PENALTY

    def spell(self, token: str) -> str:
        """What a token adds to a text: one that begins a word has a space before it."""
        continues = len(token) > len(CONTINUES) and token.startswith(CONTINUES)
        return token.removeprefix(CONTINUES) if continues else " " + token

    def split_word(self, word: str) -> list[str]:
        """The tokens of one word."""
        tokens = self._known.get(word)
        if tokens is None:
            if len(self._known) >= _CACHED_WORDS:
                self._known.clear()
            first, *others = (sub for part in cut_word(word) for sub in self._split(part))
            tokens = [first, *(CONTINUES + subword for subword in others)]
            self._known[word] = tokens
        return tokens

    @cached_property
    def _split(self) -> Callable[[str], list[str]]:
        if self.preset == "bpe":
            return partial(split_bpe, {pair: rank for rank, pair in enumerate(self.entries)})
        scores = dict(self.entries)
        longest = max(map(len, scores), default=1)
        return partial(split_unigram, scores, self.unknown_score, longest)

    def to_values(self) -> dict[str, Any]:
        """What was learned, as ``from_values`` reads it; no subword has a space in it."""
        return {_FORMATS[self.preset][0]: [f"{left} {right}" for left, right in self.entries]}

    @classmethod
    def from_values(cls, preset: Learned, lowercase: bool, values: dict[str, Any]) -> Self:
        """Read what ``to_values`` wrote; raises ``ValueError`` if it is damaged."""
        name, pattern, rule, key = _FORMATS[preset]
        lines = values.get(name)
        if not isinstance(lines, list):
            raise ValueError(f"{name} must be a list; each entry is {rule}")  # noqa: TRY004
        entries: list[tuple[str, Any]] = []
        for line in lines:
            parsed = re.fullmatch(pattern, line) if isinstance(line, str) else None
            if parsed is None:
                raise ValueError(f"{name}: {line!r:.60} must be {rule}")
            entries.append((parsed[1], parsed[2] if preset == "bpe" else float(parsed[2])))
        if len(set(entries) if preset == "bpe" else dict(entries)) != len(entries):
            raise ValueError(f"{key} occurs twice in {name}")
        return cls(preset, lowercase, tuple(entries))


def split_bpe(ranks: dict[tuple[str, str], int], word: str) -> list[str]:
    """The subwords of ``word`` by byte-pair encoding (Sennrich et al., 2016), on code points.

    The most important pair is merged until none is left.
    """
    parts, none = list(word), len(ranks)
    while len(parts) > 1:
        rank, at = min((ranks.get(pair, none), at) for at, pair in enumerate(pairwise(parts)))
        if rank == none:
            break
        parts[at : at + 2] = [parts[at] + parts[at + 1]]
    return parts


def split_unigram(scores: dict[str, float], unknown: float, longest: int, word: str) -> list[str]:
    """The subwords of ``word`` whose probabilities have the largest product (Kudo, 2018; Viterbi).

    ``unknown`` is the score of an unknown character, ``longest`` the length of a subword.
    """
    best = [0.0] + [-math.inf] * len(word)  # score of the first n code points
    came_from = [0] * (len(word) + 1)
    for start in range(len(word)):
        for end in range(start + 1, min(start + longest, len(word)) + 1):
            score = scores.get(word[start:end], unknown if end == start + 1 else -math.inf)
            if best[start] + score > best[end]:
                best[end], came_from[end] = best[start] + score, start
    parts, end = [], len(word)
    while end:
        parts.append(word[came_from[end] : end])
        end = came_from[end]
    return parts[::-1]


AnyTokenizer = Tokenizer | SubwordTokenizer


def read_tokenizer(values: dict[str, Any]) -> AnyTokenizer:
    """The tokenizer of a folder's ``tokenizer.json``; a ``ValueError`` names what is wrong."""
    preset, lowercase = values.get("preset"), values.get("lowercase")
    if preset not in (*PRESETS, *LEARNED):
        names = ", ".join((*PRESETS, *LEARNED))
        raise ValueError(f"preset={preset!r} must be one of {names}")
    if not isinstance(lowercase, bool):
        raise ValueError(f"lowercase={lowercase!r} must be true or false")  # noqa: TRY004
    if preset in LEARNED:
        return SubwordTokenizer.from_values(preset, lowercase, values)
    return Tokenizer(preset, lowercase)


def cut_word(word: str) -> list[str]:
    """A word in parts that are not too long to be split into subwords."""
    return [word[at : at + MAX_WORD_LENGTH] for at in range(0, len(word), MAX_WORD_LENGTH)]
