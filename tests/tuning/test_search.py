"""The search space, folder sizes, the study and the search, with a training that takes no time."""

import os
import statistics
import sys
from dataclasses import replace
from pathlib import Path

import numpy as np
import optuna
import pytest
from optuna.trial import TrialState

from dcnn import artifact as model_folder
from dcnn import config as settings
from dcnn.artifact import Artifact
from dcnn.config import Config, DCNNConfig, MaxTDNNConfig, NBoWConfig, TextConfig
from dcnn.data.corpora.opinions import read_opinions
from dcnn.data.labels import number_labels
from dcnn.errors import DcnnError, TrainingStoppedError, UserError
from dcnn.text.encoder import Encoder
from dcnn.training.callbacks import EvaluationRecord
from dcnn.tuning.search import (
    AHEAD,
    Limits,
    Search,
    SearchCallback,
    Trained,
    TrialRecord,
    finished,
    is_study,
    open_study,
    ranked_trials,
    study_identity,
)
from dcnn.tuning.space import FolderSizes, SearchSpace
from fake_training import (
    FakeClock,
    FakeTraining,
    KilledTraining,
    UnevenTraining,
    goodness,
    outcome,
)

# A search starts from values, not from `auto`.
DEFAULT = replace(settings.DEFAULT, training=settings.DEFAULT.training.for_examples(5000))


def make_search(
    study=None, training=None, start=None, fitted=None, seed=0, callback=None, jobs=1, **limits
):
    optuna.logging.set_verbosity(optuna.logging.ERROR)
    training = training or FakeTraining()
    return Search(
        study or optuna.create_study(direction="maximize"),
        SearchSpace(start or Config()),
        fitted or (lambda config: config),
        training,
        Limits(**limits),
        seed,
        callback or SearchCallback(),
        training.clock,
        jobs=jobs,
    )


def tried(search):
    return [record.config for record in search.records]


STARTS = {
    "default": Config(),
    "out of every range": Config(model=DCNNConfig(dim=30, widths=(4,), maps=(3,), dropout=0.9))
    .with_training(learning_rate=2.0, l2_embeddings=0.0, epochs=1, batch_size=7),
    "below every range": Config().with_training(learning_rate=1e-4, l2_embeddings=1e-9),
    "three layers": Config(model=DCNNConfig(dim=40, widths=(9, 5, 3), maps=(2, 3, 4), k_top=7)),
    "no convolution": Config(model=NBoWConfig(dim=10)),
}  # fmt: skip


@pytest.mark.parametrize("start", STARTS.values(), ids=STARTS)
def test_only_the_first_trial_is_the_start(start):
    search = make_search(start=start, trials=6)
    search.run()
    assert tried(search)[0] == start
    assert start not in tried(search)[1:]
    assert search.records[0].outcome == "complete"


def test_the_best_is_the_most_accurate_and_never_worse_than_the_start():
    search = make_search(trials=25)
    search.run()
    complete = [record for record in search.records if record.trained]
    assert search.best.trained.accuracy == max(r.trained.accuracy for r in complete)
    assert search.best.trained.accuracy > goodness(Config())
    assert search.best.trained.accuracy == goodness(search.best.config)


def test_trials_below_the_median_are_pruned_and_recorded():
    training = FakeTraining()
    search = make_search(training=training, trials=25)
    search.run()
    pruned = [record for record in search.records if record.outcome == "pruned"]
    assert pruned
    assert len(training.configs) == 25
    states = [trial.state for trial in search.study.get_trials()]
    assert states.count(TrialState.PRUNED) == len(pruned)
    assert all(record.trained is None and len(record.curve) < 6 for record in pruned)
    assert all(len(record.curve) == 6 for record in search.records if record.trained)
    for record in pruned:
        last = len(record.curve) - 1
        assert last >= 2  # nobody is pruned at the first two evaluations
        known = search.records[: record.number - AHEAD + 1]
        others = [one.curve[last] for one in known if one.trained]
        assert record.curve[-1] < statistics.median(others)


