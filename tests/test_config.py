from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dcnn.config import (
    DEFAULT,
    MIN_UPDATES,
    NETWORK,
    Config,
    DCNNConfig,
    MaxTDNNConfig,
    NBoWConfig,
    TrainingConfig,
    default_of,
    load_toml,
)
from dcnn.errors import ConfigError


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"widths": (3, 5)}, "widths[0]=3 is below k_top=4, so a one-word sentence cannot fill the "
         "top pool; set widths[0] to 4 or more"),
        ({"dim": 50}, "dim=50 cannot be folded 2 times; set dim to a multiple of 4 or fold to "
         "false"),
        ({"maps": (6,)}, "widths=[7, 5] and maps=[6] need one value per layer each"),
        ({"widths": (), "maps": ()}, "widths=[] must be one or more values of 1 or more"),
        ({"maps": (6, 0)}, "maps=[6, 0] must be one or more values of 1 or more"),
        ({"widths": (7, 0)}, "widths=[7, 0] must be one or more values of 1 or more"),
        ({"k_top": 0}, "k_top=0 must be 1 or more"),
        ({"dropout": 1.0}, "dropout=1.0 must be at least 0 and below 1"),
        ({"dim": 0}, "dim=0 must be 1 or more"),
    ],
)  # fmt: skip
def test_impossible_networks_are_refused(settings, message):
    with pytest.raises(ConfigError) as error:
        DCNNConfig(**settings)
    assert message in str(error.value)


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"epochs": 0}, "epochs=0 must be 1 or more"),
        ({"learning_rate": 0.0}, "learning_rate=0.0 must be above 0"),
        ({"l2_head": -1.0}, "l2_head=-1.0 must be 0 or more"),
        ({"l2_filters": ()}, "l2_filters=[] must be one or more values"),
        ({"ema": 1.0}, "ema=1.0 must be at least 0 and below 1"),
        ({"dev_fraction": 1.0}, "dev_fraction=1.0 must be at least 0 and below 1"),
        ({"folds": 1}, "folds=1 must be 0 or 2 or more"),
    ],
)
def test_impossible_training_is_refused(settings, message):
    with pytest.raises(ConfigError) as error:
        TrainingConfig(**settings)
    assert message in str(error.value)


@pytest.mark.parametrize(
    ("setting", "message"),
    [
        ("training.epoch=3", "unknown setting 'epoch'; did you mean epochs?"),
        ("training.epochs=many", "epochs='many' must be a whole number or auto"),
        ("training.learning_rate=auto", "learning_rate='auto' must be a number"),
        ("training.epochs=2.5", "epochs=2.5 must be a whole number"),
        ("training.epochs=true", "epochs=True must be a whole number"),
        ("training.learning_rate=nan", "learning_rate=nan must be a finite number"),
        ("training.schedule=cosine", "schedule='cosine' must be one of constant, linear"),
        ("model.kind=lstm", "kind='lstm' must be one of dcnn, max-tdnn, nbow"),
        ("model.widths=7", "widths=7 must be a list such as [7, 5]"),
        ("model.widths=[7, 'a']", "widths[1]='a' must be a whole number"),
        ("model.fold=1", "fold=1 must be true or false"),
        ("mode.dim=3", "unknown setting 'mode'; did you mean model?"),
        ("dim=3", "'dim=3' must look like section.key=value"),
        ("training.epochs", "'training.epochs' must look like section.key=value"),
    ],
)
def test_a_wrong_setting_is_explained(setting, message):
    with pytest.raises(ConfigError) as error:
        Config().with_settings([setting])
    assert message in str(error.value)


def test_settings_are_applied_in_order():
    config = Config().with_settings(
        ["model.dim=64", "training.learning_rate=1", "text.tokenizer=tweet", "model.widths=[8, 4]"]
    )
    assert config.model == DCNNConfig(dim=64, widths=(8, 4))
    assert config.training.learning_rate == 1.0
    assert config.text.tokenizer == "tweet"


def test_what_is_compared_are_ensembles_of_the_same_size():
    assert default_of("dcnn") == DEFAULT
    for kind in ("max-tdnn", "nbow"):
        config = default_of(kind)
        assert config.model.kind == kind
        assert config.n_ensemble == DEFAULT.n_ensemble == 8
        assert config.model.dim >= DEFAULT.model.dim
        assert config.text == DEFAULT.text
        assert config.training == DEFAULT.training


def test_another_kind_of_network_starts_from_its_own_defaults():
    config = Config().with_settings(["model.kind=max-tdnn", "model.width=5"])
    assert config.model == MaxTDNNConfig(width=5)
    late = Config().with_settings(["model.dim=8", "model.kind=max-tdnn"])
    assert late.model == MaxTDNNConfig(dim=8)
    same = Config().with_settings(["model.dim=8", "model.kind=dcnn"])
    assert same.model == DCNNConfig(dim=8)
    alone = DEFAULT.with_settings(["model.kind=nbow"])
    assert (alone.model, alone.training.n_ensemble) == (NBoWConfig(), 1)
    together = DEFAULT.with_settings(["model.kind=nbow", "training.n_ensemble=4"])
    assert together.n_ensemble == 4


@given(
    st.builds(
        TrainingConfig,
        epochs=st.integers(1, 99),
        learning_rate=st.floats(1e-6, 10),
        l2_filters=st.lists(st.floats(0, 1), min_size=1, max_size=3).map(tuple),
        seed=st.integers(0, 2**31 - 1),
    )
)
def test_plain_values_and_back_is_the_identity(training):
    config = Config(training=training)
    assert Config.from_dict(config.to_dict()) == config


