import numpy as np
import pytest

from dcnn import artifact as model_folder
from dcnn.artifact import Artifact
from dcnn.config import Config, DCNNConfig, MaxTDNNConfig, NBoWConfig
from dcnn.data.corpora.opinions import generate
from dcnn.errors import UserError
from dcnn.text.encoder import Encoder
from dcnn.tuning.report import FolderSizes, parse_size

TEXTS = [opinion.text for opinion in generate()["train"][:600]] + ['"quoted" \\ naïve 雪 雪 🙂']
CLASSES = ("negative", 'posi"tive')


def saved_size(path, config):
    """The bytes of a folder with random weights."""
    encoder = Encoder.learn(TEXTS, config.text)[0]
    shapes = config.model.parameter_shapes(len(encoder.vocabulary), len(CLASSES))
    weights = {name: np.ones(shape, np.float32) for name, shape in shapes.items()}
    facts = {"dev_accuracy": 1 / 3, "seconds": 12.3, "data": "reviews.csv", "date": "2026-01-01"}
    model_folder.save(path, Artifact(config, CLASSES, encoder, weights, facts))
    return sum(file.stat().st_size for file in path.iterdir())


CONFIGS = [
    Config(),
    Config(model=DCNNConfig(dim=16, widths=(8,), maps=(3,))).with_settings(["text.min_count=3"]),
    Config(model=MaxTDNNConfig()).with_settings(["text.max_size=50"]),
    Config(model=NBoWConfig(dim=300)).with_settings(["text.lowercase=false"]),
]


@pytest.mark.parametrize("config", CONFIGS)
def test_the_prediction_is_never_too_small_and_close(tmp_path, config):
    predicted = FolderSizes("m", TEXTS, config, CLASSES).of(config)
    actual = saved_size(tmp_path / "m", config)
    assert actual <= predicted <= actual + 6000


@pytest.mark.parametrize("limit", [90_000, 120_000, 200_000])
@pytest.mark.parametrize("config", CONFIGS[:2])
def test_a_fitted_model_never_exceeds_the_limit_and_wastes_little(tmp_path, config, limit):
    sizes = FolderSizes("m", TEXTS, config, CLASSES, limit)
    fitted = sizes.fitted(config)
    actual = saved_size(tmp_path / "m", fitted)
    assert actual <= limit
    if fitted != config:
        assert fitted.text.max_size < sizes.words(config)
        assert actual > limit - 7000


def test_a_network_without_room_for_words_does_not_fit():
    big = Config(model=DCNNConfig(maps=(20, 200)))
    assert FolderSizes("m", TEXTS, big, CLASSES, 60_000).fitted(big) is None
    assert FolderSizes("m", TEXTS, big, CLASSES).fitted(big) is big


@pytest.mark.parametrize(
    ("text", "size"),
    [("2MB", 2_000_000), ("500 kb", 500_000), ("1.5MiB", 1_572_864), ("1234", 1234), ("1g", None)]
    + [(text, None) for text in ("", "0MB", "-1MB", "MB", "2 bytes", "1e3")],
)
def test_sizes_are_read_as_people_write_them(text, size):
    if size is None:
        with pytest.raises(UserError, match=r"such as 2MB or 500KB"):
            parse_size(text)
    else:
        assert parse_size(text) == size