def test_the_curve_of_a_trial_is_the_best_so_far():
    class Overfitting(FakeTraining):
        def __call__(self, config, callback):
            for epoch, accuracy in enumerate((0.6, 0.8, 0.7), start=1):
                record = EvaluationRecord(epoch, epoch, 0.5, 0.5, accuracy, epoch < 3)
                callback.on_evaluation(record)
            return outcome(0.8)

    search = make_search(training=Overfitting(), trials=1)
    search.run()
    assert search.records[0].curve == (0.6, 0.8, 0.8)


def test_a_pruned_trial_cannot_be_the_best():
    config, nothing = Config(), {}
    pruned = TrialRecord(0, "pruned", config, nothing, 1.0, (0.99,), None)
    complete = TrialRecord(1, "complete", config, nothing, 1.0, (0.5,), Trained(0.5, 0.7, 1, 1, ""))
    assert [record for record, _ in ranked_trials([pruned, complete])] == [complete]
    assert ranked_trials([pruned]) == []


def test_of_equally_accurate_trials_the_lower_loss_wins_then_the_earlier():
    def record(number, loss):
        return TrialRecord(number, "complete", Config(), {}, 1.0, (), Trained(0.5, loss, 1, 1, ""))

    records = [record(0, 0.3), record(1, 0.2), record(2, 0.2)]
    assert [record.number for record, _ in ranked_trials(records)] == [1, 2, 0]


def test_the_seed_decides_the_trials():
    searches = [make_search(trials=14, seed=seed) for seed in (1, 1, 2)]
    for search in searches:
        search.run()
    first, again, other = map(tried, searches)
    assert first == again
    assert first[1:] != other[1:]
    assert len({str(config) for config in first}) == 14


def test_a_resumed_search_tries_what_an_uninterrupted_one_tries(tmp_path):
    straight = make_search(trials=14)
    straight.run()
    path = tmp_path / "study.journal"
    for interrupted in (0, 11):
        training = FakeTraining(interrupt_at=interrupted)
        search = make_search(open_study(path, {}), training, trials=14)
        with pytest.raises(KeyboardInterrupt):
            search.run()
        assert len(finished(open_study(path, {}))) == interrupted
    training = FakeTraining()
    resumed = make_search(open_study(path, {}), training, trials=14)
    assert tried(resumed) == tried(straight)[:11]
    resumed.run()
    assert tried(resumed) == tried(straight)
    assert training.configs == tried(straight)[11:]  # none of those that had ended
    assert [r.outcome for r in resumed.records] == [r.outcome for r in straight.records]


@pytest.mark.parametrize("limit", [130.0, 300.0, 1000.0])
def test_the_time_limit_includes_the_refit_of_the_best(limit):
    clock = FakeClock()
    training = FakeTraining(clock)
    search = make_search(training=training, seconds=limit)
    search.run()
    assert len(search.records) >= 1
    training(search.best.config, SearchCallback())  # again
    assert clock.now <= limit
    assert clock.now > limit - 3 * 60  # and is made use of: a training takes 60


def test_the_start_is_trained_to_its_end_whatever_the_limit():
    search = make_search(seconds=5.0)
    search.run()
    assert [record.outcome for record in search.records] == ["complete"]


def test_time_is_counted_over_all_resumptions(tmp_path):
    path = tmp_path / "study.journal"
    search = make_search(open_study(path, {}), FakeTraining(interrupt_at=2), seconds=400.0)
    with pytest.raises(KeyboardInterrupt):
        search.run()
    training = FakeTraining()
    resumed = make_search(open_study(path, {}), training, seconds=400.0)
    assert resumed.seconds == 60 + 60 + 20  # two that ended and one that did not
    resumed.run()
    assert training.clock.now <= 400 - 140 - 60
    more = make_search(open_study(path, {}), FakeTraining(), seconds=800.0)
    assert not more.is_done


@pytest.mark.parametrize("limit", [300.0, 400.0])
def test_a_trial_cut_off_by_the_time_limit_is_tried_again_with_more_time(tmp_path, limit):
    path = tmp_path / "study.journal"
    training = FakeTraining()

    class SlowAfterTheStart(SearchCallback):
        def on_finished(self, record, best):
            training.epoch_seconds = 40.0

    search = make_search(
        open_study(path, {}), training, seconds=limit, callback=SlowAfterTheStart()
    )
    search.run()
    assert len(training.configs) == 2  # though 400 seconds leave time for another fast one
    assert len(search.records) == 1
    cut = training.configs[1]
    more = make_search(open_study(path, {}), training := FakeTraining(), seconds=2 * limit)
    more.run()
    assert training.configs[0] == cut


