"""The example's episodes are drawn by their priorities, which follow the TD errors."""

import numpy as np
import pytest

from examples.prioritized_episodes.prioritized_episodes import PrioritizedEpisodeReplay
from ob2i_tf.training.episode_files import EpisodeFiles
from tests.episodes import FRAME, make_episode, number_of
from tests.examples.test_runs import SETTINGS, train

LENGTHS = (4, 3, 6, 2, 5)


def filled(lengths=LENGTHS, capacity=1000, seed=0, **keywords):
    replay = PrioritizedEpisodeReplay(FRAME, capacity, 1, seed, np.int32, **keywords)
    for number, length in enumerate(lengths):
        replay.add_episode(make_episode(number, length))
    return replay


def learn(replay, errors, number=None):
    """Reports one learner step to replay: on all stored transitions, or on those of one episode."""
    ends = replay.first_transition + np.cumsum(
        [replay.episode_length(index) for index in range(replay.num_episodes)]
    )
    ids = np.arange(replay.first_transition, ends[-1])
    if number is not None:
        index = number - replay.first_episode
        ids = np.arange(ends[index] - replay.episode_length(index), ends[index])
    replay.learned(ids, np.broadcast_to(np.float32(errors), ids.shape))


def counts(replay, draws=4000):
    numbers = [number_of(replay.sample_episode()) for _ in range(draws)]
    return np.bincount(numbers, minlength=len(LENGTHS))


def chi_square(found, probabilities):
    expected = found.sum() * np.asarray(probabilities)
    return np.sum((found - expected) ** 2 / expected)


@pytest.mark.parametrize('alpha', [0.0, 0.5, 1.0])
def test_episodes_are_drawn_as_often_as_their_priorities_say(alpha):
    replay = filled(alpha=alpha, seed=4)
    errors = np.array([1, 2, 0.5, 4, 1])
    for number, error in enumerate(errors):
        learn(replay, error, number)
    probabilities = errors**alpha / np.sum(errors**alpha)
    np.testing.assert_allclose(replay.priorities, errors**alpha, rtol=1e-5)
    found = counts(replay)
    assert chi_square(found, probabilities) < 18.5  # p = 0.001, 4 degrees.
    assert (chi_square(found, np.full(5, 0.2)) > 200) == (alpha > 0)


def test_only_candidates_are_drawn(monkeypatch):
    monkeypatch.setattr(PrioritizedEpisodeReplay, 'candidates', range(1, 3))
    replay = filled(alpha=1.0)
    for number, error in enumerate([9, 1, 3, 9, 9]):
        learn(replay, error, number)
    found = counts(replay)
    assert found[[0, 3, 4]].tolist() == [0, 0, 0]
    assert chi_square(found[1:3], [0.25, 0.75]) < 10.8  # p = 0.001, 1 degree.


def test_a_priority_is_the_mean_error_since_the_last_draw():
    replay = filled(lengths=[4], alpha=1.0)
    assert replay.priorities.tolist() == [1]
    replay.sample_episode()
    replay.learned(np.array([2, 3]), np.array([5, 3], np.float32))  # From the end, in two parts.
    np.testing.assert_allclose(replay.priorities, [4], rtol=1e-5)
    replay.learned(np.array([0, 1]), np.array([0, 2], np.float32))
    np.testing.assert_allclose(replay.priorities, [2.5], rtol=1e-5)
    replay.sample_episode()
    np.testing.assert_allclose(replay.priorities, [2.5], rtol=1e-5)
    replay.learned(np.array([3]), np.array([8], np.float32))
    np.testing.assert_allclose(replay.priorities, [8], rtol=1e-5)


def test_a_new_episode_has_the_highest_priority_stored():
    replay = filled(alpha=1.0)
    for number, error in enumerate([0.1, 0.3, 0.2, 0.1, 0.1]):
        learn(replay, error, number)
    replay.add_episode(make_episode(5, 4))
    np.testing.assert_allclose(replay.priorities, [0.1, 0.3, 0.2, 0.1, 0.1, 0.3], rtol=1e-4)


def test_an_episode_without_errors_can_still_be_drawn():
    replay = filled()
    learn(replay, 0)
    assert (counts(replay) > 0).all()


def test_priorities_stay_with_their_episodes_while_the_oldest_leave():
    replay = filled(lengths=(), capacity=60, alpha=1.0)
    errors, rng = {}, np.random.default_rng(0)
    for number in range(40):
        replay.add_episode(make_episode(number, int(rng.integers(1, 12))))
        errors[number] = rng.random() + 0.1
        learn(replay, errors[number], number)
        stored = range(replay.first_episode, number + 1)
        expected = [errors[each] for each in stored]
        np.testing.assert_allclose(replay.priorities, expected, rtol=1e-4)
    assert replay.first_episode > 20
    before = replay.priorities.copy()
    replay.learned(np.array([0, 5]), np.array([99, 99], np.float32))  # Of episodes that left.
    assert np.array_equal(replay.priorities, before)


def test_a_restored_replay_draws_the_same_sequence(tmp_path):
    replay = filled(capacity=18)  # The first has left.
    for number, error in enumerate([7, 2, 0.5, 4], start=1):
        learn(replay, error, number)
    replay.sample_episode()
    manifest, state = EpisodeFiles(tmp_path, replay).save(), replay.state()
    state = {name: array.copy() for name, array in state.items()}
    other = filled(lengths=(), capacity=18, seed=9)
    EpisodeFiles(tmp_path, other).load(manifest)
    assert len(other.priorities) == other.num_episodes == 4
    other.set_state(state)
    for step in range(300):
        episode, twin = replay.sample_episode(), other.sample_episode()
        assert number_of(episode) == number_of(twin)
        if step % 3 == 0:
            for each in (replay, other):
                learn(each, step % 7 + 0.5, number_of(episode))
        if step == 150:
            for each in (replay, other):
                each.add_episode(make_episode(5, 3))
    assert np.array_equal(replay.priorities, other.priorities)


def test_alpha_below_0():
    with pytest.raises(ValueError, match='PrioritizedEpisodeReplay.alpha must be .*got -1'):
        filled(alpha=-1)


def test_a_run_tells_the_errors_of_its_learner_steps(tmp_path):
    longer = {'Runner.training_steps': 240, 'EpisodeReplay.capacity_transitions': 200}
    settings = {**SETTINGS['prioritized_episodes'], **longer}
    train('prioritized_episodes', tmp_path / 'run', settings=settings)
    newest = max((tmp_path / 'run' / 'checkpoints').iterdir())
    priorities = np.load(newest / 'arrays.npz')['replay_priorities']
    assert len(priorities) == 20  # 200 transitions in episodes of 10.
    assert len(np.unique(priorities)) > 10 and (priorities != 1).all()
