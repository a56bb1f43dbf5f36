"""What the training loop promises, on sentences small enough to train in a moment."""

import numpy as np
import pytest
import torch

from dcnn.config import DCNNConfig, MaxTDNNConfig, NBoWConfig, TrainingConfig
from dcnn.data.batching import Examples
from dcnn.errors import TrainingError, TrainingStoppedError, UserError
from dcnn.metrics import evaluate_logits
from dcnn.text.vocabulary import Sentences
from dcnn.training.callbacks import Callback
from dcnn.training.trainer import Checkpoint
from networks import build_model, logits_of, train

SMALL = DCNNConfig(dim=8, widths=(4, 3), maps=(2, 3), k_top=2, dropout=0.2)
QUICK = TrainingConfig(epochs=4, batch_size=4, learning_rate=0.05, word_dropout=0.1)
VOCABULARY = 30


def make_examples(count=40, seed=0, classes=2):
    """Random sentences; the label is whether word 1 comes before word 2."""
    generator = np.random.default_rng(seed)
    sentences, labels = [], []
    for _ in range(count):
        words = generator.integers(3, VOCABULARY, generator.integers(3, 9)).tolist()
        first, second = sorted(generator.choice(len(words), 2, replace=False).tolist())
        label = int(generator.integers(classes))
        words[first], words[second] = (1, 2) if label else (2, 1)
        sentences.append(words)
        labels.append(label)
    return Examples(Sentences.from_lists(sentences), np.array(labels))


def make_model(config=SMALL, seed=0, classes=2):
    model = build_model(config, VOCABULARY, classes)
    model.initialize(torch.Generator().manual_seed(seed))
    return model


def weights_of(model):
    return {name: value.clone() for name, value in model.state_dict().items()}


def assert_same_weights(first, second):
    assert first.keys() == second.keys()
    for name in first:
        assert torch.equal(first[name], second[name]), name


class Recorder(Callback):
    def __init__(self, stop_after=None):
        self.steps, self.evaluations, self.resumed = [], [], []
        self.stop_after = stop_after

    def on_step(self, progress):
        self.steps.append(progress)
        self.stop = self.stop_after is not None and progress.step >= self.stop_after

    def on_evaluation(self, record):
        self.evaluations.append(record)

    def on_resume(self, epoch, step):
        self.resumed.append((epoch, step))


@pytest.mark.parametrize(
    "config", [DCNNConfig(), MaxTDNNConfig(), NBoWConfig()], ids=lambda c: c.kind
)
def test_twenty_sentences_are_learned_by_heart(config):
    generator = np.random.default_rng(0)
    sentences = [generator.integers(1, VOCABULARY, 7).tolist() for _ in range(20)]
    examples = Examples(Sentences.from_lists(sentences), np.arange(20) % 3)
    model = make_model(config, classes=3)
    settings = TrainingConfig(epochs=80, batch_size=5, word_dropout=0, patience=0)
    summary = train(model, examples, examples, settings)
    assert summary.dev_accuracy == 1.0
    accuracy, _, _ = evaluate_logits(logits_of(model, examples.sentences), examples.targets)
    assert accuracy == 1.0


def test_the_same_seed_gives_the_same_weights_and_another_does_not():
    def trained(seed):
        model = make_model()
        settings = TrainingConfig(epochs=2, batch_size=4, seed=seed)
        train(model, make_examples(), make_examples(seed=1), settings)
        return weights_of(model)

    assert_same_weights(trained(0), trained(0))
    assert not torch.equal(trained(0)["embeddings"], trained(1)["embeddings"])


