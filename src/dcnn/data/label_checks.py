"""Whether a classifier can learn from the labels of a training set, and knows those of another."""

from collections import Counter
from collections.abc import Collection

from dcnn.data.columns import LABEL_OPTION
from dcnn.data.label_sets import SEPARATOR_OPTION
from dcnn.data.messages import did_you_mean, shown, shown_names
from dcnn.data.tables import LabelledTexts
from dcnn.errors import DataError


def check_training_labels(examples: LabelledTexts, *, splits: bool) -> None:
    """Check that a classifier can learn from these labels.

    Args:
        examples: the training set.
        splits: whether a dev set is held out from it, so that every label is needed twice; where a
            text may have several, a label with one example stays in training.

    Raises:
        DataError: there are fewer than two labels, or a label to be split has a single example.
    """
    counts = Counter(label for labels in examples.each for label in labels)
    if examples.many and len(counts) < 2:
        found = f"the label {shown(next(iter(counts)))} alone" if counts else "no label at all"
        raise DataError(
            f"{examples.source} has {found}; add rows with others, choose with {LABEL_OPTION}, "
            f"or split its cells with {SEPARATOR_OPTION}"
        )
    if len(counts) == 1:
        raise one_label_only(examples.source, examples.labels[0])
    single = [label for label, count in counts.items() if count == 1]
    if splits and single and not examples.many:
        where = examples.where(examples.labels.index(single[0]))
        others = f" (one of {len(single)} such labels)" if len(single) > 1 else ""
        raise DataError(
            f"{where}: the label {shown(single[0])} has a single "
            f"example{others}, too few for both training and the dev set held out from it; "
            "add examples, drop the label, or give a dev file"
        )


def one_label_only(source: str, label: str) -> DataError:
    """What to say of examples that are all of one class."""
    return DataError(
        f"{source}: every row has the label {shown(label)}, and there is "
        f"nothing to tell apart; add rows with another label, or choose with {LABEL_OPTION}"
    )


def check_known_labels(examples: LabelledTexts, known: Collection[str]) -> None:
    """Check that a dev or test set has only labels that the classifier can give.

    Args:
        examples: the dev or test set.
        known: the labels of the training set.

    Raises:
        DataError: a label is not known.
    """
    names = set(known)
    for index, labels in enumerate(examples.each):
        for label in labels:
            if label not in names:
                raise DataError(
                    f"{examples.where(index)}: the label {shown(label)} is not in the training "
                    f"set, which has {shown_names(known)}; correct it, drop the row, or train with "
                    f"it{did_you_mean(label, known)}"
                )


def check_form(examples: LabelledTexts, *, many: bool, of: str) -> None:
    """Check that two sets agree on whether a text has one label or several.

    Args:
        examples: a set.
        many: whether a text has several in the other.
        of: the other, for the message.

    Raises:
        DataError: they do not agree.
    """
    if examples.many == many:
        return
    if many:
        raise DataError(
            f"{examples.source} has one label a row, where {of} has several; give lists, "
            f"{SEPARATOR_OPTION} or columns of labels"
        )
    raise DataError(
        f"{examples.source} has several labels a row, where {of} has one; "
        "give a column with one label a row"
    )
