"""What the commands share: names in an option, and the settings that a user gives."""

from io import StringIO

import numpy as np
import pytest
from rich.console import Console

from dcnn import artifact as model_folder
from dcnn.cli import COMMANDS
from dcnn.cli.console import print_sizes, read_config, split_names
from dcnn.config import DEFAULT, Config
from dcnn.data.labels import LabelledTexts
from dcnn.errors import ConfigError, UserError
from untrained import make_artifact

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


def test_quiet_and_verbose_are_options_of_every_command(dcnn, tmp_path):
    model_folder.save(tmp_path / "m", make_artifact())
    (tmp_path / "d.csv").write_text("review,stars\ngood,neg\nbad,pos\n")
    command = ("evaluate", "m", "d.csv", "--reliability", "r.svg")
    normal = dcnn(*command)
    assert "reading text from column 'review'" in normal.err
    assert "The reliability diagram is in r.svg" in normal.err
    assert "the command took" not in normal.err
    for quiet in (dcnn(*command, "-q"), dcnn("--quiet", *command)):
        assert (quiet.code, quiet.out, quiet.err) == (0, normal.out, "")
    for verbose in (dcnn(*command, "-v"), dcnn("--verbose", *command)):
        assert verbose.out == normal.out
        assert "d.csv: 2 rows" in verbose.err
        assert "the command took" in verbose.err
    for name in COMMANDS:
        help_ = dcnn(name, *(("list",) if name == "data" else ()), "--help").out
        assert "--quiet" in help_ or "Commands:" in help_
    both = dcnn("-q", *command, "-v")
    assert both.code == 2
    assert both.err == (
        "dcnn: --quiet and --verbose contradict each other; leave out one of them\n"
    )


def test_errors_are_one_sentence_however_quiet_and_have_an_origin_if_verbose(dcnn):
    sentence = "dcnn: gone: no such model folder"
    assert dcnn("evaluate", "gone", "d.csv", "-q").err.startswith(sentence)
    verbose = dcnn("evaluate", "gone", "d.csv", "-v")
    assert verbose.code == 2
    assert "Traceback (most recent call last)" in verbose.err
    assert sentence in verbose.err


def test_a_quiet_training_prints_nothing_but_warnings(dcnn, tmp_path):
    (tmp_path / "d.csv").write_text("text,label\n" + "good,a\nbad,b\n" * 8)
    settings = ("--set", "model.dim=8", "--epochs", 1)
    done = dcnn("train", "d.csv", "--out", "m", *settings, "--quiet")
    assert (done.code, done.out, done.err) == (0, "", "")


@pytest.mark.parametrize(
    ("targets", "multi_label", "hinted"),
    [
        ([[0.3, 0.7], [1.0, 0.0]], True, True),
        ([[0.3, 0.7], [1.0, 0.7]], True, False),
        ([[0.0, 1.0], [1.0, 0.0]], True, False),
        ([[0.3, 0.7], [1.0, 0.0]], False, False),
    ],
)
def test_columns_of_probabilities_that_sum_to_one_are_pointed_out(targets, multi_label, hinted):
    stream = StringIO()
    examples = LabelledTexts(["a", "b"], np.array(targets), ("x", "y"), multi_label=multi_label)
    print_sizes(Console(file=stream, width=200), examples, 0)
    assert ("if each has one label, pass --single-label" in stream.getvalue()) == hinted
