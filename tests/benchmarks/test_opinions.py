"""The built-in corpus: what its generator promises, checked on the sentences themselves."""

import hashlib
import os
import re
import subprocess
import sys
from collections import Counter, defaultdict
from functools import cache
from pathlib import Path

import pytest

import opinions as generator
from dcnn.text.tokenizer import Tokenizer
from opinions import SHIPPED, Opinion, blanked, generate, lexicon, skeletons, table

LEXICON = lexicon()
POLARITY = {
    word: polarity
    for noun in LEXICON.all_nouns
    for kind in LEXICON.words
    for polarity in (1, -1)
    for word in LEXICON.words_about(noun, kind, polarity)
}
SEEDS = (0, 1)
tokenize = Tokenizer()


@cache
def corpus(seed: int = 0) -> dict[str, list[Opinion]]:
    return generate(seed)


@cache
def tokens(text: str) -> tuple[str, ...]:
    return tuple(tokenize(text))


def bag(opinion: Opinion) -> tuple[str, ...]:
    return tuple(sorted(tokens(opinion.text)))


def everything(seed: int = 0) -> list[Opinion]:
    return [opinion for split in LEXICON.sizes for opinion in corpus(seed)[split]]


def test_the_package_ships_what_is_generated() -> None:
    assert SHIPPED.read_bytes() == table(corpus()).encode()


def test_the_command_finds_a_stale_file_and_regenerates_it(tmp_path, monkeypatch) -> None:
    def run(option: str) -> str | None:
        monkeypatch.setattr(sys, "argv", ["opinions.py", option])
        return generator.main()

    shipped = tmp_path / "opinions.tsv"
    monkeypatch.setattr(generator, "SHIPPED", shipped)
    assert "opinions.tsv is not what is generated; run:" in run("--check")
    shipped.write_text("split\ttext\tlabel\tconstruct\n")
    assert "opinions.tsv is not what is generated; run:" in run("--check")
    assert run("--write") is None
    assert run("--check") is None
    assert shipped.read_bytes() == SHIPPED.read_bytes()


def test_a_seed_gives_the_same_corpus_again_whatever_the_hash_seed() -> None:
    script = (
        "import hashlib; from opinions import generate; "
        "print(hashlib.sha256(repr(generate(1)).encode()).hexdigest())"
    )
    digest = subprocess.run(
        [sys.executable, "-c", script],
        cwd=Path(generator.__file__).parent,
        env=os.environ | {"PYTHONHASHSEED": "1"},
        capture_output=True,
        text=True,
        check=True,
    ).stdout
    assert digest.strip() == hashlib.sha256(repr(corpus(1)).encode()).hexdigest()
    assert digest.startswith("f05fb3a57dffa98b")  # the words and patterns decide it too


def test_another_seed_gives_another_corpus() -> None:
    ours, other = ({o.text for o in everything(seed)} for seed in (0, 1))
    assert len(ours & other) < 0.1 * len(ours)


@pytest.mark.parametrize("split", LEXICON.sizes)
def test_sizes_labels_and_constructs_are_as_stated(split: str) -> None:
    opinions = corpus()[split]
    assert len(opinions) == LEXICON.sizes[split]
    assert Counter(o.label for o in opinions) == dict.fromkeys(
        ("positive", "negative"), LEXICON.sizes[split] / 2
    )
    assert Counter(o.construct for o in opinions) == {
        construct: LEXICON.sizes[split] * percent / 100
        for construct, percent in LEXICON.percent[split].items()
    }
    assert set(LEXICON.percent[split]) == set(LEXICON.patterns)


@pytest.mark.parametrize("seed", SEEDS)
def test_no_sentence_occurs_twice(seed: int) -> None:
    texts = Counter(tokens(o.text) for o in everything(seed))
    assert max(texts.values()) == 1


def test_sentences_are_well_formed() -> None:
    for opinion in everything():
        text = opinion.text
        assert re.fullmatch(r"[A-Z][A-Za-z ,;:]+[.!]", text), text
        assert not re.search(r"  | [.,;:!]|\b[Aa] [aeiou]|\b[Aa]n [^aeiou]", text), text
        assert 3 <= len(text.split()) <= 30, text
    assert min(len(o.text.split()) for o in everything()) == 3
    assert max(len(o.text.split()) for o in everything()) >= 20


@pytest.mark.parametrize("seed", SEEDS)
def test_no_two_splits_share_a_skeleton_or_a_pair(seed: int) -> None:
    for held in (lambda o: (o.skeleton,), lambda o: o.pairs):
        splits = defaultdict(set)
        for split, opinions in corpus(seed).items():
            for opinion in opinions:
                for item in held(opinion):
                    splits[item].add(split)
        assert max(map(len, splits.values())) == 1


@pytest.mark.parametrize("seed", SEEDS)
def test_a_held_out_sentence_with_its_words_masked_is_not_in_training(seed: int) -> None:
    """The same as for skeletons, from the texts alone."""
    content = {*POLARITY, *LEXICON.all_nouns}

    def masked(split: str) -> set[str]:
        return {
            " ".join("_" if word in content else word for word in tokens(o.text))
            for o in corpus(seed)[split]
        }

    assert not masked("train") & (masked("dev") | masked("test"))
    assert not masked("dev") & masked("test")


