"""What is wrong with labelled texts: what was planted is found, and nothing else."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from dcnn.data.check import (
    IMBALANCE,
    NEAR,
    RARE_LABEL,
    check_texts,
    describe_texts,
    find_label_errors,
    near_duplicates,
    normalized,
    script_of,
)
from dcnn.data.labels import number_labels

WORDS = [
    "apple",
    "river",
    "stone",
    "cloud",
    "tiger",
    "paper",
    "music",
    "window",
    "garden",
    "silver",
]


def sentences(count: int, seed: int = 0, length: int = 9) -> list[str]:
    generator = np.random.default_rng(seed)
    return [" ".join(generator.choice(WORDS, length)) + f" {seed} {n}" for n in range(count)]


def examples(texts, labels=None, multi_label=False):
    labels = labels or ["a" if n % 2 else "b" for n in range(len(texts))]
    return number_labels(texts, labels, source="d.csv", multi_label=multi_label)


def kinds(found) -> dict[str, list[str]]:
    names: dict[str, list[str]] = {}
    for one in found:
        names.setdefault(one.kind, []).append(one.where)
    return names


def test_clean_data_has_no_findings():
    assert check_texts(examples(sentences(60)), examples(sentences(20, seed=5))) == []


def test_a_repeated_text_is_a_duplicate_or_a_conflict():
    texts = sentences(60)
    texts[10] = f"  {texts[8].upper()}\t"  # of the same label
    texts[21] = texts[40] = texts[30]  # of both labels
    found = check_texts(examples(texts))
    assert kinds(found) == {
        "conflicting labels": [f"d.csv, text {n}" for n in (21, 30, 40)],
        "duplicate": ["d.csv, text 10"],
    }
    assert [one.level for one in found] == ["error"] * 3 + ["warning"]
    assert found[0].detail == "the same text has 'b' in d.csv, text 30"
    assert found[-1].detail == "same as d.csv, text 8"


def test_texts_of_the_test_set_in_the_training_set_leak():
    train, test = sentences(60), sentences(20, seed=5)
    test[3], test[4] = train[7], train[8].replace(" 8", " 9") + "!"
    found = check_texts(examples(train), examples(test))
    assert kinds(found) == {"leakage": ["d.csv, text 3"], "near leakage": ["d.csv, text 4"]}
    assert [one.level for one in found] == ["error", "warning"]
    assert found[0].detail == "also in d.csv, text 7"
    assert found[1].detail == "nearly the same as d.csv, text 8"
    test_set = examples(test[:2], ["a", "new"])
    (unknown,) = check_texts(examples(train), test_set)
    assert (unknown.kind, unknown.label, unknown.level) == ("unknown label", "new", "error")


def jaccard(one: str, other: str) -> float:
    grams = [{text[i : i + 5] for i in range(len(text) - 4)} for text in (one, other)]
    return len(grams[0] & grams[1]) / len(grams[0] | grams[1])


@given(st.lists(st.text("ab ", min_size=15, max_size=40), min_size=1, max_size=12), st.data())
def test_near_duplicates_are_as_similar_as_they_say(texts, data):
    texts = [" ".join(text.split()) for text in texts]
    texts.append(data.draw(st.sampled_from(texts)) + "a")
    for first, second, similarity in near_duplicates(texts):
        assert first < second
        assert similarity == pytest.approx(jaccard(texts[first], texts[second]))
        assert similarity >= NEAR


def test_nearly_all_near_duplicates_are_found():
    texts = sentences(1000, length=12)
    changed = [text[:30] + "x" + text[31:] for text in texts]
    expected = [
        n for n, pair in enumerate(zip(texts, changed, strict=True)) if jaccard(*pair) >= NEAR
    ]
    found = {
        second for first, second, _ in near_duplicates(texts + changed) if second - first == 1000
    }
    assert len(expected) > 900
    assert len(found) >= 0.995 * len(expected)


def test_rare_and_unbalanced_labels_are_reported():
    n = IMBALANCE * 2
    found = check_texts(examples(sentences(n + 2), ["a"] * n + ["b"] * 2))
    assert [(one.kind, one.label, one.score) for one in found] == [
        ("rare label", "b", 2),
        ("imbalance", "b", IMBALANCE),
    ]
    assert found[0].detail == "'b' has 2 of 42 texts"
    balanced = ["a"] * n + ["b"] * RARE_LABEL
    assert check_texts(examples(sentences(len(balanced)), balanced)) == []
    (single,) = check_texts(examples(sentences(9), ["a"] * 9))
    assert (single.kind, single.level) == ("one label", "error")


def test_odd_texts_are_reported():
    texts = sentences(60)
    texts[3], texts[4], texts[5] = " \n", " ".join(sentences(10, seed=7)), "Это очень хороший фильм"
    found = kinds(check_texts(examples(texts)))
    assert found == {
        "empty text": ["d.csv, text 3"],
        "long text": ["d.csv, text 4"],
        "rare script": ["d.csv, text 5"],
    }
    about = describe_texts(examples(texts))
    assert about["scripts"] == {"Latin": 58, "none": 1, "Cyrillic": 1}
    assert about["labels"] == {"b": 30, "a": 30}
    assert about["words"]["median"] == 11


@pytest.mark.parametrize(
    ("text", "script"),
    [
        ("über", "Latin"),
        ("映画 film", "Latin"),
        ("とても", "Hiragana"),
        ("12 !", ""),
        ("فيلم", "Arabic"),
    ],
)
def test_scripts(text, script):
    assert script_of(text) == script


@given(st.text())
def test_normalizing_twice_changes_nothing_more(text):
    assert normalized(f" {normalized(text)}\n") == normalized(normalized(text))


@pytest.mark.parametrize("marks", ["\u0315\u0300", "\uff9e\u0334"])
def test_a_long_run_of_combining_marks_takes_no_longer_than_other_text(marks):
    # Sorting the whole run would take minutes; halfwidth voicing marks become combining ones.
    text = "a" + marks * 200_000
    assert normalized(text.upper()) == normalized(text)


def noisy(seed: int, n: int = 400, classes: int = 3, noise: float = 0.1, sure: float = 0.8):
    """Texts with wrong labels, and probabilities of a model that knows the right ones."""
    generator = np.random.default_rng(seed)
    right = generator.integers(0, classes, n)
    wrong = generator.random(n) < noise
    given = np.where(wrong, (right + 1) % classes, right)
    p = np.full((n, classes), (1 - sure) / (classes - 1))
    p[np.arange(n), right] = sure
    p = np.abs(p + generator.normal(0, 0.05, p.shape))
    return given, wrong, p / p.sum(axis=1, keepdims=True)


@pytest.mark.parametrize("seed", range(3))
def test_planted_label_errors_are_found(seed):
    given_labels, wrong, p = noisy(seed)
    data = number_labels(list(map(str, range(400))), [f"c{n}" for n in given_labels])
    found = find_label_errors(data, p)
    places = {int(one.text) for one in found}
    assert len(places & set(np.flatnonzero(wrong))) >= 0.75 * wrong.sum()
    assert len(places - set(np.flatnonzero(wrong))) <= 0.1 * len(places)
    assert [one.score for one in found] == sorted((one.score for one in found), reverse=True)


def test_a_model_that_knows_nothing_suspects_nothing():
    given_labels, _, _ = noisy(0)
    p = np.random.default_rng(1).dirichlet([50] * 3, 400)
    data = number_labels(list(map(str, range(400))), [f"c{n}" for n in given_labels])
    assert find_label_errors(data, p) == []


def test_flags_of_multi_label_data_are_judged_one_by_one():
    flags = np.array([[1, 0], [0, 1], [1, 1], [0, 0]] * 25)
    p = np.where(flags, 0.9, 0.1).astype(float)
    sets = [[name for name, flag in zip("ab", row, strict=True) if flag] for row in flags]
    sets[0], sets[1] = [], ["a", "b"]  # a is missing; a is wrong
    data = number_labels(list(map(str, range(100))), sets, classes=["a", "b"], multi_label=True)
    found = {one.text: one.detail for one in find_label_errors(data, p)}
    assert found == {
        "0": "'a' is probably missing (0.90)",
        "1": "'a' is probably wrong (0.10)",
    }
