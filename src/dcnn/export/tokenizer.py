r"""The tokenizer of a model for other programs.

Patterns that any regular expression engine reads, the ``tokenizer.json`` of Hugging Face
``tokenizers``, and a script that needs numpy alone.

What ``\w`` and ``\s`` mean depends on the engine and its version of Unicode. Here they become the
ranges that they stand for in this Python, so that another engine splits as ``dcnn.text`` does.

``huggingface_json`` follows ``dcnn.text.tokenizer`` step by step. What is not obvious:

- Rust lower-cases character by character, but Python has a rule for the final sigma, so this sigma
  is replaced first.
- Invisible characters separate words, and U+2060 is one of them. Presets that use it as a marker
  first replace it in the text by its neighbour U+2061, so that it marks what no text contains: a
  placeholder of ``tweet``, which is not lower-cased (``\u2060user``), or the start of a word that
  is split into subwords.
- Byte-pair encoding merges the same pairs at the start of a word and inside it, so every merge is
  written twice. A character that is no part of any subword is a token of its own; so the library
  never joins two of them into one unknown token.
- The library needs an id for every subword that it splits into. Those outside the vocabulary,
  whose id is 0, get ids that follow the vocabulary, and the ONNX graph maps these to 0.
- Padding to length 1 makes an empty text the one unknown word that it is to the encoder.
"""

import inspect
import json
import re
from collections.abc import Iterable
from functools import cache
from pathlib import Path
from typing import Any
from unicodedata import category

from dcnn.errors import DcnnError
from dcnn.text import tokenizer as splitting
from dcnn.text import vocabulary as spelling
from dcnn.text.encoder import Encoder
from dcnn.text.tokenizer import GAP, GAPS, JOINERS, SubwordTokenizer, grouped

HUGGINGFACE, SCRIPT = "tokenizer.json", "tokenize_text.py"
UNKNOWN_TOKEN = "<unk>"  # noqa: S105
MARKER, NOT_MARKER = "\u2060", "\u2061"
_NO_ENCODER = 'r"""{"preset": "words", "lowercase": true, "vocabulary": []}"""'  # in the script
MOST_COMPARED = 5000  # words of the vocabulary
_LAST = 0x10FFFF
_ANY = r"[\x{0}-\x{10ffff}]"
_SURROGATES = "\ud800-\udfff"
_PORTABLE = re.compile(r"\\u[0-9a-f]{4}|\\[wsS]|\[\^\\W\\d_\]|\\.|[\[\]]|[^!-~]", re.DOTALL)


@cache
def _ranges(pattern: str) -> tuple[tuple[int, int], ...]:
    """The first and last of all neighbouring code points that match one of Python's classes."""
    every = "".join(map(chr, (*range(0xD800), *range(0xE000, _LAST + 1))))
    found = re.finditer(f"{pattern}+", every)
    return tuple((ord(one[0][0]), ord(one[0][-1])) for one in found)


def _escaped(code: int, javascript: bool) -> str:
    return rf"\u{{{code:x}}}" if javascript else rf"\x{{{code:x}}}"


def _class(ranges: Iterable[tuple[int, int]], javascript: bool = False) -> str:
    return "".join(
        _escaped(first, javascript) + (f"-{_escaped(last, javascript)}" if last > first else "")
        for first, last in ranges
    )


def _members(characters: Iterable[str]) -> str:
    return _class(grouped(sorted(map(ord, characters))))


def portable(pattern: re.Pattern[str] | str, javascript: bool = False) -> str:
    """A pattern of ``dcnn.text.tokenizer`` for Oniguruma, or for JavaScript with the flag ``u``."""
    text = pattern if isinstance(pattern, str) else pattern.pattern
    text = text.replace(_SURROGATES, "")
    if isinstance(pattern, str) or pattern.flags & re.VERBOSE:
        text = re.sub("[ \n]+", "", text)
    inside = False

    def translate(found: re.Match[str]) -> str:
        nonlocal inside
        part = found[0]
        if part in ("[", "]"):
            inside = part == "["
        elif part in (r"[^\W\d_]", r"\w", r"\s", r"\S"):
            listed = _class(_ranges(part.replace("S", "s")), javascript)
            return listed if inside else f"[{'^' if part[-1] == 'S' else ''}{listed}]"
        elif not part.startswith("\\"):
            return _escaped(ord(part), javascript)
        elif len(part) > 2:  # \u and four digits
            return _escaped(ord(part.encode().decode("unicode-escape")), javascript)
        return part

    return _PORTABLE.sub(translate, text)