def test_every_sentence_states_its_pairs() -> None:
    for opinion in everything():
        words = tokens(opinion.text)
        assert opinion.pairs
        assert all(noun in words and word in words for noun, word in opinion.pairs)
        said = sum(word in POLARITY for word in words)
        assert said == len({word for _, word in opinion.pairs})


@pytest.mark.parametrize("seed", SEEDS)
def test_every_held_out_word_is_known_from_training(seed: int) -> None:
    counts = Counter(word for o in corpus(seed)["train"] for word in tokens(o.text))
    held_out = {word for s in ("dev", "test") for o in corpus(seed)[s] for word in tokens(o.text)}
    assert min(counts[word] for word in held_out) >= 5


def test_no_skeleton_comes_from_two_patterns() -> None:
    owners = defaultdict(set)
    for patterns in LEXICON.patterns.values():
        for pattern in patterns:
            for skeleton in skeletons(pattern):
                for form in (skeleton.form, skeleton.twin or skeleton.form):
                    owners[blanked(form)].add(pattern)
    assert max(map(len, owners.values())) == 1


@pytest.mark.parametrize("split", LEXICON.sizes)
def test_nothing_but_opinions_and_structure_tells_the_label(split: str) -> None:
    """Lengths, punctuation and function words are the same for both labels, to the last one."""
    counts: dict[str, Counter[str]] = {"positive": Counter(), "negative": Counter()}
    lengths: dict[str, Counter[int]] = {"positive": Counter(), "negative": Counter()}
    content = {*POLARITY, *LEXICON.all_nouns, "a", "an"}  # the article depends on the word after it
    for opinion in corpus()[split]:
        words = tokens(opinion.text)
        lengths[opinion.label][len(words)] += 1
        counts[opinion.label].update(word for word in words if word not in content)
    assert counts["positive"] == counts["negative"]
    assert lengths["positive"] == lengths["negative"]


def test_opinion_words_occur_with_both_labels() -> None:
    uses: Counter[tuple[str, bool]] = Counter()
    for opinion in corpus()["train"]:
        own = {"positive": 1, "negative": -1}[opinion.label]
        uses.update((word, POLARITY[word] == own) for word in {w for _, w in opinion.pairs})
    for word in POLARITY:
        share = uses[word, True] / (uses[word, True] + uses[word, False])
        assert 0.4 < share < 0.67, (word, share)


def test_half_of_the_sentences_have_a_twin_with_the_same_words_and_the_other_label() -> None:
    for opinions in corpus().values():
        labels = defaultdict(set)
        for opinion in opinions:
            labels[bag(opinion)].add(opinion.label)
        twins = sum(len(labels[bag(opinion)]) == 2 for opinion in opinions)
        assert twins > 0.5 * len(opinions)


@pytest.mark.parametrize(
    ("pattern", "sign"),
    [
        (r"obody (?:would|could) call the \w+ (\w+)", -1),
        (r"not only (\w+) but", 1),
        (r"anything but (\w+)[.,]", -1),
        (r"lthough the \w+ (?:is|feels|seems) \w+, the \w+ (?:is|feels|seems) (\w+)", 1),
        (r"he \w+ (?:is|feels|seems) (\w+), although", 1),
        (r"too (\w+) to be", 1),
        (r"could not be less (\w+)", -1),
        (r"What \w+ have been an? \w+ \w+ turned out an? (\w+) one", 1),
        (rf"he (?:{'|'.join(LEXICON.nouns['works'])}) (?:is|was) (\w+) than the", 1),
        (rf"he (?:{'|'.join(LEXICON.nouns['rivals'])}) (?:is|was) (\w+) than the", -1),
        (rf"he (?:{'|'.join(LEXICON.nouns['rivals'])}) (?:is|was) less (\w+) than the", 1),
    ],
)
def test_the_label_is_what_the_sentence_says(pattern: str, sign: int) -> None:
    found = [(m[1], o) for o in everything() for m in re.finditer(pattern, o.text)]
    found = [(word, opinion) for word, opinion in found if word in POLARITY]
    assert len({opinion.label for _, opinion in found}) == 2
    for word, opinion in found:
        assert opinion.label == {1: "positive", -1: "negative"}[sign * POLARITY[word]], opinion


def test_counting_words_and_bigrams_does_not_solve_it() -> None:
    text = pytest.importorskip("sklearn.feature_extraction.text")
    naive_bayes = pytest.importorskip("sklearn.naive_bayes")
    vectorizer = text.CountVectorizer(
        tokenizer=tokenize, token_pattern=None, ngram_range=(1, 2), binary=True
    )
    train, test = corpus()["train"], corpus()["test"]
    model = naive_bayes.MultinomialNB()
    model.fit(vectorizer.fit_transform([o.text for o in train]), [o.label for o in train])
    accuracy = model.score(vectorizer.transform([o.text for o in test]), [o.label for o in test])
    assert 0.5 < accuracy < 0.72
