"""Networks as torch modules, without initialized parameters; and the training of one."""

from dcnn.models import MODELS
from dcnn.training.batches import RunSpec
from dcnn.training.trainer import Trainer


def build_model(config, vocabulary, classes):
    """The network that ``config``, a model section of the settings, describes."""
    return MODELS[config.kind](config, vocabulary, classes)


def train(model, examples, dev, config, *, checkpoint=None, resume=False, **others):
    """The summary of a single run of ``model``, which gets the weights that were kept."""
    trainer = Trainer(model, examples, [RunSpec(config)], dev, **others)
    (summary,) = trainer.train(checkpoint, resume=resume)
    return summary
