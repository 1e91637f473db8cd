"""Updates on real replay and networks: what is learnt from, and that learning is right."""

import functools

import numpy as np
import pytest
import tensorflow as tf

from ob2i_tf import bonuses, networks, optimizers, targets, types, updates
from ob2i_tf.learner import QLearner
from ob2i_tf.replay import EpisodeReplay

HISTORY = 3


def random_episode(rng, length, terminal=True):
    """Frames of 2x2 pixels."""
    discounts = np.full(length, 0.9, np.float32)
    discounts[-1] *= not terminal
    return types.Episode(
        rng.integers(0, 256, (length + 1, 2, 2), dtype=np.uint8),
        rng.integers(3, size=length, dtype=np.int32), rng.normal(size=length).astype(np.float32),
        discounts, rng.integers(0, 256, (HISTORY - 1, 2, 2), dtype=np.uint8),
    )  # fmt: skip


def parts(num_heads=4, num_episodes=1, length=75):
    """A replay of random episodes, and two different networks for it."""
    rng = np.random.default_rng(0)
    replay = EpisodeReplay((2, 2), 100_000, history=HISTORY, seed=3)
    episodes = [random_episode(rng, length) for _ in range(num_episodes)]
    for episode in episodes:
        replay.add_episode(episode)
    pair = [
        networks.build(
            networks.MultiHeadQNetwork(3, num_heads, 16, conv_layers=(), seed=seed),
            (2, 2, HISTORY), tf.uint8)
        for seed in (1, 2)
    ]  # fmt: skip
    return replay, *pair, episodes


def all_stacks(episode):
    frames = np.concatenate([episode.context, episode.observations])
    return np.stack([frames[i : i + len(episode.observations)] for i in range(HISTORY)], axis=-1)


def expected_targets(episode, network, target_network, **keywords):
    """Targets of a whole episode, put together by hand from one pass of each network."""
    stacks = all_stacks(episode)
    q_values, next_q = network(stacks[:-1]).numpy(), target_network(stacks[1:]).numpy()
    reward_bonus = q_values.std(1)[np.arange(len(episode.actions)), episode.actions]
    next_bonus = next_q.std(1)
    at_greedy = np.take_along_axis(next_bonus, next_q.argmax(-1), axis=1)
    return targets.backward_induction(
        episode.rewards, episode.discounts, episode.actions, next_q, reward_bonus,
        next_bonus / at_greedy.std(), **keywords,
    )  # fmt: skip


@pytest.mark.parametrize('states_per_pass', [7, 25, 256])
def test_an_episode_is_consumed_from_its_end(states_per_pass):
    replay, network, target_network, (episode,) = parts()
    weights = {'beta': 0.7, 'alpha_1': 0.3, 'alpha_2': 0.2, 'greedy': 'initial'}
    update = updates.EpisodicUpdate(
        replay, network, target_network, bonus=bonuses.UcbBonus(),
        states_per_pass=states_per_pass, **weights,
    )  # fmt: skip
    y = expected_targets(episode, network, target_network, **weights)
    stacks = all_stacks(episode)
    for start, end in ((43, 75), (11, 43), (0, 11)):
        batch, report = update.next_batch()
        count = end - start
        assert bool(report) == (end == 75)
        np.testing.assert_array_equal(batch.observations[:count], stacks[start:end])
        np.testing.assert_array_equal(batch.actions[:count], episode.actions[start:end])
        np.testing.assert_allclose(batch.targets[:count], y[start:end], atol=1e-5)
        np.testing.assert_array_equal(batch.weights, [1] * count + [0] * (32 - count))
        assert batch.observations.shape == (32, 2, 2, HISTORY)
    _, report = update.next_batch()  # The next episode is drawn.
    assert set(report) == {'bonus_mean', 'next_bonus_mean'}


def test_targets_are_those_of_the_moment_the_episode_was_drawn():
    replay, network, target_network, (episode,) = parts()
    update = updates.EpisodicUpdate(replay, network, target_network, beta=0.5)
    y = expected_targets(episode, network, target_network, beta=0.5, alpha_1=0, alpha_2=0)
    update.next_batch()
    networks.copy_variables(network, target_network)
    np.testing.assert_allclose(update.next_batch()[0].targets, y[11:43], atol=1e-5)


def test_without_bonus_the_online_network_plays_no_part():
    replay, network, target_network, _ = parts()
    batch, report = updates.EpisodicUpdate(replay, network, target_network).next_batch()
    other = networks.build(
        networks.MultiHeadQNetwork(3, 4, 16, conv_layers=(), seed=9), (2, 2, HISTORY), tf.uint8
    )
    again, _ = updates.EpisodicUpdate(replay, other, target_network).next_batch()
    np.testing.assert_array_equal(batch.targets, again.targets)
    assert report == {'bonus_mean': 0, 'next_bonus_mean': 0}


