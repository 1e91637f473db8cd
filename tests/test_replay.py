"""Stacks, capacity and draws of episodes in memory."""

import numpy as np
import pytest

from ob2i_tf.errors import UserError
from ob2i_tf.frames import stack
from ob2i_tf.replay import EmptyReplayError, EpisodeReplay, EpisodeTooLongError
from ob2i_tf.types import Episode
from tests.episodes import (
    FRAME,
    equal,
    first_ids,
    make_episode,
    make_replay,
    number_of,
    numbers_in,
    same_future,
)


def _play(rng, history, episodes):
    """Games of life-long episodes on frames that are never shown twice.

    Yields:
      An Episode, and the [T + 1, *stack] that the agent saw in it.
    """
    shown = 0
    seen = []
    for _ in range(episodes):
        new_game = not seen or rng.random() < 0.5
        if new_game:  # The last one ended, or was cut by the step limit.
            shown += 1
            seen = [shown] * history
        context, ids, stacks = seen[-history:-1], [seen[-1]], [seen[-history:]]
        for _ in range(rng.integers(1, 40)):
            shown += 1
            seen.append(shown)
            ids.append(shown)
            stacks.append(seen[-history:])
        length = len(ids) - 1
        frames = [
            np.broadcast_to(np.reshape(x, (-1, 1, 1)), (len(x), *FRAME)).astype(np.int32)
            for x in (ids, context)
        ]
        stacks = np.array(stacks, np.int32)
        stacks = np.broadcast_to(stacks[:, None, None], (length + 1, *FRAME, history))
        episode = Episode(
            frames[0],
            np.array(ids[:-1]),
            np.zeros(length),
            np.ones(length),
            None if new_game else frames[1],
        )
        yield episode, stacks[..., 0] if history == 1 else stacks


@pytest.mark.parametrize('history', [1, 4])
def test_every_stack_is_the_one_that_was_acted_on(history):
    rng = np.random.default_rng(history)
    replay = make_replay(800, history)
    acted = {}  # First frame of an episode, or its action at a time -> stacks.
    for episode, stacks in _play(rng, history, 150):
        replay.add_episode(episode)
        first = episode.observations.flat[0], episode.observations.flat[-1]
        acted[first] = stacks
        for t, action in enumerate(episode.actions):
            acted[int(action)] = stacks[t], stacks[t + 1]
    episodes = set()
    for _ in range(600):
        episode = replay.sample_episode()
        assert episode.context.shape == (history - 1, *FRAME)
        key = episode.observations.flat[0], episode.observations.flat[-1]
        frames = np.concatenate([episode.context, episode.observations])
        starts = np.arange(len(episode.observations))
        assert np.array_equal(stack(frames, starts, history), acted[key])
        assert np.array_equal(episode.actions, episode.observations[:-1, 0, 0])
        episodes.add(key)
    assert len(episodes) == replay.num_episodes
    actions = set()
    for _ in range(60):
        batch = replay.sample_transitions(200)
        for action, observation, next_observation in zip(
            batch.actions, batch.observations, batch.next_observations
        ):
            expected, next_expected = acted[int(action)]
            assert np.array_equal(observation, expected)
            assert np.array_equal(next_observation, next_expected)
            actions.add(int(action))
    assert len(actions) == replay.num_transitions


def test_what_is_added_comes_back():
    for frame, dtype, length in [((84, 84), np.uint8, 30), ((), np.float32, 3), ((5,), 'f8', 1)]:
        rng = np.random.default_rng(0)
        replay = make_replay(100, history=3, frame=frame, dtype=dtype)
        frames = (200 * rng.random((length + 3, *frame))).astype(dtype)
        added = Episode(
            frames[2:],
            rng.integers(-5, 5, length, np.int32),
            rng.normal(size=length).astype(np.float32),
            rng.random(length, np.float32),
            frames[:2],
        )
        replay.add_episode(added)
        frames_before = frames.copy()
        frames[:] = 0  # The caller may reuse the arrays.
        sampled = replay.sample_episode()
        assert equal(
            sampled, added._replace(observations=frames_before[2:], context=frames_before[:2])
        )
        assert [x.dtype for x in sampled[:5]] == [dtype, np.int32, np.float32, np.float32, dtype]
        assert not sampled.observations.flags.writeable
        batch = replay.sample_transitions(4)
        expected = [dtype, np.int32, np.float32, np.float32, dtype, np.int64]
        assert [x.dtype for x in batch] == expected
        assert batch.observations.shape == batch.next_observations.shape == (4, *frame, 3)
        assert all(x.flags.c_contiguous for x in batch)


