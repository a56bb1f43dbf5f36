"""The trials as ``trials.csv``."""

import csv
import io
from collections.abc import Sequence

from dcnn.tuning.trials import TrialRecord

_FACTS = ("trial", "outcome", "dev_accuracy", "dev_loss", "epochs_done", "seconds", "bytes")


def trials_csv(records: Sequence[TrialRecord]) -> str:
    """A line a trial: how it went, then every setting that differs between trials."""
    settings = [_flat(record) for record in records]
    changing = [name for name in settings[0] if len({repr(one.get(name)) for one in settings}) > 1]
    stream = io.StringIO()
    writer = csv.writer(stream, lineterminator="\n")
    writer.writerow([*_FACTS, *changing])
    for record, setting in zip(records, settings, strict=True):
        one = record.trained
        trained = (one.dev_accuracy, one.dev_loss, one.epochs) if one else ("", "", "")
        writer.writerow(
            [
                *(record.number, record.outcome, *trained, f"{record.seconds:.2f}"),
                one.size if one else "",
                *(setting.get(name, "") for name in changing),
            ]
        )
    return stream.getvalue()


def _flat(record: TrialRecord) -> dict[str, object]:
    return {
        f"{section}.{name}": value
        for section, values in record.config.to_dict().items()
        for name, value in values.items()
    }
