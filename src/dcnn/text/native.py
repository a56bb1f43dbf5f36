"""The tokenizers of ``dcnn.text.tokenizer`` in the native library: the same tokens, faster.

The library splits texts and knows ASCII. It gets the classes and the lower case of all other
characters from this interpreter when a text first needs them, since versions of Unicode differ.
Text beyond ASCII is composed and lower-cased here, since Python's functions for that are compiled.
The few tweets that cannot be lower-cased character by character are also split here, and so are the
first texts beyond ASCII: a process that reads only a few of them need not wait for the tables of
all characters.
"""

import re
import threading
from collections.abc import Sequence
from functools import cache, lru_cache
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dcnn.ops import native, select
from dcnn.text import tokenizer as definition
from dcnn.text.tokenizer import LEARNED, PRESETS, AnyTokenizer, SubwordTokenizer

_KNOWN = 0x40000  # code points from here on are not assigned, but for those of ``_BEYOND``
_BEYOND = range(0xE0000, 0xE1000)


def available() -> bool:
    """Whether the library splits texts; ``DCNN_BACKEND=reference`` leaves it to Python."""
    return select.forced() != "reference" and native.available()


class NativeTokenizer:
    """A tokenizer in the library that knows ``words``, in the order of their ids.

    The ``first`` texts beyond ASCII are split in Python, before the tables are made.
    """

    def __init__(
        self, tokenizer: AnyTokenizer, words: Sequence[str] = (), first: int = 1000
    ) -> None:
        preset = (*PRESETS, *LEARNED).index(tokenizer.preset)
        learned: dict[str, Any] = {}
        if isinstance(tokenizer, SubwordTokenizer):
            left, right = zip(*tokenizer.entries, strict=True) if tokenizer.entries else ((), ())
            learned = {"left": left}
            learned |= {"right": right} if tokenizer.preset == "bpe" else {"scores": right}
            learned["unknown"] = tokenizer.unknown_score
            splitter = tokenizer.splitter
        else:
            splitter = tokenizer
        self.tokenizer, self._splitter = tokenizer, splitter
        kind = preset, tokenizer.lowercase, splitter.runs
        self.handle = native.TextTokenizer(*kind, words=words, **learned)
        # The tables take as long as ten thousand texts in Python.
        self._first = first if tokenizer.preset in ("words", "tweet") else 0

    def tokenize(self, texts: Sequence[str]) -> tuple[list[str], Any, Any]:
        """Distinct tokens in the order of first occurrence, their places, and tokens per text."""
        return self.handle.tokenize(*self.prepared(texts))

    def prepared(self, texts: Sequence[str]) -> tuple[Sequence[str], bytes | None]:
        """Texts for the library, and a byte per text, 1 if it is already split; None if none is."""
        if "".join(texts).isascii():
            return texts, None
        self._first -= len(texts)
        whole = _give_characters() if self._first < 0 else None
        split = bytearray(len(texts))
        prepared = list(texts)
        for place, text in enumerate(texts):
            if text.isascii():
                continue
            composed = self._splitter.normalized(text)
            if whole is None or (self.tokenizer.preset == "tweet" and whole.search(composed)):
                prepared[place], split[place] = " ".join(self.tokenizer(text)), 1
            else:
                plain = self.tokenizer.preset == "whitespace"
                prepared[place] = composed if plain else composed.replace("\u2019", "'")
        return prepared, bytes(split) if any(split) else None


@lru_cache(maxsize=4)
def native_tokenizer(tokenizer: AnyTokenizer) -> NativeTokenizer:
    """``tokenizer`` in the library, without words."""
    return NativeTokenizer(tokenizer)


def _give_characters() -> re.Pattern[str]:
    """Tell the library the classes and the lower case of characters, once.

    Returns a pattern of characters whose lower case has several characters or depends on others.
    """
    with _giving:  # the library reads the tables without a lock
        return _characters()


@cache
def _characters() -> re.Pattern[str]:
    numbers = np.concatenate([np.arange(_KNOWN), np.array(_BEYOND)]).astype("<u4")
    characters = numbers.tobytes().decode("utf-32-le", "surrogatepass")
    classes: NDArray[Any] = np.zeros(_BEYOND.stop, np.uint8)
    for bit, group in enumerate(
        (
            *(r"\w", definition.marks_class(), definition.SPACELESS, definition.INVISIBLE, r"\s"),
            *(r"^\W\d_", definition.FLAG_LETTERS, definition.SKIN_TONES),
        )
    ):
        for found in re.finditer(f"[{group}]+", characters):
            classes[numbers[slice(*found.span())]] |= 1 << bit
    lower = np.arange(_BEYOND.stop, dtype=np.uint32)
    alone = [one for one in characters.upper() + characters if len(one.lower()) != 1]
    special = "".join({"\u03a3", *alone})  # capital sigma is written otherwise at the end of a word
    plain = re.sub(f"[{special}]", "", characters)
    changed = np.frombuffer(plain.encode("utf-32-le", "surrogatepass"), "<u4")
    lower[changed] = np.frombuffer(plain.lower().encode("utf-32-le", "surrogatepass"), "<u4")
    # The library keeps pointers to these arrays, so they must live as long as the process.
    _given.extend((classes, lower))
    places = map(native.address, (classes, lower))
    native.library().dcnn_unicode(*places, len(classes))
    return re.compile(f"[{special}]")


_given: list[NDArray[Any]] = []
_giving = threading.Lock()
