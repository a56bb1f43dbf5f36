"""The Stanford Sentiment Treebank: the reader on samples, and the counts of the real files."""

import numpy as np
import pytest

from dcnn.data.corpora.sst import NEUTRAL, Phrase, authors_tokens, read_trees, swap_subtrees
from dcnn.errors import DataError


def test_a_tree_gives_its_phrases_root_first(tmp_path):
    path = tmp_path / "trees.txt"
    path.write_text("(3 (2 It) (4 (2 's) (4 (2 -LRB-) (4 good))))\n(1 bad)\n", encoding="utf-8")
    first, second = read_trees(path)
    assert first == [
        Phrase(("It", "'s", "(", "good"), 3),
        Phrase(("It",), 2),
        Phrase(("'s", "(", "good"), 4),
        Phrase(("'s",), 2),
        Phrase(("(", "good"), 4),
        Phrase(("(",), 2),
        Phrase(("good",), 4),
    ]
    assert second == [Phrase(("bad",), 1)]


def test_a_no_break_space_is_part_of_its_word(tmp_path):
    path = tmp_path / "trees.txt"
    path.write_text("(2 (2 8\u00a01\\/2) (2 Women))\n", encoding="utf-8")
    assert read_trees(path)[0][0].words == ("8\u00a01\\/2", "Women")


def test_the_authors_split_words_at_hyphens_and_keep_empty_tokens():
    assert authors_tokens(["Well-Made", "--", "-ly", "("]) == [
        *("well", "made"),
        *("", "", ""),
        *("", "ly"),
        "(",
    ]


@pytest.mark.parametrize("line", ["(3 (2 It)", "(7 x)", "(3 x))", "", "x"])
def test_a_line_that_is_no_tree_is_named(tmp_path, line):
    path = tmp_path / "trees.txt"
    path.write_text(f"(1 fine)\n{line}\n")
    with pytest.raises(DataError, match=r"trees\.txt, line 2: not a labelled tree"):
        read_trees(path)


TREES = """\
(3 (2 (2 the) (2 film)) (3 (2 is) (4 (2 very) (4 good))))
(1 (2 (2 a) (2 plot)) (1 (2 was) (0 (2 so) (0 bad))))
(4 (2 (2 the) (2 acting)) (4 (2 was) (4 (2 really) (4 superb))))
(2 alone)
"""


@pytest.fixture
def trees(tmp_path):
    path = tmp_path / "trees.txt"
    path.write_text(TREES)
    return read_trees(path)


def test_a_copy_differs_in_one_phrase_of_the_same_label_and_similar_length(trees):
    bank = [phrase for tree in trees for phrase in tree[1:]]
    swapped = swap_subtrees(trees, 100, np.random.default_rng(0))
    assert len(swapped) == 3 * 100  # a sentence of one word has nothing to swap
    for number, new in enumerate(swapped):
        root, *phrases = trees[number // 100]
        possible = {
            (*root.words[: old.start], *other.words, *root.words[old.start + len(old.words) :])
            for old in phrases
            for other in bank
            if old.label == other.label
            and 2 * len(old.words) <= len(root.words)
            and len(old.words) <= 2 * len(other.words)
            and len(other.words) <= 2 * len(old.words)
        }
        assert new.words in possible
        assert new.label == root.label
    assert any("superb" in new.words and "film" in new.words for new in swapped)
    assert not any("bad" in new.words and "film" in new.words and new.label == 3 for new in swapped)


def test_swaps_are_decided_by_the_generator(trees):
    first, again, other = (
        swap_subtrees(trees, 5, np.random.default_rng(seed)) for seed in (1, 1, 2)
    )
    assert first == again != other
    assert swap_subtrees(trees, 0, np.random.default_rng(0)) == []


@pytest.mark.corpora
@pytest.mark.parametrize(
    ("name", "trees", "binary"),
    [("train", 8544, 6920), ("dev", 1101, 872), ("test", 2210, 1821)],
)
def test_sst_has_the_splits_of_the_paper(corpora, name, trees, binary):
    sentences = [tree[0] for tree in read_trees(corpora / "sst" / f"{name}.txt")]
    assert len(sentences) == trees
    assert sum(sentence.label != NEUTRAL for sentence in sentences) == binary


@pytest.mark.corpora
def test_sst_training_phrases(corpora):
    phrases = [p for tree in read_trees(corpora / "sst" / "train.txt") for p in tree]
    assert len(phrases) == 318_582
    assert sum(phrase.label != NEUTRAL for phrase in phrases) == 98_794


@pytest.mark.corpora
def test_sst_gives_the_vocabulary_of_the_authors(corpora):
    sentences = [tree[0] for tree in read_trees(corpora / "sst" / "train.txt")]
    types = {token for sentence in sentences for token in authors_tokens(sentence.words)}
    assert len(types) == 15_447
