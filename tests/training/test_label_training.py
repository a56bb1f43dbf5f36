"""Multi-label texts: objective, gradients, selection and thresholds."""

from dataclasses import replace

import numpy as np
import pytest
import torch
from sklearn import metrics

from dcnn.artifact import load, save
from dcnn.config import Config, DCNNConfig, NBoWConfig, TrainingConfig
from dcnn.data.batching import Examples
from dcnn.data.labels import LabelledTexts
from dcnn.errors import ConfigError, TrainingStoppedError
from dcnn.metrics import (
    choose_thresholds,
    cross_fitted_thresholds,
    evaluate_labels,
    evaluate_logits,
    target_distributions,
)
from dcnn.ops import native
from dcnn.predictor import Predictor
from dcnn.text.vocabulary import Sentences
from dcnn.training.batches import RunSpec
from dcnn.training.callbacks import Callback
from dcnn.training.fit import RunOptions, fit
from dcnn.training.objective import cross_entropy
from dcnn.training.trainer import Checkpoint, Trainer
from networks import build_model, logits_of, native_gradients, train

TOPICS = {"health": ("doctor", "fever"), "money": ("bank", "price"), "sport": ("goal", "team")}
LABELS = tuple(TOPICS)
SMALL = DCNNConfig(dim=8, widths=(4, 3), maps=(2, 3), k_top=2, dropout=0.2)


def make_texts(count, seed):
    """Texts that have a label wherever they have one of its words: the answers are known."""
    generator = np.random.default_rng(seed)
    applies = generator.random((count, len(LABELS))) < [0.5, 0.4, 0.3]
    texts = []
    for row in applies:
        words = generator.choice(["the", "a", "was", "then", "people"], generator.integers(2, 6))
        chosen = [generator.choice(TOPICS[label]) for label in np.array(LABELS)[row]]
        texts.append(" ".join(generator.permutation([*words, *chosen])))
    return LabelledTexts(texts, applies.astype(np.float32), LABELS, multi_label=True)


@pytest.fixture(scope="module")
def fitted():
    config = Config(model=SMALL).with_training(epochs=12, batch_size=8, learning_rate=0.2)
    return fit(make_texts(300, 0), make_texts(80, 1), config, RunOptions(device="cpu"))


def test_the_probabilities_of_labels_do_not_compete():
    examples = Examples(Sentences.from_lists([[1, 2], [3]]), np.eye(2, 3, dtype=np.float32))
    model = build_model(SMALL, 5, 3)
    trainer = Trainer(model, examples, [RunSpec(TrainingConfig(epochs=1))], multi_label=True)
    trainer.train()
    logits = trainer.logits(examples.sentences)
    expected = 1 / (1 + np.exp(-logits))
    np.testing.assert_allclose(trainer.probabilities(examples.sentences), expected, rtol=1e-5)


def test_the_loss_is_torchs_summed_over_labels():
    generator = torch.Generator().manual_seed(0)
    logits = torch.randn(5, 3, generator=generator)
    targets = torch.randint(2, (5, 3), generator=generator).float()
    weights = torch.rand(5, generator=generator)
    each = torch.nn.BCEWithLogitsLoss(reduction="none")(logits, targets).sum(dim=1)
    torch.testing.assert_close(cross_entropy(logits, targets, None, True), each.mean())
    weighted = cross_entropy(logits, targets, weights, True)
    torch.testing.assert_close(weighted, (each * weights).mean())


def test_smoothing_moves_every_answer_towards_a_half():
    np.testing.assert_allclose(target_distributions(np.array([[0, 1]]), 2, 0.2, True), [[0.1, 0.9]])


@pytest.mark.skipif(not native.available(), reason="not compiled")
@pytest.mark.parametrize("weighted", [False, True])
def test_native_gradients_are_those_of_autograd(weighted, monkeypatch):
    model = build_model(SMALL, 12, 3)
    model.initialize(torch.Generator().manual_seed(0))
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.mul_(10)
    generator = torch.Generator().manual_seed(1)
    ids = torch.randint(12, (6, 9), generator=generator)
    batch = (ids, torch.tensor([9, 1, 4, 7, 2, 9]), model.draw_dropout(6, generator))
    targets = torch.randint(2, (6, 3), generator=generator).float()
    weights = torch.rand(6, generator=generator) if weighted else None
    monkeypatch.setenv("DCNN_BACKEND", "torch")
    expected = cross_entropy(model(*batch), targets, weights, True)
    expected.backward()
    gradients = [parameter.grad for parameter in model.parameters()]
    monkeypatch.setenv("DCNN_BACKEND", "native")
    parameters = dict(model.named_parameters())
    loss, found = native_gradients(model, batch, targets, weights, multi_label=True)
    torch.testing.assert_close(loss, expected.detach(), rtol=1e-6, atol=1e-6)
    for name, gradient in zip(parameters, gradients, strict=True):
        torch.testing.assert_close(found[name].to_dense(), gradient, rtol=1e-5, atol=1e-6)