def test_few_examples_get_more_epochs_and_folds_in_place_of_dev():
    few = DEFAULT.training.for_examples(24)
    assert (few.epochs, few.patience, few.dev_fraction, few.folds) == (MIN_UPDATES, 40, 0, 5)
    many = DEFAULT.training.for_examples(4500, dev=500)
    assert (many.epochs, many.patience, many.dev_fraction, many.folds) == (8, 5, 0.1, 0)
    assert DEFAULT.training.for_examples(24, dev=8).folds == 0
    for n in (1, 33, 100, 999, 1000, 4999):
        found = DEFAULT.training.for_examples(n)
        assert -(-n // found.batch_size) * found.epochs >= MIN_UPDATES
    many_classes = DEFAULT.training.for_examples(616, classes=77)
    assert many_classes.epochs * 20 == 400  # five updates per class, in whole epochs
    # A step of many classes costs more: their number does not multiply the steps as well.
    assert DEFAULT.training.for_examples(36_000, 4000, classes=20_000).epochs == 8
    assert few.auto == many.auto == ()


def test_small_corpora_get_smaller_batches_and_fewer_epochs():
    sizes = {n: DEFAULT.training.for_examples(n) for n in (999, 1000, 4999, 5000)}
    found = [(one.batch_size, one.epochs) for one in sizes.values()]
    assert found == [(32, 8), (16, 5), (16, 5), (32, 8)]
    larger = DEFAULT.with_training(batch_size=32).training.for_examples(1000)
    assert (larger.batch_size, larger.epochs) == (32, 8)
    own = DEFAULT.with_training(keep="best").training.for_examples(1000)  # dev decides
    assert (own.batch_size, own.epochs) == (32, 12)


def test_a_value_that_was_set_is_not_decided_by_the_number_of_examples():
    config = DEFAULT.with_settings(["training.epochs=12", "training.dev_fraction=0.1"])
    found = config.training.for_examples(24)
    assert (found.epochs, found.dev_fraction, found.folds) == (12, 0.1, 5)
    assert Config().training.for_examples(24) == Config().training
    smaller = DEFAULT.with_training(batch_size=4).training.for_examples(24)
    assert (smaller.batch_size, smaller.epochs) == (4, 20)  # updates count, not epochs


@pytest.mark.parametrize(
    "setting", ["training.keep=best", "training.schedule=constant", "training.patience=3"]
)
def test_where_dev_is_to_decide_the_rate_is_constant(setting):
    decayed = DEFAULT.training.for_examples(5000)
    names = ("schedule", "keep", "epochs", "word_dropout")
    assert [getattr(decayed, name) for name in names] == ["linear", "last", 8, 0]
    for examples in (3000, 5000):
        found = DEFAULT.with_settings([setting]).training.for_examples(examples)
        assert [getattr(found, name) for name in names] == ["constant", "best", 12, 0.1]
        assert (found.dev_fraction, found.folds) == (0.1, 0)
    none = DEFAULT.with_settings([setting, "training.dev_fraction=0"]).training.for_examples(3000)
    assert (none.dev_fraction, none.folds) == (0, 5)  # there is no dev set that could decide


def test_auto_is_written_and_read():
    values = DEFAULT.to_flat()
    assert values["training.epochs"] == values["training.folds"] == "auto"
    assert "training.auto" not in values
    assert Config.from_dict(DEFAULT.to_dict()) == DEFAULT
    assert DEFAULT.with_training(epochs=3).with_settings(["training.epochs=auto"]) == DEFAULT


def test_a_toml_file_is_read(tmp_path):
    path = tmp_path / "settings.toml"
    path.write_text('[text]\ntokenizer = "tweet"\n[model]\ndim = 60\n[training]\nepochs = 4\n')
    config = load_toml(path)
    assert (config.text.tokenizer, config.model.dim, config.training.epochs) == ("tweet", 60, 4)
    assert config.model == replace(NETWORK, dim=60)  # all else as without the file
    auto = tuple(name for name in DEFAULT.training.auto if name != "epochs")
    assert config.training == replace(DEFAULT.training, epochs=4, auto=auto)


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("[model\n", "is not valid TOML"),
        ("model = 3\n", "model=3 must be a table of settings"),
        ("[model]\ndims = 3\n", "did you mean dim?"),
    ],
)
def test_a_bad_toml_file_is_named(tmp_path, content, message):
    path = tmp_path / "bad.toml"
    path.write_text(content)
    with pytest.raises(ConfigError) as error:
        load_toml(path)
    assert "bad.toml" in str(error.value)
    assert message in str(error.value)


def test_a_missing_toml_file_is_named(tmp_path):
    with pytest.raises(ConfigError, match=r"gone\.toml: no such file"):
        load_toml(tmp_path / "gone.toml")


@pytest.mark.parametrize(
    ("setting", "now"),
    [
        ("training.members=2", "n_ensemble"),
        ("training.l2_top=0.1", "l2_head"),
        ("training.evaluations=2", "evaluations_per_epoch"),
        ("text.subwords=100", "n_subwords"),
    ],
)
def test_an_old_name_of_a_setting_gets_the_new_one(setting, now):
    name = setting.split(".")[1].split("=")[0]
    with pytest.raises(ConfigError, match=f"the setting '{name}' is now called {now}"):
        Config().with_settings([setting])