def huggingface_json(encoder: Encoder) -> str:
    """The encoder as ``tokenizers.Tokenizer.from_file`` reads it."""
    tokenizer = encoder.tokenizer
    normalizers: list[dict[str, Any]] = [{"type": "NFC"}]
    if tokenizer.preset not in ("words", "whitespace", "characters"):
        normalizers.insert(0, _replace(MARKER, NOT_MARKER))
    if tokenizer.preset == "tweet":
        normalizers += _tweet_normalizers()
    elif tokenizer.lowercase:
        cased, ignorable = map(_class, _case_classes())
        normalizers += [_final_sigma(f"[{cased}]", f"[{ignorable}]")]
        normalizers += [{"type": "Lowercase"}, {"type": "NFC"}]
    if tokenizer.preset not in ("tweet", "whitespace"):
        normalizers.append(_replace("\u2019", "'"))
    match tokenizer.preset:
        case "whitespace":
            splits = [_matches(portable(r"[^\s]+"))]
        case "characters":
            normalizers += [
                _replace_pattern(f"[{_members(JOINERS)}]", ""),
                _replace_pattern(portable(GAPS), GAP),
                _replace_pattern(rf"\A{GAP}+|{GAP}+\z", ""),
            ]
            splits = [_matches(_ANY)]
        case "tweet":
            splits = [_matches(_token_or_placeholder())]
        case _:
            splits = [_matches(portable(splitting.unicode_token(tokenizer.preset != "words")))]
    if isinstance(tokenizer, SubwordTokenizer):
        model, known = _subword_model(tokenizer, encoder.vocabulary.words)
        start, letters = portable(MARKER), _members(known)
        known_run = f"{start}?[{letters}]+|" if known else ""
        splits += [
            {
                "type": "Metaspace",
                "replacement": MARKER,
                "prepend_scheme": "always",
                "split": False,
            },
            _matches(f"{start}?{_ANY}{{1,{splitting.MAX_WORD_LENGTH}}}"),
            _matches(f"{known_run}[^{letters}{start}]"),
        ]
    else:
        words = encoder.vocabulary.words
        if tokenizer.preset == "tweet":
            placeholders = {name: MARKER + name.lower() for name in splitting.PLACEHOLDERS}
            words = tuple(placeholders.get(word, word) for word in words)
        model = {
            "type": "WordLevel",
            "vocab": {word: index for index, word in enumerate((_unknown(words), *words))},
            "unk_token": _unknown(words),
        }
    padding = {
        "strategy": {"Fixed": 1},
        "direction": "Right",
        "pad_to_multiple_of": None,
        "pad_id": spelling.UNKNOWN,
        "pad_type_id": 0,
        "pad_token": model.get("unk_token", UNKNOWN_TOKEN),
    }
    described: dict[str, Any] = {
        "version": "1.0",
        "truncation": None,
        "padding": padding,
        "added_tokens": [],
        "normalizer": {"type": "Sequence", "normalizers": normalizers},
        "pre_tokenizer": {"type": "Sequence", "pretokenizers": splits},
        "post_processor": None,
        "decoder": None,
        "model": model,
    }
    return json.dumps(described, ensure_ascii=False, indent=0)


def _replace(text: str, by: str) -> dict[str, Any]:
    return {"type": "Replace", "pattern": {"String": text}, "content": by}


def _replace_pattern(pattern: str, by: str) -> dict[str, Any]:
    return {"type": "Replace", "pattern": {"Regex": pattern}, "content": by}


def _matches(pattern: str) -> dict[str, Any]:
    """What matches is a token; what is between the matches is dropped."""
    return {"type": "Split", "pattern": {"Regex": pattern}, "behavior": "Removed", "invert": True}