def test_known_answers_are_learned_and_scored_as_scikit_learn_does(fitted):
    artifact, summary = fitted
    test = make_texts(120, 2)
    predictions = Predictor(artifact).predict(test.texts)
    given = np.array([[label in one.labels for label in LABELS] for one in predictions])
    f1 = metrics.f1_score(test.targets, given, average="macro")
    assert f1 > 0.97
    dev = make_texts(80, 1)
    on_dev = Predictor(artifact).probabilities(dev.texts)
    chosen = choose_thresholds(dev.targets, on_dev)
    assert artifact.thresholds == pytest.approx(chosen, abs=1e-5)
    fair = cross_fitted_thresholds(dev.targets, on_dev)  # by others than the text itself
    measured = evaluate_labels(dev.targets, on_dev, fair, LABELS)
    assert artifact.metadata["dev_micro_f1"] == pytest.approx(measured.micro_f1)
    assert artifact.metadata["dev_accuracy"] == pytest.approx(measured.subset_accuracy)
    assert artifact.metadata["calibration"]["temperature"] != pytest.approx(1, abs=0.02)
    best = max(summary.history, key=lambda record: (record.dev_micro_f1, -record.dev_loss))
    assert [record for record in summary.history if record.best][-1] == best
    assert best.dev_micro_f1 == summary.dev_micro_f1
    assert "micro F1" in best.measure


def test_a_folder_of_version_3_gives_the_same_labels(fitted, tmp_path):
    artifact, _ = fitted
    save(tmp_path / "m", artifact)
    again = load(tmp_path / "m")
    assert again.thresholds == artifact.thresholds
    texts = make_texts(20, 3).texts
    assert Predictor(again).predict(texts) == Predictor(artifact).predict(texts)
    card = (tmp_path / "m" / "README.md").read_text()
    assert "Multi-label: a text gets every label that reaches its threshold" in card
    assert f"| money | {artifact.thresholds[1]:.4g} |" in card


def examples(count, seed):
    generator = np.random.default_rng(seed)
    sentences = [generator.integers(1, 30, generator.integers(3, 9)).tolist() for _ in range(count)]
    targets = [[min(words) < 4, max(words) > 25] for words in sentences]
    return Examples(Sentences.from_lists(sentences), np.array(targets, np.float32))


def make_model(config=SMALL, seed=0):
    model = build_model(config, 30, 2)
    model.initialize(torch.Generator().manual_seed(seed))
    return model


class StopAfter(Callback):
    def on_step(self, progress):
        self.stop = progress.step >= 13


def test_a_stopped_run_resumes_to_the_same_weights(tmp_path):
    settings = TrainingConfig(
        epochs=3, batch_size=4, word_dropout=0.2, evaluations_per_epoch=2, patience=0
    )
    data, dev = examples(40, 0), examples(12, 1)
    straight, model = make_model(), make_model(seed=5)
    expected = train(straight, data, dev, settings, multi_label=True)
    checkpoint = Checkpoint(tmp_path / "run.checkpoint", {})
    with pytest.raises(TrainingStoppedError):
        train(
            make_model(),
            data,
            dev,
            settings,
            checkpoint=checkpoint,
            callback=StopAfter(),
            multi_label=True,
        )
    found = train(model, data, dev, settings, checkpoint=checkpoint, resume=True, multi_label=True)
    assert found.history == expected.history
    for name, value in straight.state_dict().items():
        assert torch.equal(value, model.state_dict()[name]), name


def test_micro_f1_decides_and_not_the_share_of_texts_that_are_all_right():
    generator = np.random.default_rng(5)
    noise = [replace(examples(40, seed), targets=generator.integers(0, 2, (40, 2)).astype(float))
             for seed in (0, 1)]  # fmt: skip
    settings = TrainingConfig(epochs=8, batch_size=8, patience=0, learning_rate=0.3)
    history = train(make_model(), *noise, settings, multi_label=True).history
    by_f1 = max(history, key=lambda record: (record.dev_micro_f1, -record.dev_loss))
    by_accuracy = max(history, key=lambda record: (record.dev_accuracy, -record.dev_loss))
    assert by_f1 != by_accuracy
    assert [record for record in history if record.best][-1] == by_f1


def test_a_network_without_native_gradients_learns_too():
    data = examples(60, 0)
    model = make_model(NBoWConfig(dim=8))
    before = evaluate_logits(logits_of(model, data.sentences), data.targets, multi_label=True)
    train(
        model, data, data, TrainingConfig(epochs=15, batch_size=8, word_dropout=0), multi_label=True
    )
    after = evaluate_logits(logits_of(model, data.sentences), data.targets, multi_label=True)
    assert after[1] < 0.5 * before[1]
    assert after[2] > before[2]


def test_balanced_classes_are_refused():
    config = Config(model=SMALL).with_training(class_weights="balanced")
    data = make_texts(10, 0)
    with pytest.raises(ConfigError, match="class_weights='balanced' is for texts of one label"):
        fit(data, data, config, RunOptions(device="cpu"))
