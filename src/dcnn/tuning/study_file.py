"""The file of a study: Optuna's journal, which only grows, so that a kill loses no ended trial."""

import hashlib
import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import optuna
from optuna.storages import JournalStorage
from optuna.storages.journal import JournalFileBackend

from dcnn.config import Config
from dcnn.data.tables import LabelledTexts
from dcnn.errors import UserError
from dcnn.tuning import search_space

_NAME = "dcnn"
_IDENTITY = "identity"


def study_identity(
    train: LabelledTexts,
    dev: LabelledTexts,
    start: Config,
    held: Sequence[str],
    max_size: int | None,
    device: str,
) -> dict[str, Any]:
    """What makes a study this study: data, start, space and limit of size, as flat plain values."""
    return start.to_flat() | {
        "the data": _fingerprint(train),
        "the dev set": _fingerprint(dev),
        "what --set holds": sorted(held),
        "--max-size": max_size,
        "--device": device,
        "the search space": search_space.VERSION,
    }


def _fingerprint(examples: LabelledTexts) -> str:
    digest = hashlib.sha256()
    for part in (examples.texts, examples.labels):
        digest.update(json.dumps(part).encode())
    if examples.weights is not None:
        digest.update(examples.weights.tobytes())
    return digest.hexdigest()[:16]


def is_study(path: Path) -> bool:
    """Whether ``path`` is a journal of Optuna's, or empty."""
    with path.open("rb") as stream:
        first = stream.readline(1 << 16)
    return not first or b'"op_code"' in first


def open_study(path: Path, identity: dict[str, Any]) -> optuna.Study:
    """The study in ``path``, or a new one.

    Raises:
        UserError: the file is damaged, or belongs to another search.
    """
    optuna.logging.set_verbosity(optuna.logging.ERROR)
    identity = json.loads(json.dumps(identity))
    try:
        storage = JournalStorage(JournalFileBackend(str(path)))
        study = optuna.create_study(
            storage=storage, study_name=_NAME, direction="maximize", load_if_exists=True
        )
        there = study.user_attrs.get(_IDENTITY)
    except (ValueError, LookupError, TypeError) as error:
        raise UserError(
            f"{path} is not a readable study ({error}); "
            "delete it and search from the start, without --resume"
        ) from error
    if there is None:
        study.set_user_attr(_IDENTITY, identity)
    elif there != identity:
        differences = [
            f"{name} was {there.get(name)!r} and is now {identity.get(name)!r}"
            for name in sorted(there.keys() | identity.keys())
            if there.get(name) != identity.get(name)
        ]
        raise UserError(
            f"{path} belongs to another search: {'; '.join(differences)}; repeat the command "
            "as it was, or search from the start, with --overwrite instead of --resume"
        )
    return study
