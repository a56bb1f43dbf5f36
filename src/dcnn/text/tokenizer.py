"""Splitting a text into tokens, the same in training and in prediction.

Four presets; ``dcnn.text.encoder`` has two more, which are learned:

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
"""

import re
import unicodedata
from dataclasses import dataclass
from functools import cache, lru_cache
from itertools import chain
from typing import Literal

Preset = Literal["words", "tweet", "whitespace", "characters"]
PRESETS: tuple[Preset, ...] = ("words", "tweet", "whitespace", "characters")
GAP = "\u2423"  # the open box, a visible token for a space

_ASCII_TOKEN = re.compile(
    r"""
    [0-9]+ (?: [.,][0-9]+ )+ (?! \w )         # 1,000 and 3.14, but not 3.11rc1
    | \w+ (?: ' \w+ )*                        # don't
    | [!-/:-@\[-`{-~]
    """,
    re.VERBOSE | re.ASCII,
)

# Letters of scripts that put no space between words: CJK and kana, Thai, Lao, Burmese, Khmer.
_SPACELESS = (
    "\u3005-\u3007\u3041-\u30ff\u31f0-\u31ff\u3400-\u4dbf\u4e00-\u9fff\uf900-\ufaff\uff66-\uff9d"
    "\U0001b000-\U0001b16f\U00020000-\U000323af"
    "\u0e01-\u0e2e\u0e30\u0e32-\u0e33\u0e40-\u0e46\u0e81-\u0eb0\u0eb2-\u0eb3\u0ebd-\u0ec6"
    "\u1000-\u102a\u103f\u1780-\u17b3"
)
_JOINERS = "\u200c\u200d"  # zero-width, but part of the word in Persian and Indic scripts
_WITHOUT_JOINERS = str.maketrans("\u2019", "'", _JOINERS)
_INVISIBLE = (
    "\\s\u0000-\u001f\u007f-\u00a0\u00ad\u061c\u180e\u200b-\u200f\u2028-\u202f\u2060-\u206f\ufeff"
    "\ufff9-\ufffb\ud800-\udfff\U000e0000-\U000e007f"
)
_FLAG_LETTERS = "\U0001f1e6-\U0001f1ff"
_SKIN_TONES = "\U0001f3fb-\U0001f3ff"
# Combining marks are in the first two planes; variation selectors at the start of the fifteenth.
_MARK_PLANES = (range(0x0300, 0x20000), range(0xE0100, 0xE01F0))
_GAPS = re.compile(f"[{_INVISIBLE}]+")


@cache
def _marks() -> str:
    r"""All combining marks as ranges of a regular expression; finding them takes a moment.

    ``\w`` leaves them out, and without them Hindi and Thai words would be split.
    """
    ranges: list[list[int]] = []
    for code in chain.from_iterable(_MARK_PLANES):
        if not unicodedata.category(chr(code)).startswith("M"):
            continue
        if ranges and code == ranges[-1][1] + 1:
            ranges[-1][1] = code
        else:
            ranges.append([code, code])
    return "".join(f"{chr(first)}-{chr(last)}" for first, last in ranges)


@cache
def _unicode_token(runs: bool = False) -> re.Pattern[str]:
    """The pattern for text beyond ASCII; ``runs`` as in ``Tokenizer``."""
    marks = _marks()
    letter = rf"(?: (?![{_SPACELESS}]) [\w{marks}{_JOINERS}] )"
    return re.compile(
        rf"""
        [0-9]+ (?: [.,][0-9]+ )+ (?! {letter} )
        | (?: [{_SPACELESS}] [{marks}]* ){"+" if runs else ""}
        | (?![{_JOINERS}]) {letter}+ (?: ' {letter}+ )*
        | [{_FLAG_LETTERS}]{{2}}
        | [^\w{marks}{_INVISIBLE}] (?: [{marks}{_SKIN_TONES}] | \u200d [^\w{_INVISIBLE}] )*
        """,
        re.VERBOSE,
    )


_LONE_SURROGATE = re.compile("[\ud800-\udfff]")
# What no label may hold, as it would not stay where it is printed: control characters, which drive
# terminals, line ends, marks that turn the writing around, and halves of characters.
UNPRINTABLE = re.compile("[\0-\x1f\x7f-\x9f\u2028-\u202e\u2066-\u2069\ud800-\udfff]")
_LINK = re.compile(r"(?<!\w)(?:https?://|www\.)\S+", re.IGNORECASE)
_MENTION = re.compile(r"(?<!\w)@\w+")
_REPEATED_LETTER = re.compile(r"([^\W\d_])\1{2,}")
_PLACEHOLDERS = ("USER", "URL")
_LONG_TEXT = 1000  # above it, runs of combining marks are cut as in Unicode's stream-safe format
_GRAPHEME_JOINER = "\u034f"


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
        text = _composed(text)
        match self.preset:
            case "whitespace":
                return self._cased(text).split()
            case "words":
                return _split_words(self._cased(text), self.runs)
            case "tweet":
                return list(map(_tweet_word, _split_words(_masked(text))))
            case "characters":
                text = self._cased(text).translate(_WITHOUT_JOINERS)
                return list(_GAPS.sub(GAP, text).strip(GAP))

    def spell(self, token: str) -> str:
        """What a token adds to a text: a word has a space before it."""
        if self.preset == "characters":
            return token.replace(GAP, " ")
        return " " + token

    def _cased(self, text: str) -> str:
        return _composed(text.lower()) if self.lowercase else text


def _masked(text: str) -> str:
    """A tweet with its links and mentions replaced; most have neither, and the check is cheap."""
    if "://" in text or "www." in text.lower():
        text = _LINK.sub(" URL ", text)
    if "@" in text:
        text = _MENTION.sub(" USER ", text)
    # Spaceless scripts give one token per letter, so repeated ones must go before the split.
    return text if text.isascii() else _REPEATED_LETTER.sub(r"\1\1", text)


@lru_cache(maxsize=1 << 17)  # tweets repeat their words
def _tweet_word(token: str) -> str:
    return token if token in _PLACEHOLDERS else _REPEATED_LETTER.sub(r"\1\1", token.lower())


def _composed(text: str) -> str:
    if text.isascii():
        return text
    if len(text) > _LONG_TEXT:  # the time to sort a run of marks is quadratic in its length
        mark = f"(?:(?!{_GRAPHEME_JOINER})[{_marks()}])"
        text = re.sub(f"({mark}{{30}})(?={mark})", rf"\1{_GRAPHEME_JOINER}", text)
    return unicodedata.normalize("NFC", _LONE_SURROGATE.sub(" ", text))


def _split_words(text: str, runs: bool = False) -> list[str]:
    if text.isascii():
        return _ASCII_TOKEN.findall(text)
    return _unicode_token(runs).findall(text.replace("\u2019", "'"))
