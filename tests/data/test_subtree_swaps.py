import numpy as np
import pytest

from dcnn.data.corpora.sst import read_trees, swap_subtrees

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


def test_a_copy_differs_in_one_phrase_of_the_same_label_and_like_length(trees):
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


def test_the_generator_decides(trees):
    first, again, other = (
        swap_subtrees(trees, 5, np.random.default_rng(seed)) for seed in (1, 1, 2)
    )
    assert first == again != other
    assert swap_subtrees(trees, 0, np.random.default_rng(0)) == []
