"""What the commands share: names in an option, and the settings that a user gives."""

import pytest

from dcnn.cli.console import read_config, split_names
from dcnn.config import DEFAULT, Config
from dcnn.errors import ConfigError, UserError

NAMES = {
    "plain": ("a, b", ("a", "b")),
    "a comma": ('a,"money, banks"', ("a", "money, banks")),
    "not given": (None, ()),
}


@pytest.mark.parametrize(("given", "names"), NAMES.values(), ids=NAMES)
def test_names_are_split_at_commas_outside_quotes(given, names):
    assert split_names("--label-columns", given) == names


def test_an_option_without_any_name_is_refused():
    with pytest.raises(UserError, match="--label-columns ',' holds no name"):
        split_names("--label-columns", ",")


@pytest.mark.parametrize("tokenizer", ["words", "tweet", "whitespace", "characters"])
def test_a_number_of_subwords_is_refused_where_none_are_learned(tokenizer, tmp_path):
    message = f"text.n_subwords=8000 is .*, and text.tokenizer={tokenizer} learns none; set "
    with pytest.raises(ConfigError, match=message):
        read_config(None, [f'text.tokenizer="{tokenizer}"', "text.n_subwords=8000"])
    path = tmp_path / "settings.toml"
    path.write_text(f'[text]\ntokenizer = "{tokenizer}"\nn_subwords = 8000\n')
    with pytest.raises(ConfigError, match=message):
        read_config(path, [])
    assert read_config(path, ['text.tokenizer="bpe"']).text.n_subwords == 8000


@pytest.mark.parametrize("tokenizer", ["bpe", "unigram"])
def test_where_subwords_are_learned_their_number_is_used(tokenizer):
    config = read_config(None, [f'text.tokenizer="{tokenizer}"', "text.n_subwords=8000"])
    assert config.text.n_subwords == 8000


def test_model_folders_with_such_a_setting_still_load():
    plain = {"text": {"tokenizer": "words", "n_subwords": 8000}}
    assert Config.from_dict(plain).text.n_subwords == 8000


def test_options_override_settings_and_defaults_stay():
    assert read_config(None, None) == DEFAULT
    assert read_config(None, None, epochs=None, seed=None) == DEFAULT
    config = read_config(None, ["training.epochs=3", "training.seed=4"], epochs=5, seed=None)
    assert (config.training.epochs, config.training.seed) == (5, 4)