@pytest.mark.parametrize("ema", [0.0, 0.9])
@pytest.mark.parametrize("stop_after", [1, 7, 20, 23])
def test_a_stopped_run_resumes_to_the_same_weights(tmp_path, ema, stop_after):
    settings = TrainingConfig(
        epochs=4,
        batch_size=4,
        word_dropout=0.2,
        ema=ema,
        evaluations_per_epoch=2,
        reset_every=2,
        patience=0,
    )
    data, dev = make_examples(), make_examples(12, seed=1)
    straight = make_model()
    expected = train(straight, data, dev, settings)

    checkpoint = Checkpoint(tmp_path / "run.checkpoint", {"data": "x"})
    with pytest.raises(TrainingStoppedError, match=f"after {stop_after} steps"):
        train(
            make_model(), data, dev, settings,
            checkpoint=checkpoint, callback=Recorder(stop_after),
        )  # fmt: skip
    model, recorder = make_model(seed=5), Recorder()  # other initial values must not matter
    summary = train(
        model, data, dev, settings, checkpoint=checkpoint, resume=True, callback=recorder
    )
    assert recorder.resumed == [(stop_after // 10 + 1, stop_after)]
    assert_same_weights(weights_of(model), weights_of(straight))
    assert summary.history == expected.history
    assert summary.dev_accuracy == expected.dev_accuracy


def test_a_finished_checkpoint_resumes_to_its_result(tmp_path):
    data, dev = make_examples(), make_examples(12, seed=1)
    checkpoint = Checkpoint(tmp_path / "run.checkpoint", {})
    model, again = make_model(), make_model(seed=9)
    train(model, data, dev, QUICK, checkpoint=checkpoint)
    recorder = Recorder()
    train(again, data, dev, QUICK, checkpoint=checkpoint, resume=True, callback=recorder)
    assert not recorder.steps
    assert_same_weights(weights_of(model), weights_of(again))


def test_a_callback_that_fails_is_not_taken_for_a_damaged_checkpoint(tmp_path):
    class Fails(Callback):
        def on_resume(self, epoch, step):
            raise KeyError("of the callback")

    data, dev, checkpoint = make_examples(), make_examples(), Checkpoint(tmp_path / "c", {})
    train(make_model(), data, dev, QUICK, checkpoint=checkpoint)
    with pytest.raises(KeyError, match="of the callback"):
        train(make_model(), data, dev, QUICK, checkpoint=checkpoint, resume=True, callback=Fails())


def test_without_a_checkpoint_resume_starts_from_the_start(tmp_path):
    data, dev = make_examples(), make_examples(12, seed=1)
    model, other = make_model(), make_model()
    train(model, data, dev, QUICK)
    train(other, data, dev, QUICK, checkpoint=Checkpoint(tmp_path / "new", {}), resume=True)
    assert_same_weights(weights_of(model), weights_of(other))


def test_a_checkpoint_of_another_run_is_refused(tmp_path):
    path = tmp_path / "run.checkpoint"
    data = make_examples()
    train(make_model(), data, data, QUICK, checkpoint=Checkpoint(path, {"training.seed": 1}))
    with pytest.raises(UserError, match=r"training\.seed was 1 and is now 2"):
        train(
            make_model(), data, data, QUICK,
            checkpoint=Checkpoint(path, {"training.seed": 2}), resume=True,
        )  # fmt: skip


def test_a_setting_that_is_younger_than_a_checkpoint_had_its_default(tmp_path):
    path, data = tmp_path / "run.checkpoint", make_examples()
    train(make_model(), data, data, QUICK, checkpoint=Checkpoint(path, {"data": "x"}))
    assert Checkpoint(path, {"data": "x", "training.n_ensemble": 1}).load() is not None
    with pytest.raises(UserError, match=r"training\.n_ensemble was 1 and is now 8"):
        Checkpoint(path, {"data": "x", "training.n_ensemble": 8}).load()


@pytest.mark.parametrize("content", [b"", b"nonsense", b"\x00" * 100])
def test_a_damaged_checkpoint_is_explained(tmp_path, content):
    path = tmp_path / "run.checkpoint"
    path.write_bytes(content)
    with pytest.raises(UserError, match="not a readable checkpoint"):
        Checkpoint(path, {}).load()


def test_early_stopping_keeps_the_best_weights():
    data, dev = make_examples(), make_examples(10, seed=3)
    model, recorder = make_model(), Recorder()
    settings = TrainingConfig(epochs=60, batch_size=4, patience=2, learning_rate=0.3)
    summary = train(model, data, dev, settings, callback=recorder)
    assert summary.epochs < 60
    assert [record.best for record in recorder.evaluations[-3:]] == [True, False, False]
    best = max(recorder.evaluations, key=lambda r: (r.dev_accuracy, -r.dev_loss))
    assert recorder.evaluations[-3] == best
    accuracy, loss, _ = evaluate_logits(logits_of(model, dev.sentences), dev.targets)
    assert (accuracy, loss) == (best.dev_accuracy, pytest.approx(best.dev_loss))


def test_the_last_weights_are_kept_where_they_are_asked_for():
    data, dev = make_examples(), make_examples(10, seed=3)
    model, recorder = make_model(), Recorder()
    settings = TrainingConfig(epochs=12, batch_size=4, patience=2, learning_rate=0.3, keep="last")
    summary = train(model, data, dev, settings, callback=recorder)
    assert summary.epochs == len(recorder.evaluations) == 12  # and there is no early stopping
    assert not any(record.best for record in recorder.evaluations)  # dev selects nothing
    last = recorder.evaluations[-1]
    assert last.dev_loss > min(record.dev_loss for record in recorder.evaluations)
    accuracy, loss, _ = evaluate_logits(logits_of(model, dev.sentences), dev.targets)
    assert (accuracy, loss) == (last.dev_accuracy, pytest.approx(last.dev_loss))
    assert summary.dev_accuracy == last.dev_accuracy


def test_without_a_dev_set_the_last_weights_are_kept():
    model = make_model()
    summary = train(model, make_examples(), None, QUICK)
    assert summary.dev_accuracy is None
    assert summary.history == []
    assert summary.epochs == 4


def test_evaluations_are_spread_over_the_epoch():
    recorder = Recorder()
    settings = TrainingConfig(epochs=1, batch_size=4, evaluations_per_epoch=3)
    train(make_model(), make_examples(40), make_examples(8), settings, callback=recorder)
    assert [record.step for record in recorder.evaluations] == [4, 7, 10]


def test_a_loss_that_is_not_finite_stops_the_run():
    model = make_model()
    with torch.no_grad():
        model.head.weight.fill_(float("nan"))
    with pytest.raises(TrainingError, match="the loss is nan in epoch 1, step 1") as error:
        train(model, make_examples(), None, QUICK)
    assert "lower training.learning_rate=0.05" in str(error.value)


def test_progress_tells_epoch_loss_speed_and_time_left():
    recorder = Recorder()
    train(make_model(), make_examples(), None, QUICK, callback=recorder)
    assert len(recorder.steps) == recorder.steps[-1].steps == 40
    assert [p.epoch for p in recorder.steps] == sorted([1, 2, 3, 4] * 10)
    assert all(p.sentences_per_second > 0 and p.loss > 0 for p in recorder.steps)
    assert recorder.steps[-1].seconds_left == 0 < recorder.steps[0].seconds_left


def trained_weights(data=None, **settings):
    model = make_model()
    quick = {"epochs": 2, "batch_size": 4, "word_dropout": 0.0, "max_grad_norm": 0.0}
    train(model, data or make_examples(), None, TrainingConfig(**quick | settings))
    return weights_of(model)


@pytest.mark.parametrize(
    "change",
    [
        {"schedule": "linear"},
        {"reset_every": 1},
        {"word_dropout": 0.3},
        {"label_smoothing": 0.2},
        {"ema": 0.9},
        {"l2_head": 0.1},
        {"seed": 1},
    ],
    ids=str,
)
def test_every_setting_reaches_the_weights(change):
    plain, changed = trained_weights(), trained_weights(**change)
    assert not torch.equal(plain["head.weight"], changed["head.weight"])


def test_balanced_classes_reach_the_weights():
    data = make_examples(40)
    skewed = Examples(data.sentences, np.where(np.arange(40) < 30, 0, data.targets))
    plain = trained_weights(skewed)
    balanced = trained_weights(skewed, class_weights="balanced")
    assert not torch.equal(plain["head.weight"], balanced["head.weight"])


def test_the_weights_that_are_kept_under_an_average_are_the_average():
    settings = {"epochs": 1, "batch_size": 20, "learning_rate": 0.1}
    first = weights_of(make_model())
    steps = []

    class Collect(Callback):
        def on_step(self, progress):
            steps.append(weights_of(model))

    model = make_model()
    quiet = {"word_dropout": 0.0, "ema": 0.99}
    train(model, make_examples(40), None, TrainingConfig(**settings | quiet), callback=Collect())
    expected = first["head.weight"]
    for number, weights in enumerate(steps, start=1):
        decay = (1 + number) / (10 + number)
        expected = decay * expected + (1 - decay) * weights["head.weight"]
    torch.testing.assert_close(weights_of(model)["head.weight"], expected)


def test_a_gradient_that_is_not_finite_stops_the_run():
    model = make_model(NBoWConfig(dim=4, dropout=0))
    with torch.no_grad():
        model.head.weight.fill_(3e38)  # the logits overflow in the backward pass first
        model.head.weight[0] *= -1
        model.embeddings.fill_(0)
    with pytest.raises(TrainingError, match="training diverged"):
        train(model, make_examples(), None, QUICK)


def test_a_dev_loss_that_is_not_finite_stops_the_run():
    model = make_model()
    unseen = VOCABULARY - 1
    with torch.no_grad():
        model.embeddings[unseen] = float("nan")
    data = Examples(Sentences.from_lists([[1, 2, 3], [2, 1, 3]] * 4), np.array([1, 0] * 4))
    dev = Examples(Sentences.from_lists([[1, unseen]]), np.array([0]))
    settings = TrainingConfig(epochs=1, batch_size=4, l2_embeddings=0, word_dropout=0)
    with pytest.raises(TrainingError, match="the loss on the dev set is nan"):
        train(model, data, dev, settings)


def test_gradients_are_held_to_the_norm():
    def first_change(limit):
        model = make_model()
        before = weights_of(model)
        settings = TrainingConfig(
            epochs=1, batch_size=40, max_grad_norm=limit, eps=1.0, word_dropout=0,
            l2_embeddings=0, l2_filters=(0,), l2_head=0,
        )  # fmt: skip
        train(model, make_examples(), None, settings)
        changes = [(model.state_dict()[name] - before[name]).square().sum() for name in before]
        return float(sum(changes)) ** 0.5

    # With eps = 1 and one step, a change is about the learning rate times the gradient.
    assert first_change(1e-3) == pytest.approx(0.1 * 1e-3, rel=0.01)
    assert first_change(0.0) > first_change(1e-3)


def test_sample_weights_decide_which_of_two_contradictions_is_learned():
    sentences = Sentences.from_lists([[3, 4, 5]] * 20)
    labels = np.arange(20) % 2
    weights = np.where(labels == 1, 5.0, 1.0)
    model = make_model()
    train(model, Examples(sentences, labels, weights), None, QUICK)
    logits = model(torch.tensor([[3, 4, 5]]), torch.tensor([3]))[0]
    assert logits[1] > logits[0]


def test_soft_targets_are_learned():
    sentences = Sentences.from_lists([[3, 4, 5]] * 40)
    targets = np.tile([0.2, 0.8], (40, 1))
    model = make_model(DCNNConfig(dim=8, widths=(4, 3), maps=(2, 3), k_top=2, dropout=0))
    settings = TrainingConfig(epochs=30, batch_size=8, word_dropout=0)
    train(model, Examples(sentences, targets), None, settings)
    probabilities = torch.softmax(model(torch.tensor([[3, 4, 5]]), torch.tensor([3])), dim=-1)
    assert probabilities[0, 1].item() == pytest.approx(0.8, abs=0.02)
