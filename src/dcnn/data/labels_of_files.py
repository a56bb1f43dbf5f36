"""The labels of a corpus in many files that were read apart: counted, and checked to be one coding.

Read one after another, a file is compared with those before it while its rows come
(``dcnn.data.shard_reader``). Here all have been read, in any order, and what they say is put
together.
"""

from collections import Counter
from collections.abc import Sequence

from dcnn.data.encoding import EncodedFile
from dcnn.data.label_checks import one_label_only
from dcnn.data.messages import shown, shown_names
from dcnn.errors import DataError

_KINDS = {"str": "strings", "bool": "booleans", "int": "integers", "float": "numbers"}


def count_labels(files: Sequence[EncodedFile], source: str, *, splits: bool) -> Counter[str]:
    """Examples of each label.

    Args:
        files: of one corpus, in their order.
        source: what the user named, for messages.
        splits: whether a dev set is held out, so that every label is needed twice.

    Raises:
        DataError: the labels change from one file to another, or nothing can be learned from them.
    """
    _check_kinds(files)
    _check_codings(files)
    counts: Counter[str] = Counter()
    for file in files:
        counts.update(_labels(file))
    if not counts:
        raise DataError(f"{source}: no rows can be read from any of its {len(files)} files")
    if len(counts) == 1:
        raise one_label_only(source, next(iter(counts)))
    single = [label for label, count in counts.items() if count == 1]
    if splits and single:
        where = next(file.source for file in files if single[0] in _labels(file))
        raise DataError(
            f"{where}: the label {shown(single[0])} has a single example in all files, too few for "
            "both training and the dev set held out from it; add examples, drop the label, or give "
            "a dev file"
        )
    return counts


def _labels(file: EncodedFile) -> Counter[str]:
    counts: Counter[str] = Counter()
    for block in file.blocks:
        counts.update(dict(zip(block.labels, block.counts, strict=True)))
    return counts


def _check_kinds(files: Sequence[EncodedFile]) -> None:
    """Integers in one file and strings in another are likely two codings."""
    known: dict[str, str] = {}
    for file in files:
        for kind in file.kinds:
            others = {source: other for other, source in known.items() if source != file.source}
            if kind not in known and others:
                source, other = next(iter(others.items()))
                raise DataError(
                    f"{file.source}: its labels are {_KINDS[kind]}, where those of {source} are "
                    f"{_KINDS[other]}; write the labels of all files alike"
                )
            known.setdefault(kind, file.source)


def _check_codings(files: Sequence[EncodedFile]) -> None:
    """Two files of several labels each that share none of them do not mean the same ones.

    A file with one label says nothing: a corpus may be sorted by label.
    """
    first: EncodedFile | None = None
    known: set[str] = set()
    for file in files:
        labels = _labels(file)
        if len(labels) < 2:
            continue
        if first is not None and known.isdisjoint(labels):
            raise DataError(
                f"{file.source}: its labels are {shown_names(labels)}, and {first.source} has "
                f"{shown_names(_labels(first))} and none of these; write the labels of all files "
                "alike, or leave out the files that are not of this corpus"
            )
        first = first or file
        known |= set(labels)
