"""What a trainer needs of a backend: R runs of one network that take every step together."""

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dcnn.text.vocabulary import Sentences
from dcnn.training.batches import Batches

Arrays = dict[str, NDArray[Any]]


class Runs(ABC):
    """The weights of R runs and all that changes them.

    ``kept`` maps names to the weights of every run that were kept, as the backend stores them; it
    is empty until the first are.
    """

    batches: Batches
    kept: dict[str, Any]
    waits = False  # whether reading a value makes the host wait for the device

    def prepare(self, epoch: int, number: int) -> None:  # noqa: B027
        """Compile and record what a step needs, before the first one, which is that batch."""

    @abstractmethod
    def learn(self, epoch: int, number: int, progress: float) -> int:
        """Train every run on a batch, and return its number of sentences.

        ``progress`` is the fraction of the first run that is done.
        """

    def stop_is_wanted(self) -> bool:
        """Whether one of several processes that train together wants to stop."""
        return False

    @abstractmethod
    def losses(self) -> list[float]:
        """The loss of every run, summed over the batches of the epoch so far."""

    @abstractmethod
    def norms(self) -> list[float]:
        """The norm of the last gradient of every run, zero where nobody needed it."""

    @abstractmethod
    def end_epoch(self) -> None:
        """Start ``losses`` from zero."""

    @abstractmethod
    def reset_adagrad(self, runs: Sequence[int]) -> None:
        """Let Adagrad forget the gradients of some runs."""

    @abstractmethod
    def dev_logits(self) -> NDArray[np.float32]:
        """(R, N, classes) of the weights that are evaluated, on dev."""

    @abstractmethod
    def keep(self, runs: Sequence[int]) -> None:
        """Keep the weights of some runs that are evaluated; the first time, those of all runs."""

    @abstractmethod
    def finish(self) -> None:
        """Put the kept weights of a single run into the model."""

    @abstractmethod
    def logits(self, sentences: Sentences) -> NDArray[np.float32]:
        """(R, N, classes) of the kept weights."""

    @abstractmethod
    def logits_of_plain(
        self, weights: Mapping[str, NDArray[Any]], sentences: Sentences
    ) -> NDArray[np.float32]:
        """(N, classes) of the weights of a plain network, without n-grams or ensemble."""

    @abstractmethod
    def weights_of(self, run: int) -> Arrays:
        """The kept weights of a run, as a plain network has them."""

    @abstractmethod
    def snapshot(self) -> Arrays:
        """All that ``restore`` needs of a single run."""

    @abstractmethod
    def restore(self, arrays: Arrays, step: int) -> None:
        """Return to the state of a snapshot, after so many steps."""
