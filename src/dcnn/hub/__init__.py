"""Sharing models: a model folder to and from the Hugging Face hub, or any other folder."""

from dcnn.hub.transfer import Pulled, pull, push

__all__ = ["Pulled", "pull", "push"]