def test_a_sampled_episode_outlives_its_place_in_the_replay():
    replay = make_replay(100, frame=(84, 84), dtype=np.uint8)

    def constant(value):
        return Episode(
            np.full((61, 84, 84), value, np.uint8), np.zeros(60, int), np.zeros(60), np.ones(60)
        )

    replay.add_episode(constant(1))
    sampled = replay.sample_episode()
    for _ in range(5):
        replay.add_episode(constant(2))
    assert (sampled.observations == 1).all()


# Capacity.


def test_capacity_counts_transitions_and_the_oldest_leave():
    replay = make_replay(50)
    rng = np.random.default_rng(0)
    stored = []
    for number in range(40):
        length = int(rng.integers(1, 30))
        replay.add_episode(make_episode(number, length))
        stored.append((number, length))
        while sum(length for _, length in stored) > 50:
            del stored[0]
        assert replay.num_transitions == sum(length for _, length in stored)
        assert replay.num_episodes == len(stored)
        assert numbers_in(replay, 60) == {number for number, _ in stored}
    replay.add_episode(make_episode(99, 50))
    assert (replay.num_episodes, replay.num_transitions, numbers_in(replay)) == (1, 50, {99})
    with pytest.raises(ValueError, match=r'51 transitions.*capacity_transitions = 50'):
        replay.add_episode(make_episode(0, 51))
    assert replay.num_transitions == 50


def test_nothing_to_sample():
    replay = make_replay()
    assert not replay.can_sample
    with pytest.raises(EmptyReplayError, match='among the 0 complete episodes'):
        replay.sample_episode()
    with pytest.raises(EmptyReplayError):
        replay.sample_transitions(1)
    replay.add_episode(make_episode(0, 5))
    assert replay.can_sample and replay.candidates == range(1)


@pytest.mark.parametrize(
    'change, message',
    [
        (
            {'observations': np.zeros((6, 2, 2), np.int32)},
            r'observations: expected int32 \(6, 2, 3',
        ),
        ({'observations': np.zeros((6, 2, 3), np.uint8)}, r'observations: .* got uint8 \(6, 2, 3'),
        (
            {'observations': np.zeros((1, 2, 3), np.int32)},
            r'at least 1 transition, got .*\(1, 2, 3',
        ),
        ({'observations': np.int32(1)}, r'observations: .*got shape \(\)'),
        ({'context': np.zeros((2, *FRAME), np.int32)}, r'context: expected int32 \(3, 2, 3\), got'),
        ({'actions': np.zeros(6, int)}, r'actions: expected integers \(5,\), got int64 \(6,\)'),
        ({'actions': np.zeros(5)}, r'actions: expected integers \(5,\), got float64'),
        ({'rewards': np.zeros((5, 1))}, r'rewards: expected numbers \(5,\), got float64 \(5, 1\)'),
        ({'rewards': np.array([0, 0, np.nan, 0, 0])}, 'rewards: expected finite.*nan at 2'),
        ({'rewards': np.array([0, 0, 0, 0, 1e300])}, 'rewards: expected finite.*inf at 4'),
        ({'discounts': np.array([0, np.inf, 0, 0, 0])}, 'discounts: expected finite.*inf at 1'),
    ],
)
def test_an_episode_that_is_not_well_formed(change, message):
    replay = make_replay(history=4)
    with pytest.raises(ValueError, match=message):
        replay.add_episode(make_episode(1, 5, 4)._replace(**change))
    assert replay.num_episodes == 0


@pytest.mark.parametrize(
    'name, value',
    [
        ('capacity_transitions', 1e3),
        ('capacity_transitions', 0),
        ('history', 0),
        ('capacity_episodes', 0),
        ('observation_dtype', object),
    ],
)
def test_arguments_out_of_range(name, value):
    with pytest.raises(ValueError, match=f'EpisodeReplay.{name}'):
        EpisodeReplay(**{'observation_shape': FRAME, 'capacity_transitions': 100, name: value})


