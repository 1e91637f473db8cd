"""Behaviour that only the authors' released code has: its draws, minibatches and moments."""

import functools

import numpy as np
import pytest
import tensorflow as tf

from ob2i_tf import networks, released, targets
from ob2i_tf.replay import EmptyReplayError, EpisodeReplay
from tests import atari
from tests.episodes import FRAME, make_episode, numbers_in
from tests.test_bonuses import bonus_of_terminals, experience, q_tables
from tests.test_updates import HISTORY, all_stacks, expected_targets, parts, random_episode

ReleasedEpisodicUpdate = functools.partial(
    released.ReleasedEpisodicUpdate, **atari.EpisodicUpdate.keywords
)

# Replay.


def make_replay(oldest=5, newest=3, **keywords):
    return released.ReleasedEpisodeReplay(
        FRAME,
        oldest,
        newest,
        capacity_transitions=1000,
        observation_dtype=np.int32,
        **keywords,
    )


def test_the_oldest_and_newest_episodes_are_not_drawn():
    replay = make_replay(2, 1)
    for number in range(3):
        assert not replay.can_sample
        with pytest.raises(EmptyReplayError, match=f'among the {number} complete episodes'):
            replay.sample_episode()
        replay.add_episode(make_episode(number, 5))
    replay.add_episode(make_episode(3, 5))
    assert replay.can_sample and numbers_in(replay, 20) == {2}
    for number in range(4, 20):
        replay.add_episode(make_episode(number, 5))
    assert numbers_in(replay) == set(range(2, 19))


def test_the_first_of_nine_episodes_to_be_drawn_is_the_sixth():
    replay = make_replay()
    for number in range(9):
        replay.add_episode(make_episode(number, 5))
    assert numbers_in(replay, 20) == {5}


def test_exclusions_must_leave_an_episode():
    with pytest.raises(ValueError, match='capacity_episodes = 8 leaves no episode to draw'):
        make_replay(capacity_episodes=8)
    make_replay(capacity_episodes=9)
    with pytest.raises(ValueError, match='exclude_newest_episodes must be at least 0, got -1'):
        make_replay(newest=-1)


# Bonus.


def test_normalizer_batch_divides_each_chunk_by_the_moments_so_far():
    q_values, next_q, actions = q_tables(70)
    bonus = released.ReleasedUcbBonus(prior_count=0.0)
    compiled = tf.function(lambda *x: bonus(experience(*x)))
    reward_bonus, next_bonus, _ = compiled(q_values, next_q, actions)
    rows = np.arange(70)
    raw_reward, raw_next = q_values.std(1)[rows, actions], next_q.std(1)
    at_greedy = raw_next[rows[:, None], next_q.argmax(-1)]
    for start, end in ((38, 70), (6, 38), (0, 6)):  # From the end of the episode.
        np.testing.assert_allclose(
            reward_bonus[start:end], raw_reward[start:end] / raw_reward[start:].std(), rtol=1e-4
        )
        np.testing.assert_allclose(
            next_bonus[start:end], raw_next[start:end] / at_greedy[start:].std(), rtol=1e-4
        )


@pytest.mark.parametrize('normalizer_batch', [4, 2])
def test_terminals_enter_the_moments_of_the_next_bonus(normalizer_batch):
    bonus = released.ReleasedUcbBonus(prior_count=0.0, normalizer_batch=normalizer_batch)
    std = np.std([1, 3, 100, 5])
    last_std = np.std([100, 5]) if normalizer_batch == 2 else std
    expected = np.divide([1, 3, 100, 5], [std, std, last_std, last_std])
    np.testing.assert_allclose(bonus_of_terminals(bonus), expected, rtol=1e-6)
    assert float(bonus.next_bonus_std.count) == 8  # Each once per head.
    np.testing.assert_allclose(bonus.next_bonus_std.std, std, rtol=1e-12)


@pytest.mark.parametrize('reward, next_', [(False, True), (True, False), (False, False)])
def test_each_bonus_may_stay_as_it_is(reward, next_):
    q_values, next_q, actions = q_tables()
    bonus = released.ReleasedUcbBonus(normalize_reward_bonus=reward, normalize_next_bonus=next_)
    reward_bonus, next_bonus, _ = bonus(experience(q_values, next_q, actions))
    raw = q_values.std(1)[np.arange(len(actions)), actions]
    assert np.allclose(reward_bonus, raw, rtol=1e-5) != reward
    assert np.allclose(next_bonus, next_q.std(1), rtol=1e-5) != next_


def test_the_moments_have_the_prior_of_the_released_code():
    bonus = released.ReleasedUcbBonus()
    for moments in (bonus.reward_bonus_std, bonus.next_bonus_std):
        assert float(moments.count) == float(moments.squares) == 1e-4


def test_numbers_out_of_range_are_named():
    with pytest.raises(ValueError, match='UcbBonus.normalizer_batch must be at least 1, got 0'):
        released.ReleasedUcbBonus(normalizer_batch=0)
    with pytest.raises(ValueError, match='UcbBonus.prior_count must be at least 0, got -0.5'):
        released.ReleasedUcbBonus(prior_count=-0.5)


# Update.


class InTurn(EpisodeReplay):
    """Draws one episode after another."""

    drawn = 0

    def draw_episode(self, candidates):
        self.drawn += 1
        return candidates[(self.drawn - 1) % len(candidates)]


