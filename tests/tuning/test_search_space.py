import optuna
import pytest

from dcnn.config import Config, DCNNConfig
from dcnn.tuning.search import SearchSpace


def draws(space, count=60):
    study = optuna.create_study(sampler=optuna.samplers.RandomSampler(seed=3))
    return [space.draw(study.ask()) for _ in range(count)]


@pytest.mark.parametrize(
    "model",
    [
        DCNNConfig(),
        DCNNConfig(dim=30, widths=(4,), maps=(3,)),
        DCNNConfig(dim=13, fold=False),
        DCNNConfig(dim=8, widths=(9, 3, 2), maps=(1, 1, 1), k_top=9),
    ],
)
def test_every_point_is_a_network_and_the_start_is_one(model):
    space = SearchSpace(Config(model=model))
    found = draws(space)  # an impossible one would raise
    assert {config.model.depth for config in found} == {1, 2} | {model.depth}
    assert space.config(space.start_values()) == space.start


def test_what_is_held_stays_and_all_else_changes():
    start = Config(model=DCNNConfig(dim=24, widths=(6, 5))).with_training(epochs=3)
    held = frozenset({"model.dim", "model.widths", "training.epochs", "model.k_top"})
    found = draws(SearchSpace(start, held))
    for config in found:
        assert (config.model.dim, config.model.widths, config.model.k_top) == (24, (6, 5), 4)
        assert config.training.epochs == 3
    for name in ("learning_rate", "l2_embeddings", "label_smoothing", "word_dropout", "n_ensemble"):
        assert len({getattr(config.training, name) for config in found}) > 1
    assert len({config.model.maps for config in found}) > 1
    assert len({config.text.min_count for config in found}) > 1


def test_a_held_top_pool_is_filled_by_wider_filters():
    start = Config(model=DCNNConfig(widths=(9, 5), k_top=8))
    found = draws(SearchSpace(start, frozenset({"model.k_top"})))
    assert {config.model.k_top for config in found} == {8}


def test_values_are_written_as_people_write_them():
    for config in draws(SearchSpace(Config()), 20):
        assert len(f"{config.training.learning_rate:.12g}".replace("0.", "").lstrip("0")) <= 3