def _unknown(words: Iterable[str]) -> str:
    """A name for the unknown word that is none of the words."""
    name, taken = UNKNOWN_TOKEN, set(words)
    while name in taken:
        name = f"<{name}>"
    return name


@cache
def _case_classes() -> tuple[list[tuple[int, int]], list[tuple[int, int]]]:
    """Cased characters, and those that the rule of the final sigma passes over."""
    every = map(chr, (*range(0xD800), *range(0xE000, _LAST + 1)))
    kinds = ("Mn", "Me", "Cf", "Lm", "Sk", "P")  # Case_Ignorable has no others
    cased, ignorable = [], []
    for sign in every:
        if sign.isupper() or sign.islower() or sign.istitle() or category(sign).startswith(kinds):
            if (sign + "Σ").lower()[-1] == "ς":
                cased.append(ord(sign))
            elif ("A" + sign + "Σ").lower()[-1] == "ς":
                ignorable.append(ord(sign))
    return grouped(cased), grouped(ignorable)


def _final_sigma(cased: str, ignorable: str) -> dict[str, Any]:
    r"""Unicode's rule: after a cased letter and before none. ``\K`` starts what is replaced."""
    return _replace_pattern(rf"{cased}{ignorable}*\KΣ(?!{ignorable}*{cased})", "ς")


def _token_or_placeholder() -> str:
    names = "|".join(name.lower() for name in splitting.PLACEHOLDERS)
    return f"{portable(MARKER)}(?:{names})|{portable(splitting.unicode_token())}"


def _tweet_normalizers() -> list[dict[str, Any]]:
    """Links, mentions, repeated letters and case, as ``Tokenizer`` treats them."""
    found = zip(splitting.PLACEHOLDERS, (splitting.MENTION, splitting.LINK), strict=True)
    masks = [_replace_pattern(portable(p), f" {MARKER}{name.lower()} ") for name, p in found]
    one = portable(r"[^\W\d_]")
    squeeze = _replace_pattern(rf"({one})\1\K\1+", "")
    letter = portable(splitting.letter_pattern())
    # A whole token that reads like a placeholder is one. \G and the atomic groups go through the
    # text token by token, as the split will.
    literal = [
        _replace_pattern(
            rf"\G(?>(?:(?!{whole})(?>{_token_or_placeholder()}|{_ANY}))*)\K{whole}",
            MARKER + name.lower(),
        )
        for name in splitting.PLACEHOLDERS
        for whole in [f"{name}(?!'?{letter})"]
    ]
    # Tokens are lower-cased one by one, so that the rule of the sigma ends where they end.
    cased, ignorable = map(_class, _case_classes())
    inside = rf"(?:(?=[{ignorable}]){letter}|'(?={letter}))"
    sigma = _final_sigma(f"(?:(?=[{cased}]){letter})", inside)
    return [
        *reversed(masks),
        squeeze,
        _replace("\u2019", "'"),
        *literal,
        sigma,
        {"type": "Lowercase"},
        squeeze,
    ]


def _subword_model(
    tokenizer: SubwordTokenizer, words: Iterable[str]
) -> tuple[dict[str, Any], set[str]]:
    """A model of the library, and the characters that are part of a subword.

    Its tokens at the start of a word begin with ``MARKER``.
    """

    def spelled(word: str) -> str:
        text = tokenizer.spell(word)
        return MARKER + text[1:] if text.startswith(" ") else text

    names = [spelled(word) for word in words]
    if tokenizer.preset == "unigram":
        return _unigram_model(dict(tokenizer.entries), names)
    single = {name.removeprefix(MARKER) for name in names if len(name.removeprefix(MARKER)) == 1}
    known = single.union(*(left + right for left, right in tokenizer.entries))
    merges = [(MARKER, letter) for letter in sorted(known)]
    merges += [(at + left, right) for left, right in tokenizer.entries for at in (MARKER, "")]
    made = [MARKER, *sorted(known), *(left + right for left, right in merges)]
    vocabulary = dict.fromkeys([UNKNOWN_TOKEN, *names, *made])
    model = {
        "type": "BPE",
        "dropout": None,
        "unk_token": UNKNOWN_TOKEN,
        "continuing_subword_prefix": None,
        "end_of_word_suffix": None,
        "fuse_unk": False,
        "byte_fallback": False,
        "ignore_merges": False,
        "vocab": {token: index for index, token in enumerate(vocabulary)},
        "merges": merges,
    }
    return model, known


