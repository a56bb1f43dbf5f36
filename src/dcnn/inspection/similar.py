"""The texts most similar to another one, by the features that the network computes of them.

An index is optional: it holds texts, so it is written only on request, into the model folder, as
one file of arrays. A text's features are the values of the last layer, scaled to length 1 and
rounded to float16; the similarity of two texts is their cosine. Searching reads all of them, some
thousand at a time.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from hashlib import sha256
from pathlib import Path
from typing import Any, Self

import numpy as np
import safetensors
import safetensors.numpy
from numpy.typing import NDArray

from dcnn.artifact import INDEX, Artifact
from dcnn.data.labels import Label
from dcnn.errors import DataError, ModelFolderError
from dcnn.files import write_atomically
from dcnn.predictor import Floats, Predictor

MOST_TEXTS = 10_000  # by default; 15 MB at the default network's 768 features
LONGEST_TEXT = 2000  # characters; longer ones are left out
CHUNK = 2048  # texts whose features are float32 at once
CANDIDATES_PER_TEXT = 10  # uncertain texts that are compared, for each that is suggested


@dataclass(frozen=True)
class SimilarText:
    """A text of the index."""

    text: str
    label: str  # as the data says
    similarity: float  # -1 to 1


@dataclass(frozen=True)
class TextIndex:
    """Texts with their labels and features."""

    content: bytes  # of all texts and labels, UTF-8
    ends: NDArray[np.int64]  # (2N,) where each text, and then its label, ends in it
    features: NDArray[np.float16]  # (N, features) of length 1
    model: str  # fingerprint of the model that computed them

    def __len__(self) -> int:
        return len(self.features)

    @classmethod
    def build(cls, predictor: Predictor, texts: Sequence[str], labels: Sequence[Any]) -> Self:
        """An index of labelled texts; a tuple keeps all its labels, probabilities the best one."""
        if not texts:
            raise DataError(f"no text of 1 to {LONGEST_TEXT:,} characters is there to index")
        parts: list[bytes] = []
        for text, label in zip(texts, labels, strict=True):
            best = max(label, key=label.__getitem__) if isinstance(label, dict) else label
            name = ", ".join(map(str, best)) if isinstance(best, tuple) else str(best)
            parts += [part.encode("utf-8", "replace") for part in (text, name)]
        features = np.concatenate(
            [
                _unit_vectors(predictor.features(texts[i : i + CHUNK])).astype(np.float16)
                for i in range(0, len(texts), CHUNK)
            ]
        )
        ends = np.cumsum([len(part) for part in parts], dtype=np.int64)
        return cls(b"".join(parts), ends, features, fingerprint(predictor.artifact))

    def save(self, folder: Path) -> int:
        """Write it into a model folder; its size in bytes."""
        content = np.frombuffer(self.content, np.uint8)
        arrays: dict[str, NDArray[Any]] = {
            "content": content,
            "ends": self.ends,
            "features": self.features,
        }
        data = safetensors.numpy.save(arrays, {"model": self.model})
        with write_atomically(folder / INDEX) as stream:
            stream.write(data)
        return len(data)

    @classmethod
    def load(cls, folder: Path, artifact: Artifact) -> Self | None:
        """The index of a model folder, checked; none if there is none."""
        path = folder / INDEX
        if not path.is_file():
            return None
        again = "write it again with `dcnn index`, or remove it"
        try:
            with safetensors.safe_open(path, "np") as stream:
                model = (stream.metadata() or {}).get("model", "")
                arrays = [stream.get_tensor(name) for name in ("content", "ends", "features")]
        except (OSError, safetensors.SafetensorError) as error:
            raise ModelFolderError(f"{path} is damaged ({error}); {again}") from error
        content, ends, features = arrays
        shape = (len(ends) // 2, artifact.weights["head.weight"].shape[1])
        kinds = [array.dtype.name for array in arrays]
        sound = (
            kinds == ["uint8", "int64", "float16"]
            and features.shape == shape
            and 2 * len(features) == len(ends)
            and (np.diff(ends, prepend=0) >= 0).all()
            and (ends[-1:] == len(content)).all()
            and np.isfinite(features).all()
        )
        if not sound:
            raise ModelFolderError(f"{path} is damaged; {again}")
        if model != fingerprint(artifact):
            raise ModelFolderError(f"{path} is of another model; {again}")
        return cls(content.tobytes(), ends, features, model)

    @cached_property
    def _starts(self) -> list[int]:
        return [0, *self.ends.tolist()]

    def search(self, predictor: Predictor, text: str, count: int) -> list[SimilarText]:
        """The ``count`` most similar texts, the most similar first; equal ones by their place."""
        (wanted,) = _unit_vectors(predictor.features([text]))
        found = np.concatenate(
            [
                self.features[i : i + CHUNK].astype(np.float32) @ wanted
                for i in range(0, len(self), CHUNK)
            ]
        )
        best = np.argsort(-found, kind="stable")[:count].tolist()
        return [SimilarText(*self._part(i), float(found[i])) for i in best]

    def _part(self, number: int) -> tuple[str, str]:
        at = self._starts[2 * number : 2 * number + 3]
        parts = (self.content[at[0] : at[1]], self.content[at[1] : at[2]])
        return parts[0].decode("utf-8", "replace"), parts[1].decode("utf-8", "replace")


def fingerprint(artifact: Artifact) -> str:
    """Of the weights of the last layers: features of other weights cannot be compared."""
    last = artifact.layers[-1][0] if artifact.layers else artifact.weights["embeddings"]
    digest = sha256(np.ascontiguousarray(artifact.weights["head.weight"]).tobytes())
    digest.update(np.ascontiguousarray(last).tobytes())
    return digest.hexdigest()[:32]


def _unit_vectors(features: Floats) -> Floats:
    lengths = np.sqrt(np.square(features).sum(axis=1, keepdims=True))
    scaled: Floats = (features / np.where(lengths > 0, lengths, 1)).astype(np.float32)
    return scaled


@dataclass(frozen=True)
class Suggestion:
    """A text that is worth a label."""

    text: str
    predicted: tuple[Label, ...]  # what the model gives it: one label, or any number if multi-label
    probability: float  # of the most probable label
    uncertainty: float  # 0 to 1


def suggest(predictor: Predictor, texts: Sequence[str], count: int) -> list[Suggestion]:
    """The ``count`` texts to label next, which the model is unsure of and which differ.

    Uncertainty is 1 minus the difference of the two highest probabilities; of a multi-label model,
    how near the nearest probability is to its threshold. Texts are chosen one by one among the
    most uncertain ones, ten times ``count``: each has the largest product of uncertainty and
    distance (1 minus the cosine of the features) to the nearest text already chosen, since similar
    texts teach the same thing. Texts that occur twice count once.
    """
    distinct = list(dict.fromkeys(text for text in texts if text.strip()))
    probabilities = predictor.probabilities(distinct)
    if (thresholds := predictor.artifact.thresholds) is not None:
        uncertainty = 1 - np.abs(probabilities - np.array(thresholds)).min(axis=1)
    else:
        best = np.sort(probabilities, axis=1)[:, -2:]
        uncertainty = 1 - (best[:, 1] - best[:, 0])
    pool = np.argsort(-uncertainty, kind="stable")[: CANDIDATES_PER_TEXT * count]
    features = _unit_vectors(predictor.features([distinct[i] for i in pool]))
    gain, nearest = uncertainty[pool], np.ones(len(pool))
    chosen: list[int] = []
    while len(chosen) < min(count, len(pool)):
        # Texts like a chosen one come last, and the most uncertain of these first.
        score = gain * np.maximum(nearest, 1e-6)
        score[chosen] = -1
        place = int(score.argmax())
        chosen.append(place)
        nearest = np.minimum(nearest, 1 - features @ features[place])
    found = predictor.predict([distinct[pool[place]] for place in chosen])
    return [
        Suggestion(one.text, one.labels, one.probability, float(gain[place]))
        for one, place in zip(found, chosen, strict=True)
    ]