def test_a_stop_ends_the_search_and_keeps_finished_trials():
    class StopAtTheThird(SearchCallback):
        def on_trial(self, number):
            self.stop = number == 2

    search = make_search(trials=9, callback=StopAtTheThird())
    with pytest.raises(TrainingStoppedError):
        search.run()
    assert len(search.records) == 2


@pytest.mark.scale
def test_the_trials_do_not_depend_on_the_number_of_processes():
    searches = [
        make_search(training=UnevenTraining(), trials=16, jobs=jobs) for jobs in (1, 2, AHEAD)
    ]
    for search in searches:
        search.run()
    found = [
        [replace(record, seconds=0) for record in search.records]  # which are real time
        for search in searches
    ]
    assert len(found[0]) == 16
    assert {record.outcome for record in found[0]} >= {"complete", "pruned"}
    assert found[0] == found[1] == found[2]


def test_a_trial_that_was_cut_off_between_finished_ones_is_tried_again(tmp_path):
    straight = make_search(trials=14)
    straight.run()
    study = open_study(tmp_path / "study.journal", {})
    study.add_trials(
        [trial for n, trial in enumerate(finished(straight.study)) if n not in (9, 11)]
    )
    training = FakeTraining()
    resumed = make_search(study, training, trials=14)
    assert len(resumed.records) == 12
    resumed.run()
    assert training.configs == [tried(straight)[9], tried(straight)[11]]
    assert tried(resumed) == tried(straight)


def test_a_stop_keeps_what_several_processes_have_finished():
    class StopAfterTwo(SearchCallback):
        def on_finished(self, record, best):
            self.stop |= record.number == 2

    search = make_search(training=UnevenTraining(), trials=50, jobs=2, callback=StopAfterTwo())
    with pytest.raises(TrainingStoppedError):
        search.run()
    assert 2 in [record.number for record in search.records]
    assert len(search.records) < 6
    assert len(finished(search.study)) == len(search.records)


def test_what_a_killed_search_leaves_of_a_record_and_of_a_lock_is_no_obstacle(
    tmp_path, monkeypatch
):
    monkeypatch.chdir(tmp_path)
    Path("tune").mkdir()
    path = Path("tune") / "study.journal"
    make_search(open_study(path, {}), FakeTraining(), trials=3).run()
    whole = finished(open_study(path, {}))
    with path.open("ab") as stream:
        stream.write(b'{"op_code":8,"worker_id":"x","tri')
    Path("tune/study.journal.lock").symlink_to(path)  # as Optuna's own lock is left
    resumed = make_search(open_study(path, {}), FakeTraining(), trials=5)
    resumed.run()
    assert len(whole) == 3
    assert len(finished(open_study(path, {}))) == 5


@pytest.mark.parametrize("size", [1, 5, 11, 40])
def test_a_search_killed_inside_its_first_record_begins_again(tmp_path, size):
    path = tmp_path / "study.journal"
    open_study(path, identity())
    os.truncate(path, size)
    assert is_study(path)
    open_study(path, identity())
    with pytest.raises(UserError, match="belongs to another search"):  # the identity is stored
        open_study(path, identity(max_size=9))


def test_a_search_leaves_the_level_of_optunas_log_as_it_was(tmp_path):
    search, before = make_search(trials=1), optuna.logging.get_verbosity()
    optuna.logging.set_verbosity(optuna.logging.DEBUG)
    try:
        open_study(tmp_path / "study.journal", {})
        search.run()
        assert optuna.logging.get_verbosity() == optuna.logging.DEBUG
    finally:
        optuna.logging.set_verbosity(before)


def test_a_killed_process_is_reported_with_the_remedy():
    search = make_search(training=KilledTraining(), trials=3, jobs=2)
    with pytest.raises(DcnnError, match=r"killed, perhaps out of memory; .* fewer --jobs"):
        search.run()


