"""The built-in corpus: English opinions whose label depends on the order of the words.

Every sentence was generated, none was collected: ``benchmarks/opinions.py`` wrote ``opinions.tsv``,
so that a model can be trained and shown without a download. It is a demonstration, not a benchmark
of sentiment. The label of a sentence follows from its structure, and its words alone say little.

Train, dev and test share neither skeletons, which are sentences with their nouns and opinion words
blanked, nor pairs of a noun and a word said of it, such as (plot, dull). The parts of a test
sentence are not new: every word, and every option of every pattern, is in the training sentences.
"""

from pathlib import Path
from typing import NamedTuple


class Opinion(NamedTuple):
    """A sentence of the corpus."""

    text: str
    label: str  # positive or negative: what it says of the reviewed work
    construct: str  # the phenomenon that decides the label, such as negation


def read_opinions() -> dict[str, list[Opinion]]:
    """The corpus that the package ships: ``train``, ``dev`` and ``test``."""
    corpus: dict[str, list[Opinion]] = {}
    table = Path(__file__).with_suffix(".tsv").read_text(encoding="utf-8")
    for line in table.splitlines()[1:]:
        split, *columns = line.split("\t")
        corpus.setdefault(split, []).append(Opinion(*columns))
    return corpus
