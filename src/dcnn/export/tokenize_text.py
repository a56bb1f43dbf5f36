"""Texts as the inputs of an exported model: ids, lengths and the character n-grams of new words.

    session = onnxruntime.InferenceSession("my-model.onnx")
    (probabilities,) = session.run(None, inputs(["a text", "another text"]))

It needs Python 3.11 and numpy. ``python tokenize_text.py "a text"`` prints the inputs as JSON.
"""

import json
import sys
from typing import Any

import numpy as np

from dcnn.text.tokenizer import read_tokenizer
from dcnn.text.vocabulary import UNKNOWN, CharNgrams

# The encoder of the model, as in the tokenizer.json of its folder.
ENCODER = json.loads(r"""{"preset": "words", "lowercase": true, "vocabulary": []}""")
IDS = {word: number for number, word in enumerate(ENCODER["vocabulary"], start=1)}
NGRAMS = CharNgrams(**ENCODER["char_ngrams"]) if "char_ngrams" in ENCODER else None

tokens = read_tokenizer(ENCODER)  # tokens(text) is the list of its tokens


def ids(text: str) -> list[int]:
    """The id of every token; of one that is not in the vocabulary, and of an empty text, 0."""
    return [IDS.get(token, UNKNOWN) for token in tokens(text)] or [UNKNOWN]


def inputs(texts: list[str]) -> dict[str, Any]:
    """The texts as one batch: ids (batch, length) and lengths (batch,).

    If words have character n-grams, also ngrams (batch, length, n-grams).
    """
    split = [tokens(text) for text in texts]
    rows = [[IDS.get(token, UNKNOWN) for token in one] or [UNKNOWN] for one in split]
    found = {"ids": _padded(rows, UNKNOWN, 1), "lengths": np.array(list(map(len, rows)), np.int64)}
    if NGRAMS is not None:
        new = [list(map(_buckets, one)) for one in split]
        most = max((len(one) for row in new for one in row), default=0)
        none, (batch, length) = NGRAMS.n_buckets, found["ids"].shape
        filled = [_padded(row, none, most, length) for row in new]
        found["ngrams"] = np.array(filled, np.int64).reshape(batch, length, most)
    return found


def _buckets(token: str) -> list[int]:
    """The n-grams of a word that is not in the vocabulary; the others need none."""
    return [] if token in IDS or NGRAMS is None else NGRAMS.buckets(token)


def _padded(rows: list[list[int]], filler: int, least: int, count: int = 0) -> Any:
    """(rows or ``count``, longest row or ``least``)."""
    width = max(map(len, rows), default=0)
    array = np.full((max(len(rows), count), max(width, least)), filler, np.int64)
    for row, values in zip(array, rows, strict=False):
        row[: len(values)] = values
    return array


if __name__ == "__main__":
    print(json.dumps({name: array.tolist() for name, array in inputs(sys.argv[1:]).items()}))