def test_diverging_trials_are_recorded_and_never_best():
    search = make_search(training=FakeTraining(diverge_below=0.6), trials=12)
    search.run()
    outcomes = {record.outcome for record in search.records}
    assert "diverged" in outcomes
    assert search.best.outcome == "complete"


def test_too_large_trials_are_recorded_and_never_trained():
    def fitted(config):
        return config if config.model.dim <= 48 else None

    training = FakeTraining()
    search = make_search(training=training, fitted=fitted, trials=15)
    search.run()
    rejected = [record for record in search.records if record.outcome == "too large"]
    assert rejected
    assert all(config.model.dim <= 48 for config in training.configs)
    assert len(training.configs) == 15 - len(rejected)


def test_a_search_ends_when_nothing_more_fits():
    def fitted(config):
        return config if config == Config() else None

    search = make_search(fitted=fitted, seconds=1e9)
    search.run()
    assert search.best.number == 0


def draws(space, count=60):
    study = optuna.create_study(sampler=optuna.samplers.RandomSampler(seed=3))
    return [space.suggest(study.ask()) for _ in range(count)]


@pytest.mark.parametrize(
    "model",
    [
        DCNNConfig(),
        DCNNConfig(dim=30, widths=(4,), maps=(3,)),
        DCNNConfig(dim=13, fold=False),
        DCNNConfig(dim=8, widths=(9, 3, 2), maps=(1, 1, 1), k_top=9),
    ],
)
def test_every_point_is_a_valid_network_and_the_start_is_a_point(model):
    space = SearchSpace(Config(model=model))
    found = draws(space)  # an impossible one would raise
    assert {config.model.depth for config in found} == {1, 2} | {model.depth}
    assert space.config(space.first_points[0]) == space.start


def test_fixed_settings_stay_and_all_others_change():
    start = Config(model=DCNNConfig(dim=24, widths=(6, 5))).with_training(epochs=3)
    fixed = frozenset({"model.dim", "model.widths", "training.epochs", "model.k_top"})
    found = draws(SearchSpace(start, fixed))
    for config in found:
        assert (config.model.dim, config.model.widths, config.model.k_top) == (24, (6, 5), 4)
        assert config.training.epochs == 3
    for name in ("learning_rate", "l2_embeddings", "label_smoothing", "word_dropout", "n_ensemble"):
        assert len({getattr(config.training, name) for config in found}) > 1
    assert len({config.model.maps for config in found}) > 1
    assert len({config.text.min_count for config in found}) > 1


def test_a_fixed_k_top_widens_the_filters():
    start = Config(model=DCNNConfig(widths=(9, 5), k_top=8))
    found = draws(SearchSpace(start, frozenset({"model.k_top"})))
    assert {config.model.k_top for config in found} == {8}


def test_tokens_vocabulary_subwords_depth_and_ensemble_are_searched():
    found = draws(SearchSpace(DEFAULT), 120)
    assert {config.text.tokenizer for config in found} == {"words", "tweet", "bpe", "unigram"}
    for name in ("lowercase", "min_count", "max_size", "n_subwords"):
        assert len({getattr(config.text, name) for config in found}) > 1, name
    assert {config.model.depth for config in found} == {1, 2}
    assert {config.training.n_ensemble for config in found} == {1, 4, 8}
    for config in found:  # what has no effect is as in a config without it
        if config.text.tokenizer not in ("bpe", "unigram"):
            assert config.text.n_subwords == TextConfig.n_subwords
        if config.text.tokenizer == "tweet":
            assert config.text.lowercase


def test_a_number_of_subwords_does_not_outlive_the_subwords():
    start = DEFAULT.with_settings(["text.tokenizer=bpe", "text.n_subwords=1500"])
    for fixed in ((), ("text.n_subwords",)):
        space = SearchSpace(start, frozenset(fixed))
        assert space.config(space.first_points[0]) == start
        words = space.config(space.point({"tokenizer": "words"}))
        assert (words.text.tokenizer, words.text.n_subwords) == ("words", TextConfig.n_subwords)