def _unigram_model(scores: dict[str, float], names: list[str]) -> tuple[dict[str, Any], set[str]]:
    single = {name.removeprefix(MARKER) for name in names if len(name.removeprefix(MARKER)) == 1}
    known = single.union(*scores)
    least = min(scores.values(), default=0.0) - splitting.UNKNOWN_PENALTY
    scores = scores | {letter: scores.get(letter, least) for letter in known}
    rows: list[tuple[str, float]] = [(UNKNOWN_TOKEN, 0.0)]
    # The id of a token is its place. A token that splitting never gives cannot match any text.
    for name in names:
        piece = name.removeprefix(MARKER)
        rows.append((name, scores[piece]) if piece in scores else (name + MARKER, 0.0))
    there = {name for name, _ in rows}
    rows += [(at + p, s) for p, s in scores.items() for at in ("", MARKER) if at + p not in there]
    model = {"type": "Unigram", "unk_id": spelling.UNKNOWN, "vocab": rows, "byte_fallback": False}
    return model, known


def check_huggingface(content: str, encoder: Encoder) -> None:
    """Compare the library with the encoder on words of the vocabulary, if it is installed.

    Raises:
        DcnnError: ids differ, for instance of a character that one of the two does not know yet.
    """
    try:
        from tokenizers import Tokenizer
    except ImportError:
        return
    words = encoder.vocabulary.words[:MOST_COMPARED]
    texts = [*words, "", "\u03a3 ΑΣ. don\u2019t @a http://b aaaa 1,5 哈哈哈"]
    texts += [f"{one.upper()} {two.title()}'{two}" for one, two in zip(words, words[::-1])]  # noqa: B905
    for text, found in zip(texts, Tokenizer.from_str(content).encode_batch(texts), strict=True):
        ids = [one if one < len(encoder.vocabulary) else spelling.UNKNOWN for one in found.ids]
        expected = encoder.vocabulary.ids(encoder.tokenizer(text)) or [spelling.UNKNOWN]
        if ids != expected:
            raise DcnnError(
                f"{HUGGINGFACE} gives the text {text!r:.60} the ids {ids} where the model has "
                f"{expected}, so nothing was written; please report it with the model folder"
            )


def script_text(encoder: Encoder) -> str:
    """``tokenize_text.py`` of an encoder: the code of this package with its data, in one file."""
    text = (Path(__file__).parent / SCRIPT).read_text("utf-8")
    _, _, code = inspect.getsource(splitting).split('"""', 2)
    parts: list[Any] = [spelling.Bags, spelling.CharNgrams, spelling.marked]
    ngrams = [
        "from collections.abc import Sequence",
        "from typing import NamedTuple\nfrom zlib import crc32",
        f"UNKNOWN, MAX_SPELLED = {spelling.UNKNOWN}, {spelling.MAX_SPELLED}",
        *(inspect.getsource(part) for part in parts),
    ]
    # No JSON string ends a raw string of three quotes if its own quotes are all escaped.
    data = encoder.to_json().replace("'", r"\u0027")
    for before, after in (
        ("import json\n", "from __future__ import annotations\n\nimport json\n"),
        ("from dcnn.text.tokenizer import read_tokenizer\n", code.strip() + "\n"),
        ("from dcnn.text.vocabulary import UNKNOWN, CharNgrams\n", "\n\n".join(ngrams)),
        (_NO_ENCODER, f"r'''{data}'''"),
    ):
        head, found, tail = text.partition(before)
        if not found:
            raise AssertionError(f"{SCRIPT} has no {before!r}")
        text = head + after + tail
    return text
