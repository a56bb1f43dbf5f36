"""The settings that a user gives to a command: a file, and one by one on the command line."""

from collections.abc import Sequence
from pathlib import Path

from dcnn.config import DEFAULT, Config, TextConfig, load_toml
from dcnn.errors import ConfigError


def given_config(path: Path | None, settings: Sequence[str]) -> Config:
    """Read them, and refuse what would be kept and change nothing.

    That is refused here and not where a config is made: folders that were trained with such a
    setting are still read, and a grid of ``DCNNClassifier`` may hold it beside other tokenizers.

    Raises:
        ConfigError: a name or a value is wrong, or would be without effect.
    """
    config = (load_toml(path) if path else DEFAULT).with_settings(settings)
    text = config.text
    if text.n_subwords != TextConfig.n_subwords and text.tokenizer not in ("bpe", "unigram"):
        raise ConfigError(
            f"text.n_subwords={text.n_subwords} is how many pieces bpe and unigram learn, and "
            f"text.tokenizer={text.tokenizer} learns none; set text.tokenizer to bpe or unigram, "
            "or leave text.n_subwords out"
        )
    return config