def test_after_the_start_single_changes_are_tried():
    search = make_search(start=DEFAULT, trials=7)
    search.run()
    start, *others = tried(search)
    assert start == DEFAULT
    changed = [
        {name for name, value in one.to_flat().items() if value != start.to_flat()[name]}
        for one in others
    ]
    assert changed[:5] == [
        {"text.tokenizer"}, {"text.tokenizer"}, {"text.lowercase"}, {"text.char_ngrams"},
        {"training.epochs"},
    ]  # fmt: skip
    assert changed[5] == {"model.widths", "model.maps"}


@pytest.mark.parametrize("reason", ["pretrained vectors", "no library"])
def test_tokens_that_are_impossible_are_not_tried(reason, monkeypatch):
    start = DEFAULT
    if reason == "no library":
        monkeypatch.setitem(sys.modules, "tokenizers", None)
    else:
        start = DEFAULT.with_settings(["text.vectors=glove.txt"])
    assert {config.text.tokenizer for config in draws(SearchSpace(start))} == {"words", "tweet"}


def test_sampled_values_have_three_digits():
    for config in draws(SearchSpace(Config()), 20):
        assert len(f"{config.training.learning_rate:.12g}".replace("0.", "").lstrip("0")) <= 3


def examples(*rows):
    texts, labels = zip(*rows, strict=True)
    return number_labels(texts, labels, source="d.csv")


TRAIN, DEV = examples(("a", "x"), ("b", "y")), examples(("c", "x"))


def identity(train=TRAIN, dev=DEV, start=None, held=(), max_size=None, device="cpu"):
    space = SearchSpace(start or Config(), frozenset(held))
    return study_identity(train, dev, space, **{"--max-size": max_size, "--device": device})


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
def test_a_study_is_resumed_only_with_the_same_data_and_options(tmp_path, change, message):
    path = tmp_path / "study.journal"
    open_study(path, identity())
    open_study(path, identity())
    with pytest.raises(UserError, match=rf"belongs to another search: {message}"):
        open_study(path, identity(**change))


def test_a_study_of_an_earlier_release_is_refused_in_a_sentence(tmp_path):
    path = tmp_path / "study.journal"
    open_study(path, {"training.members": 8, "the search space": 2})
    with pytest.raises(UserError, match=r"another search: another release .* began it; repeat"):
        open_study(path, identity())


def test_a_damaged_study_is_refused(tmp_path):
    path = tmp_path / "study.journal"
    open_study(path, identity())
    path.write_bytes(b"nonsense\n" + path.read_bytes())
    with pytest.raises(UserError, match="not a readable study"):
        open_study(path, identity())


@pytest.mark.parametrize("content", ["years of work", '{"a": 1}\n', "{\n"])
def test_other_files_are_not_taken_for_a_study(tmp_path, content):
    study, thesis = tmp_path / "s", tmp_path / "thesis.txt"
    open_study(study, identity())
    thesis.write_text(content)
    assert is_study(study)
    assert not is_study(thesis)


TEXTS = [one.text for one in read_opinions()["train"][:600]] + ['"quoted" \\ naïve 雪 雪 🙂']
CLASSES = ("negative", 'posi"tive')
LABELLED = number_labels(TEXTS, [CLASSES[i % 2] for i in range(len(TEXTS))])


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
def test_the_predicted_size_is_a_tight_upper_bound(tmp_path, config):
    predicted = FolderSizes("m", LABELLED).of(config)
    actual = saved_size(tmp_path / "m", config)
    assert actual <= predicted <= actual + 6000


@pytest.mark.parametrize("limit", [90_000, 121_000, 200_000])
@pytest.mark.parametrize("config", CONFIGS[:2])
def test_a_fitted_model_uses_nearly_all_of_the_limit(tmp_path, config, limit):
    sizes = FolderSizes("m", LABELLED, limit)
    fitted = sizes.fitted(config)
    actual = saved_size(tmp_path / "m", fitted)
    assert actual <= limit
    if fitted != config:
        assert fitted.text.max_size < sizes.words(config)
        assert actual > limit - 7000
        words = fitted.text.max_size
        assert sizes.of(fitted) <= limit < sizes.of(config, words + 1)  # not one word more


def test_a_network_without_room_for_words_does_not_fit():
    big = Config(model=DCNNConfig(maps=(20, 200)))
    assert FolderSizes("m", LABELLED, 60_000).fitted(big) is None
    assert FolderSizes("m", LABELLED).fitted(big) is big
