import tomllib
from dataclasses import replace
from pathlib import Path

import pytest

from dcnn.config import DCNNConfig, MaxTDNNConfig, NBoWConfig
from dcnn.errors import ConfigError
from dcnn.experiments.recipes import Recipe, load_recipe
from dcnn.experiments.results import EXPERIMENTS

FOLDER = Path(__file__).parents[2] / "experiments"
FILES = sorted(FOLDER.glob("*/*.toml"))


def write(tmp_path, text):
    path = tmp_path / "mine.toml"
    path.write_text(text)
    return str(path)


@pytest.mark.parametrize("path", FILES, ids=lambda path: f"{path.parent.name}-{path.stem}")
@pytest.mark.parametrize("model", ["dcnn", "max-tdnn", "nbow"])
def test_every_recipe_loads_and_starts_with_its_command(path, model):
    experiment, name = path.parent.name, path.stem
    assert experiment in EXPERIMENTS
    recipe = load_recipe(experiment, name, model)
    assert (recipe.name, recipe.config.model.kind) == (name, model)
    assert path.read_text().startswith(f"# dcnn experiment {experiment} ")


@pytest.mark.parametrize("recipe", ["paper", "tuned", "distilled"])
@pytest.mark.parametrize(
    ("experiment", "network"),
    [
        ("sst2", DCNNConfig()),
        ("sst5", DCNNConfig(widths=(10, 7), maps=(6, 12), k_top=5)),
        ("trec", DCNNConfig(dim=32, widths=(8,), maps=(5,), k_top=4)),
        ("twitter", DCNNConfig(dim=60)),
    ],
)
def test_paper_and_tuned_recipes_have_the_networks_of_the_paper(experiment, network, recipe):
    assert load_recipe(experiment, recipe).config.model == network


@pytest.mark.parametrize("experiment", ["sst2", "sst5", "trec"])
def test_three_teachers_differs_from_distilled_in_the_teachers_alone(experiment):
    one, three = (load_recipe(experiment, name) for name in ("distilled", "three-teachers"))
    taught = replace(one.distillation, teacher_per_seed=True)
    assert three == replace(one, name="three-teachers", distillation=taught)


def test_another_network_shares_dimensions_and_training_unless_its_table_differs(tmp_path):
    path = write(
        tmp_path,
        "[model]\ndim = 16\nmaps = [2, 2]\n[training]\nepochs = 3\nbatch_size = 7\n"
        "[distillation]\nteachers = 4\n"
        "[nbow.training]\nepochs = 9\n[max-tdnn.model]\nwidth = 3\n",
    )
    dcnn, nbow, tdnn = (load_recipe("sst2", path, kind) for kind in ("dcnn", "nbow", "max-tdnn"))
    assert dcnn.config.model == DCNNConfig(dim=16, maps=(2, 2))
    assert dcnn.distillation.teachers == 4
    assert nbow.config.model == NBoWConfig(dim=16)
    assert (nbow.config.training.epochs, nbow.config.training.batch_size) == (9, 7)
    assert nbow.distillation.teachers == 0
    assert tdnn.config.model == MaxTDNNConfig(dim=16, width=3)
    assert tdnn.config.training.epochs == 3


def test_to_dict_and_back_is_the_identity(tmp_path):
    recipe = load_recipe("sst5", write(tmp_path, "[data]\nneighbour_smoothing = 0.2\n"))
    again = Recipe.from_dict(recipe.name, "dcnn", recipe.to_dict(), "there")
    assert again == recipe


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("[data]\nsoft_targets = [0.1]", r"soft_targets=\[0.1\] must be five probabilities"),
        ("[data]\nneighbour_smoothing = 1", "neighbour_smoothing=1.0 must be at least 0 and below"),
        ("[data]\nfolds = 1", "folds=1 must be 2 or more"),
        ("[data]\nheld_out = 0.6", r"held_out=0\.6 must be above 0 and at most 0\.5"),
        ("[data]\nsentence_weight = 0", "sentence_weight=0.0 must be above 0"),
        ("[distillation]\nteacher_weight = 2", "teacher_weight=2.0 must be above 0 and at most 1"),
        ("[distillation]\nshare = 1", "the setting 'share' is now called teacher_weight"),
        ("[distillation]\nteachers = -1", "teachers=-1 must be from 0 to 100"),
        ("[distillation]\nteachers = 101", "teachers=101 must be from 0 to 100"),
        ("[distillation]\nteachers = 1\nswaps = -1", "swaps=-1 must be 0 or more"),
        ("[distillation]\nteachers = 1\nword_dropout = 1", "word_dropout=1.0 must be at least 0"),
        ("[distillation]\nswaps = 2", "swaps=2 needs teachers"),
        ("[distillation]\nword_dropout = 0.1", "word_dropout=0.1 needs teachers"),
        ("[training]\nseed = 7", "seed: --seeds sets how many seeds are run"),
        ('[model]\nkind = "nbow"', "kind: --models sets which network is trained"),
        ("[data]\nfolds = 3", r"data\.folds=3 has no effect in sst2; its own settings are"),
        ("[data]\nneighbour_smoothing = 0.2", r"data\.neighbour_smoothing=0\.2 has no effect in"),
        ("[trainig]\nepochs = 1", "unknown setting 'trainig'; did you mean training?"),
        ("[nbow.trainig]\nepochs = 1", "nbow: unknown setting 'trainig'"),
        ("[model", "is not valid TOML"),
        ("training = 3", "training=3 must be a table of settings"),
        ("nbow = 3", "nbow=3 must be a table of settings"),
        ("[nbow]\ntraining = 3", "nbow.training=3 must be a table of settings"),
        ("[training]\npatience = 5", "an experiment never stops early"),
    ],
)
def test_an_invalid_setting_is_refused_by_name(tmp_path, text, message):
    with pytest.raises(ConfigError, match=message):
        load_recipe(
            "sst2",
            write(tmp_path, text),
            "nbow" if "nbow" in text and "kind" not in text else "dcnn",
        )


def test_only_trees_have_phrases_to_swap(tmp_path):
    recipe = write(tmp_path, "[distillation]\nteachers = 1\nswaps = 2")
    assert load_recipe("sst5", recipe).distillation.swaps == 2
    with pytest.raises(ConfigError, match=r"distillation\.swaps=2 has no effect in trec"):
        load_recipe("trec", recipe)
    balanced = '[distillation]\nteachers = 1\nswaps = 2\n[training]\nclass_weights = "balanced"'
    with pytest.raises(ConfigError, match=r"without a label, .*balanced' would give no weight"):
        load_recipe("sst5", write(tmp_path, balanced))


def test_an_invalid_recipe_name_is_refused(tmp_path):
    for name in ("My Recipe", "default"):
        path = tmp_path / f"{name}.toml"
        path.write_text("")
        with pytest.raises(ConfigError, match=f"recipe='{name}' must be lower-case letters"):
            load_recipe("sst2", str(path))


def test_an_unknown_recipe_is_named():
    with pytest.raises(
        ConfigError,
        match="recipe='tunned' is not known for sst2; take one of "
        "best, distilled, paper, self-distilled, three-teachers, tuned",
    ):
        load_recipe("sst2", "tunned")
    with pytest.raises(ConfigError, match=r"nowhere\.toml: no such file"):
        load_recipe("sst2", "nowhere.toml")


def test_the_wheel_contains_the_recipes():
    build = tomllib.loads((FOLDER.parent / "pyproject.toml").read_text())["tool"]["hatch"]["build"]
    included = build["targets"]["wheel"]["force-include"]
    assert included["experiments"] == "dcnn/experiments/recipes"