def test_a_capacity_has_to_be_given():
    with pytest.raises(RuntimeError, match=r"`EpisodeReplay` not .*'capacity_transitions'"):
        EpisodeReplay(FRAME)


# Draws.


def _chi_square(counts, probabilities):
    expected = np.sum(counts) * np.asarray(probabilities)
    return np.sum((counts - expected) ** 2 / expected)


def test_draws_are_uniform_over_episodes_and_over_transitions():
    replay = make_replay(200, seed=3)
    lengths = [60, 50, 1, 40, 2, 30, 25, 17, 9, 5, 3]  # The first leaves.
    for number, length in enumerate(lengths):
        replay.add_episode(make_episode(number, length))
    assert replay.num_episodes == 10
    numbers = [number_of(replay.sample_episode()) for _ in range(2000)]
    counts = np.bincount(numbers, minlength=11)
    assert counts[0] == 0 and _chi_square(counts[1:], [0.1] * 10) < 27.9  # p = 0.001, 9 degrees.
    actions = np.concatenate([replay.sample_transitions(200).actions for _ in range(30)])
    _, counts = np.unique(actions, return_counts=True)
    assert len(counts) == 182  # Of as many transitions.
    assert _chi_square(counts, [1 / 182] * 182) < 245  # p = 0.001, 181 degrees.


def test_episodes_are_drawn_as_one_after_another_until_they_are_long_enough():
    """The same draws, whether requested together or one by one."""
    at_once, singly = (
        EpisodeReplay(FRAME, 1000, history=2, seed=3, observation_dtype=np.int32) for _ in range(2)
    )
    rng = np.random.default_rng(0)
    for episode, _ in _play(rng, 2, 30):
        at_once.add_episode(episode)
        singly.add_episode(episode)
    for wanted in (1, 7, 40, 300):
        episodes = at_once.sample_episodes(wanted)
        lengths = [len(episode.actions) for episode in episodes]
        assert sum(lengths[:-1]) < wanted <= sum(lengths)
        for episode in episodes:
            for x, y in zip(episode, singly.sample_episode()):
                np.testing.assert_array_equal(x, y)


def test_the_seed_decides_the_draws():
    replays = [make_replay(seed=seed) for seed in (5, np.random.SeedSequence(5), 6)]
    for number in range(20):
        for replay in replays:
            replay.add_episode(make_episode(number, 5 + number))
    assert same_future(*replays[:2])
    assert not same_future(*replays[1:])


