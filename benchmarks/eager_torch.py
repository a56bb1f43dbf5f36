"""The same model folder in eager torch: the baseline of files and of whole processes.

python benchmarks/eager_torch.py MODEL TEXT
"""

import sys

import numpy as np
import torch

from dcnn.artifact import Artifact
from dcnn.data.batching import prediction_batches
from dcnn.models import MODELS, SentenceModel
from dcnn.predictor import Floats, Predictor
from dcnn.text.vocabulary import Sentences
from workload import computing_with


def torch_model(artifact: Artifact) -> SentenceModel:
    """The network of ``artifact`` as a torch module."""
    classes, vocabulary = len(artifact.classes), len(artifact.encoder.vocabulary)
    model = MODELS[artifact.config.model.kind](artifact.config.model, vocabulary, classes)
    weights = {name: torch.from_numpy(value) for name, value in artifact.weights.items()}
    model.load_state_dict(weights, assign=True)  # a copy would count as torch's memory
    return model.eval()


class EagerTorchPredictor(Predictor):
    """Reads texts as ``Predictor`` does and computes with torch's own operators."""

    def __init__(self, artifact: Artifact, threads: int = 1) -> None:
        with computing_with("torch"):  # without this, the native network would be built too
            super().__init__(artifact, threads)
        self.model = torch_model(artifact)

    def logits(self, sentences: Sentences) -> Floats:
        """(sentences, classes), before the softmax."""
        logits = np.empty((len(sentences), len(self.classes)), np.float32)
        with computing_with("torch", self.threads), torch.inference_mode():
            for batch in prediction_batches(sentences):
                ids, lengths = torch.from_numpy(batch.ids), torch.from_numpy(batch.lengths)
                logits[batch.order] = self.model(ids, lengths).numpy()
        return logits


def main() -> None:
    """Print label, probability and text, as ``dcnn predict`` does."""
    folder, *texts = sys.argv[1:]
    for prediction in EagerTorchPredictor.load(folder).predict(texts):
        print(prediction.label, f"{prediction.probability:.6f}", prediction.text, sep="\t")


if __name__ == "__main__":
    main()
