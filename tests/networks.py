"""Networks as torch modules, without initialized parameters; and the training of one."""

from dataclasses import replace

import numpy as np
import torch

from dcnn.models import MODELS
from dcnn.ops import native_torch, native_training
from dcnn.text.encoder import Encoder
from dcnn.text.tokenizer import Tokenizer
from dcnn.text.vocabulary import Vocabulary
from dcnn.training.batches import RunSpec
from dcnn.training.objective import Networks, as_arrays, make_learner
from dcnn.training.trainer import Trainer


def encoder_of(size):
    """An encoder with a vocabulary of ``size``, the unknown word included."""
    return Encoder(Tokenizer("words"), Vocabulary([f"w{i}" for i in range(1, size)]))


def build_model(config, vocabulary, classes):
    """The network that ``config``, a model section of the settings, describes, with seed 0.

    Initialized here, for all tests: a new network has whatever was in memory for its weights.
    """
    model = MODELS[config.kind](config, vocabulary, classes)
    model.initialize(torch.Generator().manual_seed(0))
    return model


def train(model, examples, dev, config, *, checkpoint=None, resume=False, **others):
    """The summary of a single run of ``model``, which gets the weights that were kept."""
    trainer = Trainer(model, examples, [RunSpec(config)], dev, **others)
    if resume:
        checkpoint = replace(checkpoint, resume=True)
    (summary,) = trainer.train(checkpoint)
    return summary


def logits_of(model, sentences):
    """(sentences, labels)."""
    weights = {name: value.detach()[None] for name, value in model.named_parameters()}
    return Networks(model, weights, "torch", multi_label=False).logits_of(weights, sentences)[0]


def native_gradients(model, batch, targets, weights=None, multi_label=False):
    """The loss and the gradients by name that the compiled backend finds for a DCNN."""
    parameters = {
        name: native_training.Parameter(value.detach().numpy(), np.zeros(value.shape, np.float32))
        for name, value in model.named_parameters()
    }
    names, learner = make_learner(model, parameters, multi_label)
    given, threads = as_arrays((batch, targets, weights)), torch.get_num_threads()
    loss, gradients = learner.gradients(*given, threads)
    found = map(native_torch.to_tensor, gradients)
    return torch.tensor(loss), dict(zip(names, found, strict=True))
