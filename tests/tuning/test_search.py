"""The laws of a search, with a training that takes no time."""

import statistics

import optuna
import pytest
from optuna.trial import TrialState

from dcnn.config import Config, DCNNConfig, NBoWConfig
from dcnn.errors import TrainingStoppedError
from dcnn.tuning.search import (
    Limits,
    Search,
    SearchListener,
    SearchSpace,
    Trained,
    TrialRecord,
    best_trial,
    finished_trials,
    open_study,
)
from fake_training import FakeClock, FakeTraining, goodness


def make_search(
    study=None, training=None, start=None, fitted=None, seed=0, callback=None, **limits
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
        callback,
        training.clock,
    )


def tried(search):
    return [record.config for record in search.records]


STARTS = {
    "default": Config(),
    "out of every range": Config(model=DCNNConfig(dim=30, widths=(4,), maps=(3,), dropout=0.9))
    .with_training(learning_rate=2.0, l2_embeddings=0.0, epochs=1, batch_size=7),
    "three layers": Config(model=DCNNConfig(dim=40, widths=(9, 5, 3), maps=(2, 3, 4), k_top=7)),
    "no convolution": Config(model=NBoWConfig(dim=10)),
}  # fmt: skip


@pytest.mark.parametrize("start", STARTS.values(), ids=STARTS)
def test_the_first_trial_is_the_start_and_the_others_are_not(start):
    search = make_search(start=start, trials=6)
    search.run()
    assert tried(search)[0] == start
    assert start not in tried(search)[1:]
    assert search.records[0].outcome == "complete"


def test_the_best_is_the_most_accurate_and_never_worse_than_the_start():
    search = make_search(trials=25)
    search.run()
    complete = [record for record in search.records if record.trained]
    assert search.best.trained.dev_accuracy == max(r.trained.dev_accuracy for r in complete)
    assert search.best.trained.dev_accuracy > goodness(Config())
    assert search.best.trained.dev_accuracy == goodness(search.best.config)


def test_what_lags_behind_is_pruned_and_recorded_as_pruned():
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
        look = len(record.curve) - 1
        assert look >= 2  # the first two looks are given to everybody
        others = [one.curve[look] for one in search.records[: record.number] if one.trained]
        assert record.curve[-1] < statistics.median(others)


def test_a_pruned_trial_cannot_be_the_best():
    config, nothing = Config(), {}
    pruned = TrialRecord(0, "pruned", config, nothing, 1.0, (0.99,), None)
    complete = TrialRecord(1, "complete", config, nothing, 1.0, (0.5,), Trained(0.5, 0.7, 1, 1))
    assert best_trial([pruned, complete]) is complete
    assert best_trial([pruned]) is None


def test_of_equally_accurate_trials_the_lower_loss_wins_then_the_earlier():
    def record(number, loss):
        return TrialRecord(number, "complete", Config(), {}, 1.0, (), Trained(0.5, loss, 1, 1))

    records = [record(0, 0.3), record(1, 0.2), record(2, 0.2)]
    assert best_trial(records).number == 1


def test_the_same_seed_tries_the_same_and_another_seed_something_else():
    searches = [make_search(trials=14, seed=seed) for seed in (1, 1, 2)]
    for search in searches:
        search.run()
    first, again, other = map(tried, searches)
    assert first == again
    assert first[1:] != other[1:]
    assert len({str(config) for config in first}) == 14


def test_an_interrupted_search_goes_on_as_if_it_had_not_been(tmp_path):
    straight = make_search(trials=14)
    straight.run()
    path = tmp_path / "study.journal"
    for interrupted in (0, 11):
        training = FakeTraining(interrupt_at=interrupted)
        search = make_search(open_study(path, {}), training, trials=14)
        with pytest.raises(KeyboardInterrupt):
            search.run()
        assert len(finished_trials(open_study(path, {}))) == interrupted
    training = FakeTraining()
    resumed = make_search(open_study(path, {}), training, trials=14)
    assert tried(resumed) == tried(straight)[:11]
    resumed.run()
    assert tried(resumed) == tried(straight)
    assert training.configs == tried(straight)[11:]  # none of those that had ended
    assert [r.outcome for r in resumed.records] == [r.outcome for r in straight.records]


def test_a_killed_search_leaves_nothing_running(tmp_path):

    path = tmp_path / "study.journal"
    study = open_study(path, {})
    study.enqueue_trial(SearchSpace(Config()).start_values())
    study.ask()  # and the process is gone
    resumed = make_search(open_study(path, {}), trials=3)
    resumed.run()
    assert tried(resumed)[0] == Config()
    assert not resumed.study.get_trials(states=(TrialState.RUNNING, TrialState.WAITING))


@pytest.mark.parametrize("limit", [130.0, 300.0, 1000.0])
def test_the_time_holds_with_the_training_of_the_best_again(limit):
    clock = FakeClock()
    training = FakeTraining(clock)
    search = make_search(training=training, seconds=limit)
    search.run()
    assert len(search.records) >= 1
    training(search.best.config, SearchListener())  # again
    assert clock.now <= limit
    assert clock.now > limit - 3 * 60  # and is made use of: a training takes 60


def test_the_start_is_trained_to_its_end_whatever_time_there_is():
    search = make_search(seconds=5.0)
    search.run()
    assert [record.outcome for record in search.records] == ["complete"]


def test_the_time_counts_over_all_resumptions(tmp_path):
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


def test_a_trial_that_time_cuts_off_is_tried_again_with_more_time(tmp_path):
    path = tmp_path / "study.journal"
    training = FakeTraining()

    class SlowAfterTheStart(SearchListener):
        def on_finished(self, record, best):
            training.epoch_seconds = 40.0

    search = make_search(
        open_study(path, {}), training, seconds=300.0, callback=SlowAfterTheStart()
    )
    search.run()
    assert len(training.configs) == 2
    assert len(search.records) == 1
    cut = training.configs[1]
    more = make_search(open_study(path, {}), training := FakeTraining(), seconds=600.0)
    more.run()
    assert training.configs[0] == cut


def test_a_stop_of_the_users_ends_the_search_and_keeps_what_has_ended():
    class StopAtTheThird(SearchListener):
        def on_trial(self, number):
            self.stop = number == 2

    search = make_search(trials=9, callback=StopAtTheThird())
    with pytest.raises(TrainingStoppedError):
        search.run()
    assert len(search.records) == 2


def test_settings_that_diverge_are_recorded_and_never_best():
    search = make_search(training=FakeTraining(diverge_below=0.6), trials=12)
    search.run()
    outcomes = {record.outcome for record in search.records}
    assert "diverged" in outcomes
    assert search.best.outcome == "complete"


def test_what_is_too_large_is_recorded_and_never_trained():
    def fitted(config):
        return config if config.model.dim <= 48 else None

    training = FakeTraining()
    search = make_search(training=training, fitted=fitted, trials=15)
    search.run()
    rejected = [record for record in search.records if record.outcome == "too large"]
    assert rejected
    assert all(config.model.dim <= 48 for config in training.configs)
    assert len(training.configs) == 15 - len(rejected)


def test_a_search_in_which_nothing_more_fits_ends():
    def fitted(config):
        return config if config == Config() else None

    search = make_search(fitted=fitted, seconds=1e9)
    search.run()
    assert search.best.number == 0
