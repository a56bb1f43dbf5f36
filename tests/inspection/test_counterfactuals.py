"""Deletions are the network's own answers; margins are exactly what a value can lose."""

import numpy as np
from hypothesis import given, settings

from dcnn.inspection.counterfactuals import closest_choices, deletions
from dcnn.ops import reference
from dcnn.predictor import Predictor
from small_networks import example, inspected


@given(inspected())
@settings(max_examples=40)
def test_a_deletion_is_the_prediction_of_the_shorter_text(seen):
    predictor = Predictor(seen.artifact)
    whole = predictor.predict([" ".join(seen.words)])[0].label
    found = deletions(predictor, seen.words)
    assert [deletion.word for deletion in found] == seen.words
    for i, deletion in enumerate(found):
        assert deletion.position == i
        (shorter,) = predictor.predict([" ".join(seen.words[:i] + seen.words[i + 1 :])])
        assert deletion.label == shorter.label
        assert abs(deletion.probability - shorter.probability) < 1e-5
        assert deletion.changes == (shorter.label != whole)


def test_some_deletion_changes_the_label():
    seen = example()
    changes = [d.word for d in deletions(Predictor(seen.artifact), seen.words) if d.changes]
    assert 0 < len(changes) < len(seen.words)


def kept_after(layer, choice, loss):
    """Columns that the row keeps when the chosen value has lost something."""
    row = layer.convolution[choice.map, choice.row].astype(np.float64)
    row[choice.position] -= loss
    k = np.array([layer.values.shape[-1]])
    return reference.k_max(row[None], np.array([len(row)]), k)[1][0].tolist()


@given(inspected())
@settings(max_examples=40)
def test_a_value_that_falls_below_its_margin_gives_way_to_its_rival(seen):
    for choice in closest_choices(seen.trace):
        layer = seen.trace.layers[choice.layer - 1]
        before = layer.positions[choice.map, choice.row].tolist()
        assert choice.position in before
        after = kept_after(layer, choice, choice.margin * (1 + 1e-5) + 1e-5)
        assert sorted(after) == sorted({*before, choice.rival} - {choice.position})
        if choice.margin > 1e-3:
            assert kept_after(layer, choice, choice.margin - 1e-3) == before


@given(inspected())
def test_all_choices_are_told_the_nearest_first(seen):
    margins = [choice.margin for choice in closest_choices(seen.trace)]
    assert margins == sorted(margins)
    dropped = [layer for layer in seen.trace.layers if (layer.rivals >= 0).all()]
    assert len(margins) == sum(layer.margins.size for layer in dropped)
    assert [choice.margin for choice in closest_choices(seen.trace, 3)] == margins[:3]
