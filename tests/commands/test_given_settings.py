"""Settings as a command is given them."""

import pytest

from dcnn.commands.given_settings import given_config
from dcnn.config import DEFAULT, Config
from dcnn.errors import ConfigError


@pytest.mark.parametrize("tokenizer", ["words", "tweet", "whitespace", "characters"])
def test_a_number_of_pieces_is_refused_where_none_are_learned(tokenizer, tmp_path):
    message = f"text.n_subwords=8000 is .*, and text.tokenizer={tokenizer} learns none; set "
    with pytest.raises(ConfigError, match=message):
        given_config(None, [f'text.tokenizer="{tokenizer}"', "text.n_subwords=8000"])
    path = tmp_path / "settings.toml"
    path.write_text(f'[text]\ntokenizer = "{tokenizer}"\nsubwords = 8000\n')
    with pytest.raises(ConfigError, match=message):
        given_config(path, [])
    assert given_config(path, ['text.tokenizer="bpe"']).text.n_subwords == 8000


@pytest.mark.parametrize("tokenizer", ["bpe", "unigram"])
def test_where_pieces_are_learned_their_number_is_taken(tokenizer):
    config = given_config(None, [f'text.tokenizer="{tokenizer}"', "text.n_subwords=8000"])
    assert config.text.n_subwords == 8000


def test_folders_that_were_trained_with_such_a_setting_are_still_read():
    plain = {"text": {"tokenizer": "words", "subwords": 8000}}
    assert Config.from_dict(plain).text.n_subwords == 8000


def test_what_is_not_given_keeps_its_default():
    assert given_config(None, []) == DEFAULT
