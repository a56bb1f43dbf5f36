"""New texts from labelled ones, for a teacher to label where nobody wrote more.

Three operations, chosen at random: words are replaced by words of other texts, the start of one
text is spliced to the end of another, and an n-gram of a text stands alone (starts more often,
since a student reads whole texts). None keeps the label, which is why only a teacher can label the
result. Tang et al. (2019, arXiv:1903.12136) distil BERT with such texts.
"""

from collections.abc import Sequence

import numpy as np

REPLACED = 0.2  # of the words, in a text whose words are replaced
STARTS = 0.6  # of the n-grams are from the start of their text


def augment(texts: Sequence[str], copies: int, seed: int = 0) -> list[str]:
    """About ``copies`` new texts per text, none of them twice and none of ``texts``.

    A text is split at white space; one of a script without spaces, at characters.
    """
    rng = np.random.default_rng((seed, 3))
    split = [_split(text) for text in (texts if copies else ())]
    vocabulary = [word for words, _ in split for word in words]
    found: dict[str, None] = {}
    if not vocabulary:
        return []
    for words, joiner in split * copies:
        if not words:
            continue
        operation = rng.random()
        if operation < 0.4:
            drawn = rng.random(len(words)) < REPLACED
            other = rng.integers(len(vocabulary), size=len(words))
            new = [
                vocabulary[place] if replaced else word
                for word, replaced, place in zip(words, drawn, other, strict=True)
            ]
        elif operation < 0.7:
            ending = split[rng.integers(len(split))][0]
            cut = int(rng.integers(1, max(2, min(len(words), len(ending)))))
            new = words[:cut] + ending[cut:]
        else:
            size = int(rng.integers(1, len(words) + 1))
            first = 0 if rng.random() < STARTS else int(rng.integers(len(words) - size + 1))
            new = words[first : first + size]
        found[joiner.join(new)] = None
    for text in texts:
        found.pop(text, None)
    return list(found)


def _split(text: str) -> tuple[list[str], str]:
    words = text.split()
    return (words, " ") if len(words) > 1 or text.isascii() else (list(text.strip()), "")
