"""How large a model folder will be, before anything is trained.

The weights follow from the shapes and the vocabulary from the word counts. What a run notes of
itself in ``config.json`` and the card is not known beforehand: an allowance stands for it, so that
a prediction is never too small.
"""

import json
import math
import re
from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from dcnn.artifact import Artifact, folder_size
from dcnn.config import Config
from dcnn.errors import UserError
from dcnn.text.encoder import Encoder
from dcnn.text.learned_pieces import learn_tokenizer
from dcnn.text.vocabulary import Vocabulary

FEWEST_WORDS = 100  # a network that leaves room for fewer is not worth training
_FACTS = 4096
_TENSOR_HEADER = 160
_UNITS = {"": 1, "B": 1, "KB": 10**3, "MB": 10**6, "GB": 10**9}
_UNITS |= {"KIB": 2**10, "MIB": 2**20, "GIB": 2**30}
_SIZE = re.compile(r"([0-9]+(?:\.[0-9]+)?)\s*([A-Z]*)")


def parse_size(text: str) -> int:
    """Bytes of ``2MB``, ``500 kB``, ``1.5MiB`` or a plain number."""
    match = _SIZE.fullmatch(text.strip().upper())
    if match is None or match[2] not in _UNITS or not (size := float(match[1]) * _UNITS[match[2]]):
        raise UserError(f"--max-size {text!r} must be a size above 0, such as 2MB or 500KB")
    return int(size)


def show_size(size: float) -> str:
    """A number of bytes for people."""
    return f"{size / 1e6:.2f} MB" if size >= 1e6 else f"{size / 1e3:.0f} KB"


class FolderSizes:
    """The sizes of the folders that models of these texts may have.

    Args:
        name: of the folder.
        texts: the training set.
        config: whose tokenizer splits them; a search leaves that as it is.
        classes: the labels.
        limit: the most bytes a folder may take; none is no limit.
    """

    def __init__(
        self,
        name: str,
        texts: Sequence[str],
        config: Config,
        classes: Sequence[str],
        limit: int | None = None,
    ) -> None:
        self.name, self.classes, self.limit = name, tuple(classes), limit
        self.tokenizer, (words, numbers, _) = learn_tokenizer(config.text, texts)
        counts = np.bincount(numbers, minlength=len(words))
        order = np.argsort(-counts, kind="stable")
        self._counts = counts[order]
        lines = [len(json.dumps(words[i], ensure_ascii=False).encode()) + 2 for i in order]
        self._bytes = np.concatenate([[0], np.cumsum(lines, dtype=np.int64)])

    def words(self, config: Config) -> int:
        """How many words the model will know, as ``Encoder.learn`` decides."""
        kept = int((self._counts >= config.text.min_count).sum())
        return min(kept, config.text.max_size) if config.text.max_size else kept

    def of(self, config: Config, words: int | None = None) -> int:
        """An upper bound of the folder's bytes, tight to some kilobytes."""
        words = self.words(config) if words is None else words
        shapes = config.model.parameter_shapes(words + 1, len(self.classes))
        weights = sum(4 * math.prod(shape) + _TENSOR_HEADER for shape in shapes.values())
        empty = Encoder(self.tokenizer, Vocabulary([]))
        rest = folder_size(self.name, Artifact(config, self.classes, empty, {}))
        return weights + int(self._bytes[words]) + rest + _FACTS

    def fitted(self, config: Config) -> Config | None:
        """``config`` with as many of its words, the most frequent, as the limit has room for.

        None where the network leaves room for hardly any.
        """
        if self.limit is None or self.of(config) <= self.limit:
            return config
        low, high = 0, self.words(config)  # what fits, and what does not
        while high - low > 1:
            middle = (low + high) // 2
            low, high = (middle, high) if self.of(config, middle) <= self.limit else (low, middle)
        if low < min(FEWEST_WORDS, self.words(config)):
            return None
        return replace(config, text=replace(config.text, max_size=low))