def test_tail_is_filled_from_another_episode():
    replay, network, target_network, episodes = parts(num_episodes=40, length=40)
    update = updates.EpisodicUpdate(replay, network, target_network, tail='other_episode')
    update.next_batch()
    batch, _ = update.next_batch()  # 8 rows are left: 24 come from the end of another episode.
    np.testing.assert_array_equal(batch.weights, np.ones(32))
    found = [
        index for index, episode in enumerate(episodes)
        if (all_stacks(episode)[16:40] == batch.observations[8:]).all()
    ]  # fmt: skip
    assert len(found) == 1
    y = expected_targets(
        episodes[found[0]], network, target_network, beta=0.5, alpha_1=0, alpha_2=0
    )
    np.testing.assert_allclose(batch.targets[8:], y[16:], atol=1e-5)


def test_whole_episode_in_one_step():
    replay, network, target_network, (episode,) = parts(length=70)
    update = updates.EpisodicUpdate(replay, network, target_network, consumption='whole')
    batch, _ = update.next_batch()
    np.testing.assert_array_equal(batch.observations, all_stacks(episode)[:-1])
    assert len(batch.targets) == 70 and batch.weights.all()


def test_lengths_do_not_retrace():
    replay, network, target_network, _ = parts()
    for length in (1, 2, 5, 31, 32, 33, 300):
        replay.add_episode(random_episode(np.random.default_rng(length), length))
    update = updates.EpisodicUpdate(replay, network, target_network, bonus=bonuses.UcbBonus())
    for _ in range(60):
        update.next_batch()
    assert [f.experimental_get_tracing_count() for f in update.compiled_functions()] == [1]


def test_state_carries_on_in_the_middle_of_an_episode():
    replay, network, target_network, _ = parts()
    update = updates.EpisodicUpdate(replay, network, target_network)
    update.next_batch()
    other = updates.EpisodicUpdate(replay, network, target_network)
    other.set_state({name: array.copy() for name, array in update.state().items()})
    for mine, its in zip(update.next_batch()[0], other.next_batch()[0]):
        np.testing.assert_array_equal(mine, its)


def test_transition_update_is_the_one_step_target():
    replay, network, target_network, (episode,) = parts()
    update = updates.TransitionUpdate(replay, network, target_network, double_q=True)
    batch, _ = update.next_batch()
    stacks = all_stacks(episode)
    y = targets.one_step(
        episode.rewards, episode.discounts, target_network(stacks[1:]),
        online_next_q=network(stacks[1:]),
    ).numpy()  # fmt: skip
    for row in range(32):
        (t,) = np.flatnonzero((stacks[:-1] == batch.observations[row]).all(axis=(1, 2, 3)))
        assert batch.actions[row] == episode.actions[t]
        np.testing.assert_allclose(batch.targets[row], y[t], atol=1e-5)


def chain_episodes(rng, count):
    """Three states in a row: right leads on, from the last to a reward of 1; left ends with 0.1."""
    for _ in range(count):
        actions = []
        while len(actions) < 3 and (not actions or actions[-1]):
            actions.append(int(rng.random() < 0.7))
        length = len(actions)
        last_reward = 1.0 if actions == [1, 1, 1] else 0.1
        yield types.Episode(
            observations=np.eye(4, dtype=np.float32)[: length + 1],
            actions=np.array(actions, np.int32),
            rewards=np.array([0.0] * (length - 1) + [last_reward], np.float32),
            discounts=np.array([0.9] * (length - 1) + [0.0], np.float32),
        )


@pytest.mark.parametrize('name', ['episodic', 'transitions'])
def test_heads_converge_on_a_chain_to_the_values_by_hand(name):
    replay = EpisodeReplay((4,), 10_000, seed=0, observation_dtype=np.float32)
    for episode in chain_episodes(np.random.default_rng(0), 200):
        replay.add_episode(episode)
    pair = [
        networks.build(
            networks.MultiHeadQNetwork(2, 5, 32, conv_layers=(), seed=seed), (4,), tf.float32
        )
        for seed in (1, 2)
    ]
    update = {
        'episodic': lambda: updates.EpisodicUpdate(replay, *pair, batch_size=4),
        'transitions': lambda: updates.TransitionUpdate(replay, *pair),
    }[name]()
    learner = QLearner(*pair, optimizer=functools.partial(optimizers.adam, 3e-3))
    for step in range(1500):
        learner.step(update.next_batch()[0])
        if step % 20 == 0:
            learner.update_target()
    q_values = pair[0](np.eye(4, dtype=np.float32)[:3]).numpy()  # [3, 5, 2]
    expected = np.array([[0.1, 0.81], [0.1, 0.9], [0.1, 1.0]])
    np.testing.assert_allclose(q_values, np.tile(expected[:, None], (1, 5, 1)), atol=0.03)


def test_unknown_choices_are_refused():
    replay, network, target_network, _ = parts()
    with pytest.raises(ValueError, match="EpisodicUpdate.tail must be one of .*'none'"):
        updates.EpisodicUpdate(replay, network, target_network, tail='none')
    with pytest.raises(ValueError, match="EpisodicUpdate.greedy must be one of .*'max'"):
        updates.EpisodicUpdate(replay, network, target_network, greedy='max')