def two_episodes(lengths=(40, 41)):
    """A replay that draws two truncated episodes in turn, two networks, and the episodes."""
    _, network, target_network, _ = parts()
    rng = np.random.default_rng(6)
    episodes = [random_episode(rng, length, terminal=False) for length in lengths]
    replay = InTurn((2, 2), 1000, history=HISTORY)
    for episode in episodes:
        replay.add_episode(episode)
    return replay, network, target_network, episodes


def test_tail_is_filled_from_another_episode():
    replay, network, target_network, (episode, other) = two_episodes()
    update = ReleasedEpisodicUpdate(replay, network, target_network)
    y, its_y = (
        expected_targets(e, network, target_network, beta=0.5, alpha_1=0, alpha_2=0)
        for e in (episode, other)
    )
    batch, _ = update.next_batch()
    np.testing.assert_array_equal(batch.observations, all_stacks(episode)[8:40])
    np.testing.assert_allclose(batch.targets, y[8:], atol=1e-5)
    batch, report = update.next_batch()  # 8 rows are left: 24 come from the end of the other one.
    assert not report and update.state() == {}
    np.testing.assert_array_equal(batch.weights, np.ones(32))
    for rows, e, its in ((slice(0, 24), other, slice(17, 41)), (slice(24, 32), episode, slice(8))):
        np.testing.assert_array_equal(batch.observations[rows], all_stacks(e)[its])
        np.testing.assert_array_equal(batch.actions[rows], e.actions[its])
    np.testing.assert_allclose(batch.targets[:24], its_y[17:], atol=1e-5)
    np.testing.assert_allclose(batch.targets[24:], y[:8], atol=1e-5)


def test_targets_of_a_tail_are_those_of_the_moment_the_episode_was_drawn():
    replay, network, target_network, (_, other) = two_episodes()
    update = ReleasedEpisodicUpdate(replay, network, target_network)
    keywords = {'beta': 0.5, 'alpha_1': 0, 'alpha_2': 0}
    y = expected_targets(other, network, target_network, **keywords)
    update.next_batch()
    networks.copy_variables(network, target_network)
    assert np.abs(expected_targets(other, network, target_network, **keywords) - y).min() > 1e-4
    np.testing.assert_allclose(update.next_batch()[0].targets[:24], y[17:], atol=1e-5)


def test_rows_of_a_tail_are_in_the_moments_that_divide_its_batch():
    replay, network, target_network, (episode, other) = two_episodes()
    weights = {'beta': 0.7, 'alpha_1': 0.3, 'alpha_2': 0.2, 'greedy': 'initial'}
    update = ReleasedEpisodicUpdate(
        replay,
        network,
        target_network,
        **weights,
        bonus=released.ReleasedUcbBonus(prior_count=0.0),
    )
    rows = [(other, np.arange(17, 41)), (episode, np.arange(40))]  # As they are consumed: 64.
    q_values = [network(all_stacks(e)[t]).numpy() for e, t in rows]
    next_q = [target_network(all_stacks(e)[t + 1]).numpy() for e, t in rows]
    b = np.concatenate([q.std(1)[t - t[0], e.actions[t]] for q, (e, t) in zip(q_values, rows)])
    at_greedy = np.concatenate([np.take_along_axis(q.std(1), q.argmax(-1), axis=1) for q in next_q])
    divisors = [
        np.where(np.arange(64) < 32, x.std(), x[32:].std()).astype(np.float32)
        for x in (b, at_greedy)
    ]
    y = np.concatenate(
        [
            targets.backward_induction(
                e.rewards[t],
                e.discounts[t],
                e.actions[t],
                q,
                (b / divisors[0])[its],
                q.std(1) / divisors[1][its, None],
                **weights,
            )
            for (e, t), q, its in zip(rows, next_q, (slice(24), slice(24, 64)))
        ]
    )
    assert np.abs(divisors[0][0] / divisors[0][-1] - 1) > 0.05
    for part in (slice(32, 64), slice(32)):
        np.testing.assert_allclose(update.next_batch()[0].targets, y[part], atol=1e-5)


def test_a_tail_that_is_short_of_rows_is_padded():
    replay, network, target_network, (episode, other) = two_episodes((40, 5))
    update = ReleasedEpisodicUpdate(replay, network, target_network)
    assert update.next_batch()[0].weights.sum() == 32
    batch, _ = update.next_batch()
    np.testing.assert_array_equal(batch.weights, [1] * 13 + [0] * 3)
    expected = np.concatenate([other.actions, episode.actions[:8]])
    np.testing.assert_array_equal(batch.actions[:13], expected)


def test_an_episode_of_whole_batches_has_no_tail():
    replay, network, target_network, _ = two_episodes((64, 5))
    update = ReleasedEpisodicUpdate(replay, network, target_network)
    for _ in range(2):
        batch, _ = update.next_batch()
        np.testing.assert_array_equal(batch.weights, np.ones(32))
    assert replay.drawn == 1


@pytest.mark.parametrize('batching', ['episode', 'pooled'])
def test_only_chunks_are_filled_up(batching):
    with pytest.raises(ValueError, match=f'batching = .chunks., got .{batching}'):
        ReleasedEpisodicUpdate(*parts()[:3], batching=batching)