@pytest.mark.parametrize('history', [1, 4])
@pytest.mark.parametrize('n_steps', [1, 3, 100])
def test_transitions_over_several_steps(n_steps, history):
    replay = make_replay(40, history)
    expected, first_id = {}, 0
    for number, (length, last) in enumerate([(30, 0), (9, 0), (12, 0.9), (1, 0), (1, 0.9), (6, 0)]):
        episode = make_episode(number, length, history)
        episode.discounts[-1] = last
        episode.discounts[length // 2 : -1] = 0.5
        replay.add_episode(episode)
        frames = np.concatenate([episode.context, episode.observations])
        for t in range(length):
            reward, factor, end = 0.0, 1.0, t
            while end < min(t + n_steps, length):
                reward += factor * episode.rewards[end]
                factor *= episode.discounts[end]
                end += 1
            stacks = [np.stack([frames[i + age] for age in range(history)], -1) for i in (t, end)]
            expected[first_id + t] = *stacks, episode.actions[t], reward, factor
        first_id += length
    seen = set()
    for _ in range(20):
        batch = replay.sample_transitions(30, n_steps)
        for row, number in enumerate(batch.ids.tolist()):
            observation, next_observation, action, reward, discount = expected[number]
            if history == 1:
                observation, next_observation = observation[..., 0], next_observation[..., 0]
            assert np.array_equal(batch.observations[row], observation)
            assert np.array_equal(batch.next_observations[row], next_observation)
            assert batch.actions[row] == action
            np.testing.assert_allclose(batch.rewards[row], reward, rtol=1e-6)
            np.testing.assert_allclose(batch.discounts[row], discount, rtol=1e-6)
            seen.add(number)
    assert seen == set(range(30, 59))  # The first episode has left.
    assert batch.rewards.dtype == batch.discounts.dtype == np.float32


def test_an_episode_tells_the_ids_of_its_transitions():
    replay = make_replay(50, 2)
    for number, length in enumerate([20, 7, 1, 30, 11, 3]):
        replay.add_episode(make_episode(number, length, 2))
    assert first_ids(replay) == {2: 27, 3: 28, 4: 58, 5: 69}


# Episodes by index, and subclasses.


def test_episodes_by_index_and_transitions_by_id():
    replay = make_replay(50, 2)
    lengths = [20, 7, 1, 30, 11, 3]
    for number, length in enumerate(lengths):
        replay.add_episode(make_episode(number, length, 2))
    assert (replay.first_episode, replay.first_transition, replay.num_episodes) == (2, 27, 4)
    for index, length in enumerate(lengths[2:]):
        frames, steps = replay.episode(index)
        expected = make_episode(index + 2, length, 2)
        assert replay.episode_length(index) == length == len(steps)
        assert np.array_equal(frames, np.concatenate([expected.context, expected.observations]))
        assert np.array_equal(steps['action'], expected.actions)
        assert not frames.flags.writeable and not steps.flags.writeable
    indices = replay.indices_of(np.array([58, 0, 26, 27, 28, 57, 71]))
    assert indices.dtype == np.int64 and indices.tolist() == [2, -1, -1, 0, 1, 1, 3]
    assert replay.indices_of(np.array([], np.int64)).shape == (0,)


def test_a_cleared_replay_counts_on_from_where_it_is_told():
    replay = make_replay(50)
    for number in range(4):
        replay.add_episode(make_episode(number, 5))
    replay.clear(7, 100)
    assert (replay.num_episodes, replay.num_transitions) == (0, 0)
    assert (replay.first_episode, replay.first_transition) == (7, 100)
    for number in (8, 9):
        replay.add_episode(make_episode(number, 5))
    assert first_ids(replay) == {8: 100, 9: 105}
    replay.clear()
    assert (replay.first_episode, replay.first_transition) == (0, 0)


class _Newest(EpisodeReplay):
    """Draws the third newest episode and keeps a list of the episodes' lengths."""

    def __init__(self, *args, **kwargs):
        super().__init__(*args, **kwargs)
        self.lengths = []

    def draw_episode(self, candidates):
        return candidates[-1]

    @property
    def candidates(self):
        return range(1, self.num_episodes - 2)

    def append(self, frames, steps):
        super().append(frames, steps)
        self.lengths.append(len(steps))

    def drop_oldest(self):
        super().drop_oldest()
        del self.lengths[0]


def test_a_subclass_draws_episodes_and_hears_of_those_that_come_and_leave():
    replay = _Newest(FRAME, 50, 1, 0, np.int32)
    rng = np.random.default_rng(0)
    for number in range(40):
        replay.add_episode(make_episode(number, int(rng.integers(1, 12))))
        lengths = [replay.episode_length(index) for index in range(replay.num_episodes)]
        assert replay.lengths == lengths
        if replay.can_sample:
            assert number_of(replay.sample_episode()) == number - 2
            wanted = lengths[-3] + 1  # One transition more than the newest candidate has.
            assert [number_of(e) for e in replay.sample_episodes(wanted)] == [number - 2] * 2
    assert number > replay.num_episodes
    replay.clear()
    assert replay.lengths == []


def test_learned_and_state_are_of_no_effect_here():
    replay = make_replay()
    replay.add_episode(make_episode(0, 5))
    replay.learned(np.arange(5), np.ones(5, np.float32))
    replay.set_state(replay.state())
    assert replay.state() == {} and replay.num_transitions == 5


def test_an_episode_that_does_not_fit_ends_a_run_in_one_line():
    with pytest.raises(EpisodeTooLongError, match='11 transitions .*capacity_transitions = 10'):
        make_replay(capacity=10).add_episode(make_episode(0, 11))
    assert issubclass(EpisodeTooLongError, UserError)


@pytest.mark.parametrize('index', [-1, 2, None, 0.5])
def test_a_drawn_episode_must_be_a_candidate(index):
    class OwnReplay(EpisodeReplay):
        def draw_episode(self, candidates):
            return index

    replay = OwnReplay(FRAME, 50, 1, 0, np.int32)
    for number in range(2):
        replay.add_episode(make_episode(number, 3))
    message = rf'OwnReplay.draw_episode must return one of range\(0, 2\), got {index}'
    with pytest.raises(UserError, match=message):
        replay.sample_episodes(10)
