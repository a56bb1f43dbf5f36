import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from dcnn.data.batching import Examples, make_batch, prediction_batches, training_order
from dcnn.text.vocabulary import Sentences

lengths = st.lists(st.integers(1, 40), min_size=1, max_size=300).map(np.array)


@given(lengths, st.integers(1, 20), st.integers(0, 5))
def test_an_epoch_holds_every_example_once_in_full_batches(lengths, size, epoch):
    batches = training_order(lengths, size, seed=0, epoch=epoch)
    assert sorted(np.concatenate(batches)) == list(range(len(lengths)))
    assert sorted(map(len, batches), reverse=True)[:-1] == [size] * (len(batches) - 1)


def test_the_order_follows_from_seed_and_epoch_alone():
    lengths = np.arange(1, 200)

    def order(seed, epoch):
        return [batch.tolist() for batch in training_order(lengths, 8, seed, epoch)]

    assert order(0, 3) == order(0, 3)
    assert order(0, 3) != order(0, 4)
    assert order(0, 3) != order(1, 3)


def test_batches_have_similar_lengths_in_random_order():
    lengths = np.random.default_rng(0).integers(1, 60, 6400)
    batches = training_order(lengths, 32, seed=0, epoch=0)
    padded = sum(lengths[batch].max() * len(batch) for batch in batches)
    assert padded < 1.05 * lengths.sum()
    means = np.array([lengths[batch].mean() for batch in batches])
    assert abs(np.corrcoef(means[:-1], means[1:])[0, 1]) < 0.3


@given(lengths, st.integers(1, 50), st.integers(1, 200))
def test_prediction_batches_restore_the_order_and_stay_small(lengths, size, max_words):
    sentences = Sentences.from_flat(np.arange(lengths.sum(), dtype=np.int32), lengths)
    seen = {}
    for batch in prediction_batches(sentences, size, max_words):
        assert len(batch.order) <= size
        assert batch.ids.size <= max_words or len(batch.order) == 1
        for index, ids, length in zip(batch.order, batch.ids, batch.lengths, strict=True):
            seen[int(index)] = ids[:length].tolist()
    starts = sentences.offsets
    expected = [list(range(starts[i], starts[i + 1])) for i in range(len(lengths))]
    assert [seen[i] for i in range(len(lengths))] == expected


def test_a_batch_is_filled_up_to_its_limit_of_words():
    sentences = Sentences.from_lists([[1, 2], [3, 4], [5, 6]])
    batches = prediction_batches(sentences, max_words=4)
    assert [batch.ids.size for batch in batches] == [4, 2]


def test_a_very_long_text_does_not_widen_a_whole_training_batch():
    lengths = np.array([10] * 63 + [10_000])
    batches = training_order(lengths, 32, seed=0, epoch=0)
    assert sorted(np.concatenate(batches)) == list(range(64))
    assert max(lengths[batch].max() * len(batch) for batch in batches) <= 1 << 14


def test_a_batch_has_the_targets_and_weights_of_its_examples():
    examples = Examples(
        Sentences.from_lists([[1], [2, 3], [4]]), np.array([0, 1, 2]), np.array([0.1, 0.2, 0.3])
    )
    batch = make_batch(examples, np.array([2, 1]))
    assert batch.ids.tolist() == [[4, 0], [2, 3]]
    assert batch.targets.tolist() == [2, 1]
    assert batch.weights.tolist() == [0.3, 0.2]
