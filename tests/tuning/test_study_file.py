import pytest

from dcnn.config import Config
from dcnn.data.labels import number_labels
from dcnn.errors import UserError
from dcnn.tuning.search import is_study, open_study, study_identity


def examples(*rows):
    texts, labels = zip(*rows, strict=True)
    return number_labels(texts, labels, source="d.csv")


TRAIN, DEV = examples(("a", "x"), ("b", "y")), examples(("c", "x"))


def identity(train=TRAIN, dev=DEV, start=None, held=(), max_size=None, device="cpu"):
    return study_identity(train, dev, start or Config(), held, max_size, device)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"train": examples(("a", "x"), ("b", "x"))}, "the data was"),
        ({"train": examples(("a", "x"), ("B", "y"))}, "the data was"),
        ({"dev": examples(("c", "y"))}, "the dev set was"),
        ({"start": Config().with_training(seed=7)}, "training.seed was 0 and is now 7"),
        ({"held": ["model.dim"]}, r"what --set holds was \[\] and is now \['model.dim'\]"),
        ({"max_size": 9}, "--max-size was None and is now 9"),
    ],
)
def test_a_study_goes_on_only_with_the_same_data_and_options(tmp_path, change, message):
    path = tmp_path / "study.journal"
    open_study(path, identity())
    open_study(path, identity())
    with pytest.raises(UserError, match=rf"belongs to another search: {message}"):
        open_study(path, identity(**change))


def test_a_damaged_study_is_refused(tmp_path):
    path = tmp_path / "study.journal"
    open_study(path, identity())
    path.write_bytes(b"nonsense\n" + path.read_bytes())
    with pytest.raises(UserError, match="not a readable study"):
        open_study(path, identity())


def test_a_study_is_told_from_other_files(tmp_path):
    study, thesis = tmp_path / "s", tmp_path / "thesis.txt"
    open_study(study, identity())
    thesis.write_text("years of work")
    assert is_study(study)
    assert not is_study(thesis)
