"""Recurrent networks (Sect. 2.1): the recursive network along the linear chain of the words.

RNN: h_t = tanh(W [h_(t-1); w_t] + e) from h_0 = 0, the one layer of ``dcnn.models.recursive`` for
all words. LSTM is its modern form: the same chain with gates and a memory cell (Hochreiter and
Schmidhuber 1997). The state at the last word represents the sentence.
"""

import torch
from torch import Tensor, nn

from dcnn.config import WEIGHT_DEVIATION, RNNConfig
from dcnn.models.sentence import SentenceModel

State = tuple[Tensor, ...]  # h (B, d), and what else a step needs of the one before it


class RNN(SentenceModel):
    """The simple recurrent network."""

    config: RNNConfig

    def __init__(self, config: RNNConfig, vocabulary: int, classes: int) -> None:
        super().__init__(config, vocabulary, classes)
        values, both = config.composition["weight"]
        self.composition = nn.Linear(both, values)

    def initialize(self, generator: torch.Generator) -> None:
        """Draw all values."""
        super().initialize(generator)
        with torch.no_grad():
            self.composition.weight.normal_(0, WEIGHT_DEVIATION, generator=generator)
            self.composition.bias.zero_()
            self.keep_early_words()

    def keep_early_words(self) -> None:
        """Let a word be added to the state at first, so that the first ones reach the end."""
        self.composition.weight += torch.eye(self.config.dim).repeat(1, 2)

    def start(self, zeros: Tensor) -> State:
        """The state before the first word, of ``zeros`` (B, d)."""
        return (zeros,)

    def step(self, state: State, layer: Tensor) -> State:
        """The state after a word, from ``layer``, which is W [h; w] + e."""
        del state
        return (torch.tanh(layer),)

    def encode(self, ids: Tensor, lengths: Tensor) -> Tensor:
        """(B, s), (B,) -> (B, d): the state at the last word of each sentence."""
        words = self.sentence_matrix(ids)[:, 0].transpose(1, 2)  # (B, s, d)
        of_state, of_word = self.composition.weight.tensor_split(2, dim=1)
        of_words = nn.functional.linear(words, of_word, self.composition.bias)  # all at once
        state = self.start(torch.zeros_like(words[:, 0]))
        for place in range(ids.shape[1]):
            layer = nn.functional.linear(state[0], of_state) + of_words[:, place]
            inside = (place < lengths)[:, None]  # after its last word a sentence keeps its state
            after = self.step(state, layer)
            state = tuple(
                torch.where(inside, new, old) for new, old in zip(after, state, strict=True)
            )
        return state[0]


class LSTM(RNN):
    """Long short-term memory: h = o * tanh(c), with c = f * c + i * g."""

    def keep_early_words(self) -> None:
        """Open the forget gates at first."""
        self.composition.bias[: self.config.dim] = 1

    def start(self, zeros: Tensor) -> State:
        """The state h and the memory c."""
        return zeros, zeros

    def step(self, state: State, layer: Tensor) -> State:
        """``layer`` (B, 4d) has the forget, input and output gates, and the new content."""
        gates, content = torch.split(layer, [3 * self.config.dim, self.config.dim], dim=-1)
        forget, enter, leave = torch.sigmoid(gates).chunk(3, dim=-1)
        memory = forget * state[1] + enter * torch.tanh(content)
        return leave * torch.tanh(memory), memory
