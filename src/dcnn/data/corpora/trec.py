"""The TREC questions (Li and Roth 2002; Sect. 5.3): ``COARSE:fine question`` per line."""

from pathlib import Path

from dcnn.data.labels import LabelledTexts, Place, number_labels
from dcnn.errors import DataError
from dcnn.files import open_bytes


def read_trec(path: Path, fine: bool = False) -> LabelledTexts:
    """Read ``train_5500.label`` or ``TREC_10.label``, which are latin-1.

    The labels are the 6 coarse types (``LOC``), or the 50 fine ones (``LOC:city``).
    """
    texts, labels, places = [], [], []
    with open_bytes(path) as stream:
        for number, raw in enumerate(stream, start=1):
            label, space, question = raw.decode("latin-1").strip().partition(" ")
            coarse, colon, _ = label.partition(":")
            if not (space and colon):
                raise DataError(
                    f"{path}, line {number}: expected 'COARSE:fine question'; got {raw[:60]!r}"
                )
            texts.append(question)
            labels.append(label if fine else coarse)
            places.append(Place(str(path), number))
    if not texts:
        raise DataError(f"{path} is empty; download the TREC questions again")
    return number_labels(texts, labels, source=str(path), places=places)
