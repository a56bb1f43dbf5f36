"""What the cases are given: the network of SST binary, random sentences, and texts of its words."""

from dataclasses import dataclass, field

import numpy as np

from dcnn.artifact import Artifact
from dcnn.config import Config, DCNNConfig
from dcnn.text.encoder import Encoder
from dcnn.text.sentences import Sentences
from dcnn.text.tokenizer import Tokenizer
from dcnn.text.vocabulary import Vocabulary

CLASSES = ("negative", "positive")


@dataclass(frozen=True)
class Workload:
    """The sizes of everything; by default those of the paper's SST binary.

    Attributes:
        model: the network.
        vocabulary: words it knows, the unknown one included.
        rounds: turns that each contestant takes.
        calls: calls of a turn where a call takes microseconds.
        file_texts: texts in the file that is labelled.
        training_texts: sentences of the built-in corpus that are trained on, and looked at as dev.
        epochs: passes over them.
    """

    model: DCNNConfig = field(default_factory=DCNNConfig)
    vocabulary: int = 15_448
    rounds: int = 20
    calls: int = 50
    file_texts: int = 5000
    training_texts: tuple[int, int] = (6000, 800)
    epochs: int = 12

    @property
    def slow_rounds(self) -> int:
        """Turns of a contestant that takes about a second."""
        return max(self.rounds // 4, 1)

    @property
    def slowest_rounds(self) -> int:
        """Turns of a contestant that takes about a minute."""
        return max(self.rounds // 10, 1)

    def sentences(self, count: int, words: int) -> Sentences:
        """Random sentences of ``words`` words each."""
        generator = np.random.default_rng(0)
        ids = generator.integers(0, self.vocabulary, count * words).astype(np.int32)
        return Sentences.from_flat(ids, np.full(count, words))

    def texts(self, count: int, words: int) -> list[str]:
        """Texts of known words, which go round in a random order so that all of them occur."""
        order = np.random.default_rng(1).permutation(np.arange(1, self.vocabulary))
        chosen = np.resize(order, (count, words))
        return [" ".join(map(_word, row)) for row in chosen.tolist()]

    def artifact(self) -> Artifact:
        """The network with random weights: its speed does not depend on what it has learned."""
        generator = np.random.default_rng(0)
        shapes = self.model.parameter_shapes(self.vocabulary, len(CLASSES))
        weights = {
            name: generator.standard_normal(shape, np.float32) * np.float32(0.05)
            for name, shape in shapes.items()
        }
        words = [_word(number) for number in range(1, self.vocabulary)]
        encoder = Encoder(Tokenizer(), Vocabulary(words))
        return Artifact(Config(model=self.model), CLASSES, encoder, weights)


def _word(number: int) -> str:
    return f"word{number}"
