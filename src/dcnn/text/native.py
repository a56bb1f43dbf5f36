"""The tokenizers of ``dcnn.text.tokenizer`` in the native library: the same tokens, faster.

The library splits texts and knows the characters of ASCII. Of all others it is given the classes
and the lower case, when the first text needs them, as this interpreter has them: versions of
Unicode differ. What is not ASCII is composed and lower-cased here, since Python's own functions for
that are compiled. The few tweets whose lower case depends on more than each character are split
here as well.
"""

import re
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
    """A tokenizer in the library that knows ``words``, in the order of their ids."""

    def __init__(self, tokenizer: AnyTokenizer, words: Sequence[str] = ()) -> None:
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

    def tokenize(self, texts: Sequence[str]) -> tuple[list[str], Any, Any]:
        """Distinct tokens in the order of first occurrence, their places, and tokens per text."""
        return self.handle.tokenize(*self.prepared(texts))

    def prepared(self, texts: Sequence[str]) -> tuple[Sequence[str], bytes | None]:
        """Texts as the library splits them, and a byte per text that is split already, or none."""
        if "".join(texts).isascii():
            return texts, None
        whole = _give_characters()
        split = bytearray(len(texts))
        prepared = list(texts)
        for place, text in enumerate(texts):
            if text.isascii():
                continue
            if self.tokenizer.preset == "tweet" and whole.search(text):
                prepared[place], split[place] = " ".join(self.tokenizer(text)), 1
            else:
                text = self._splitter.normalized(text)
                plain = self.tokenizer.preset == "whitespace"
                prepared[place] = text if plain else text.replace("\u2019", "'")
        return prepared, bytes(split) if any(split) else None


@lru_cache(maxsize=4)
def native_tokenizer(tokenizer: AnyTokenizer) -> NativeTokenizer:
    """``tokenizer`` in the library, without words."""
    return NativeTokenizer(tokenizer)


@cache
def _give_characters() -> re.Pattern[str]:
    """Tell the library the classes and the lower case of characters.

    Returns a pattern of those whose lower case is more than one character or depends on others.
    """
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
    # The library reads them where they are, as long as the process lives.
    _given.extend((classes, lower))
    places = map(native.address, (classes, lower))
    native.library().dcnn_unicode(*places, len(classes))
    return re.compile(f"[{special}]")


_given: list[NDArray[Any]] = []
