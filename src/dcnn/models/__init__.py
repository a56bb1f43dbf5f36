"""The sentence models of the paper as torch modules: DCNN, Max-TDNN, NBoW, RNN and LSTM.

Each module maps ``ids (B, s)`` and ``lengths (B,)`` to logits ``(B, classes)``. A sentence's logits
depend neither on padding nor on the other sentences of its batch. The networks of
``dcnn.models.recursive`` map trees to logits, and are apart from these.
"""

from dcnn.models.baselines import MaxTDNN, NBoW
from dcnn.models.dcnn import DCNN
from dcnn.models.recurrent import LSTM, RNN
from dcnn.models.sentence import SentenceModel

# By ``model.kind``; each takes the settings ``[model]`` and the numbers of words and classes.
MODELS: dict[str, type[SentenceModel]] = {
    "dcnn": DCNN,
    "max-tdnn": MaxTDNN,
    "nbow": NBoW,
    "rnn": RNN,
    "lstm": LSTM,
}

__all__ = ["DCNN", "MODELS", "SentenceModel"]
