"""Updates on real replay and networks: their batches, and that learning works."""

import functools
import math

import numpy as np
import pytest
import tensorflow as tf

from ob2i_tf import bonuses, networks, optimizers, released, targets, types, updates
from ob2i_tf.errors import ConfigError
from ob2i_tf.learner import QLearner
from ob2i_tf.replay import EpisodeReplay
from ob2i_tf.training.episode_files import EpisodeFiles
from tests import atari

HISTORY = 3


def random_episode(rng, length, terminal=True):
    """Frames of 2x2 pixels."""
    discounts = np.full(length, 0.9, np.float32)
    discounts[-1] *= not terminal
    return types.Episode(
        rng.integers(0, 256, (length + 1, 2, 2), dtype=np.uint8),
        rng.integers(3, size=length, dtype=np.int32),
        rng.normal(size=length).astype(np.float32),
        discounts,
        rng.integers(0, 256, (HISTORY - 1, 2, 2), dtype=np.uint8),
    )


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
            (2, 2, HISTORY),
            tf.uint8,
        )
        for seed in (1, 2)
    ]
    return replay, *pair, episodes


def all_stacks(episode):
    frames = np.concatenate([episode.context, episode.observations])
    return np.stack([frames[i : i + len(episode.observations)] for i in range(HISTORY)], axis=-1)


def expected_targets(episode, network, target_network, **keywords):
    """Targets of a complete episode, assembled by hand from one pass of each network."""
    stacks = all_stacks(episode)
    q_values, next_q = network(stacks[:-1]).numpy(), target_network(stacks[1:]).numpy()
    reward_bonus = q_values.std(1)[np.arange(len(episode.actions)), episode.actions]
    next_bonus = next_q.std(1)
    at_greedy = np.take_along_axis(next_bonus, next_q.argmax(-1), axis=1)
    at_greedy = at_greedy[episode.discounts > 0]
    return targets.backward_induction(
        episode.rewards,
        episode.discounts,
        episode.actions,
        next_q,
        reward_bonus,
        next_bonus / at_greedy.std(),
        **keywords,
    )


@pytest.mark.parametrize('chunk_size', [7, 25, 256])
def test_an_episode_is_consumed_from_its_end(chunk_size):
    replay, network, target_network, (episode,) = parts()
    weights = {'beta': 0.7, 'alpha_1': 0.3, 'alpha_2': 0.2, 'greedy': 'initial'}
    update = atari.EpisodicUpdate(
        replay,
        network,
        target_network,
        bonus=bonuses.UcbBonus(),
        chunk_size=chunk_size,
        **weights,
    )
    y = expected_targets(episode, network, target_network, **weights)
    stacks = all_stacks(episode)
    for start, end in ((43, 75), (11, 43), (0, 11)):
        batch, report = update.next_batch()
        count = end - start
        assert bool(report) == (end == 75)
        np.testing.assert_array_equal(batch.observations[:count], stacks[start:end])
        np.testing.assert_array_equal(batch.actions[:count], episode.actions[start:end])
        np.testing.assert_allclose(batch.targets[:count], y[start:end], atol=1e-5)
        rows = 8 * -(-count // 8)
        np.testing.assert_array_equal(batch.weights, [1] * count + [0] * (rows - count))
        assert batch.observations.shape == (rows, 2, 2, HISTORY)
    _, report = update.next_batch()  # The next episode is drawn.
    assert set(report) == set(updates._MEANS + updates._BONUS_MEANS)


def test_targets_are_those_of_the_moment_the_episode_was_drawn():
    replay, network, target_network, (episode,) = parts()
    update = atari.EpisodicUpdate(replay, network, target_network, beta=0.5)
    y = expected_targets(episode, network, target_network, beta=0.5, alpha_1=0, alpha_2=0)
    update.next_batch()
    networks.copy_variables(network, target_network)
    np.testing.assert_allclose(update.next_batch()[0].targets, y[11:43], atol=1e-5)


def test_without_bonus_the_online_network_plays_no_part():
    replay, network, target_network, _ = parts()
    batch, report = atari.EpisodicUpdate(replay, network, target_network).next_batch()
    other = networks.build(
        networks.MultiHeadQNetwork(3, 4, 16, conv_layers=(), seed=9), (2, 2, HISTORY), tf.uint8
    )
    again, _ = atari.EpisodicUpdate(replay, other, target_network).next_batch()
    np.testing.assert_array_equal(batch.targets, again.targets)
    assert report == {'bonus_mean': 0, 'next_bonus_mean': 0}


def test_a_bonus_without_weights_and_weights_without_a_bonus_are_told(caplog):
    for keywords, told in (
        ({'bonus': bonuses.UcbBonus()}, 'The bonus has no effect'),
        ({'alpha_2': 0.1}, 'there is no bonus'),
        ({'bonus': bonuses.UcbBonus(), 'alpha_1': 0.1}, ''),
        ({}, ''),
    ):
        for update in (atari.EpisodicUpdate, atari.TransitionUpdate):
            caplog.clear()
            update(*parts()[:3], **keywords)
            assert told in caplog.text and bool(told) == ('no effect' in caplog.text)
    caplog.clear()
    atari.EpisodicUpdate(*parts(num_heads=1)[:3], bonus=bonuses.UcbBonus(), alpha_1=0.1)
    assert 'standard deviation of one head is 0' in caplog.text
    with pytest.raises(ValueError, match='bonus must be Bonus or None'):
        atari.TransitionUpdate(*parts()[:3], bonus=bonuses.ensemble_std)


class OwnBonus(bonuses.Bonus):
    """Returns the results of a function of the numbers of rows and actions."""

    def __init__(self, give):
        super().__init__()
        self._give = give

    def __call__(self, experience):
        rows, actions = tf.shape(experience.actions)[0], experience.next_q.shape[-1]
        return self._give(rows, actions)


@pytest.mark.parametrize('update', [atari.EpisodicUpdate, atari.TransitionUpdate])
@pytest.mark.parametrize(
    'give, what',
    [
        (lambda n, a: (tf.zeros([n]), tf.zeros([n, a])), 'gives'),  # No means.
        (lambda n, a: (tf.zeros([n]), tf.zeros([n, a]), 0.0), 'gives'),
        (lambda n, a: (0.0, tf.zeros([n, a]), (0.0, 0.0)), 'gives'),
        (lambda n, a: (tf.zeros([n]), tf.zeros([n]), (0.0, 0.0)), 'gives'),
        (lambda n, a: tf.zeros([n]).nothing, 'fails with AttributeError'),
    ],
)
def test_a_bonus_of_ones_own_is_tried_before_anything_runs(update, give, what):
    with pytest.raises(ConfigError, match=rf'{update.func.__name__}\.bonus must map .*{what}'):
        update(*parts()[:3], bonus=OwnBonus(give), alpha_1=1.0)
    update(
        *parts()[:3],
        alpha_1=1.0,
        bonus=OwnBonus(lambda n, a: (tf.zeros([n]), tf.zeros([n, a]), (0.0, 0.0))),
    ).next_batch()


def test_a_class_in_place_of_a_bonus_is_named():
    with pytest.raises(ValueError, match=r'EpisodicUpdate\.bonus must be .* write @UcbBonus\(\)'):
        atari.EpisodicUpdate(*parts()[:3], bonus=bonuses.UcbBonus)


def test_whole_episode_in_one_step():
    replay, network, target_network, (episode,) = parts(length=70)
    update = atari.EpisodicUpdate(replay, network, target_network, batching='episode')
    batch, _ = update.next_batch()
    np.testing.assert_array_equal(batch.observations[:70], all_stacks(episode)[:-1])
    np.testing.assert_array_equal(batch.weights, [1] * 70 + [0] * 2)


def test_episodes_are_pooled_whole_but_for_the_last_one():
    replay, network, target_network, episodes = parts(num_episodes=40, length=20)
    update = atari.EpisodicUpdate(replay, network, target_network, batching='pooled', batch_size=50)
    drawn = set()
    for _ in range(10):
        batch, report = update.next_batch()
        assert report
        np.testing.assert_array_equal(batch.weights, [1] * 50 + [0] * 6)
        for rows, start in ((slice(0, 20), 0), (slice(20, 40), 0), (slice(40, 50), 10)):
            (index,) = [
                index
                for index, episode in enumerate(episodes)
                if (all_stacks(episode)[start:20] == batch.observations[rows]).all()
            ]
            y = expected_targets(
                episodes[index], network, target_network, beta=0.5, alpha_1=0, alpha_2=0
            )
            np.testing.assert_allclose(batch.targets[rows], y[start:], atol=1e-5)
            np.testing.assert_array_equal(batch.actions[rows], episodes[index].actions[start:])
            drawn.add(index)
    assert len(drawn) > 15


@pytest.mark.parametrize('greedy', targets.GREEDY_READINGS)
def test_episodes_computed_together_are_as_computed_alone(greedy):
    replay, network, target_network, _ = parts(num_episodes=0)
    rng = np.random.default_rng(5)
    for terminal in (True, False, False, True, False):
        replay.add_episode(random_episode(rng, int(rng.integers(1, 30)), terminal))
    drawn = [replay.sample_episode() for _ in range(12)]
    truncated = [episode.discounts[-1] > 0 for episode in drawn]
    assert any(truncated[:-1]) and not all(truncated)  # Only these feel the episode behind them.
    update = atari.EpisodicUpdate(
        replay,
        network,
        target_network,
        beta=0.7,
        alpha_1=0.3,
        alpha_2=0.2,
        greedy=greedy,
        bonus=bonuses.UcbBonus(normalize_next_bonus=False),
    )
    together, report = update.with_targets(drawn)
    alone = [update.with_targets([episode]) for episode in drawn]
    np.testing.assert_allclose(
        together.targets, np.concatenate([y.targets for y, _ in alone]), atol=1e-5
    )
    lengths = np.array([len(episode.actions) for episode in drawn])
    for name, counts in (
        ('bonus_mean', lengths),
        ('next_bonus_mean', lengths - ~np.array(truncated)),
    ):
        means = [reported.get(name, 0.0) for _, reported in alone]
        np.testing.assert_allclose(report[name], np.average(means, weights=counts), rtol=1e-5)


def test_lengths_do_not_retrace():
    replay, network, target_network, _ = parts()
    for length in (1, 2, 5, 31, 32, 33, 300):
        replay.add_episode(random_episode(np.random.default_rng(length), length))
    update = atari.EpisodicUpdate(replay, network, target_network, bonus=bonuses.UcbBonus())
    for _ in range(60):
        update.next_batch()
    assert update._compiled_targets.function.experimental_get_tracing_count() == 1


@pytest.mark.parametrize('kind', [updates.EpisodicUpdate, released.ReleasedEpisodicUpdate])
def test_state_carries_on_in_the_middle_of_an_episode(kind):
    replay, network, target_network, _ = parts(num_episodes=5)
    make = functools.partial(kind, replay, network, target_network, **atari.EpisodicUpdate.keywords)
    update, other = make(), make()
    update.next_batch()
    other.set_state({name: array.copy() for name, array in update.state().items()})
    for _ in range(2):  # 75 transitions are three batches.
        for mine, its in zip(update.next_batch()[0], other.next_batch()[0]):
            np.testing.assert_array_equal(mine, its)
    assert update.state() == other.state() == {}


def test_transition_update_is_the_one_step_target():
    replay, network, target_network, (episode,) = parts()
    update = atari.TransitionUpdate(replay, network, target_network, double_q=True)
    batch, _ = update.next_batch()
    stacks = all_stacks(episode)
    y = targets.one_step(
        episode.rewards,
        episode.discounts,
        target_network(stacks[1:]),
        online_next_q=network(stacks[1:]),
    ).numpy()
    for row in range(32):
        (t,) = np.flatnonzero((stacks[:-1] == batch.observations[row]).all(axis=(1, 2, 3)))
        assert batch.actions[row] == episode.actions[t]
        np.testing.assert_allclose(batch.targets[row], y[t], atol=1e-5)


def test_the_bonuses_of_a_transition_are_those_of_its_two_states():
    """B at s by the online network, B~ at s' by the target network."""
    replay, network, target_network, (episode,) = parts(length=20)
    update = atari.TransitionUpdate(
        replay, network, target_network, alpha_1=0.3, alpha_2=0.2, bonus=bonuses.UcbBonus()
    )
    batch, report = update.next_batch()
    stacks = all_stacks(episode)
    drawn = [
        np.flatnonzero((stacks[:-1] == observation).all(axis=(1, 2, 3)))[0]
        for observation in batch.observations
    ]
    rows, actions = np.arange(32), episode.actions[drawn]
    reward_bonus = network(stacks[drawn]).numpy().std(1)[rows, actions]
    next_q = target_network(stacks[1:][drawn]).numpy()
    next_bonus, greedy = next_q.std(1), next_q.argmax(-1)
    at_greedy = np.take_along_axis(next_bonus, greedy, axis=1)  # [32, K]
    goes_on = episode.discounts[drawn] > 0
    assert not goes_on.all()
    value = next_q.max(-1) + 0.2 * at_greedy / at_greedy[goes_on].std()
    y = (episode.rewards[drawn] + 0.3 * reward_bonus)[:, None]
    y = y + episode.discounts[drawn][:, None] * value
    np.testing.assert_allclose(batch.targets, y, atol=1e-5)
    assert report['bonus_mean'] == pytest.approx(reward_bonus.mean(), rel=1e-5)
    assert report['next_bonus_mean'] == pytest.approx(next_bonus[goes_on].mean(), rel=1e-5)


def effects_experience(next_q, discounts):
    greedy = targets.argmax_actions(next_q)
    return types.Experience(
        None, None, None, None, tf.constant(discounts), tf.constant(next_q), greedy, None
    )


BONUS_CASE = {
    'discounts': [0.9, 0.9, 0],
    'next_q': [[[1, 0.5], [3, 3.2]], [[0, 2], [4, 3]], [[9, 0], [0, 9]]],  # [T, K, A]
    'reward_bonus': [1.0, 2.0, 6.0],
    'next_bonus': [[0.5, 1.5], [1.0, 4.0], [100.0, 0.0]],  # [T, A], as it enters the target.
}


@pytest.mark.parametrize(
    'alpha_2, changes',
    [
        (0.0, 0.0),
        (0.4, 1 / 4),  # 0.4 times a difference of 1 or 3: no more than a gap of 0.5, more than 1.
        (0.6, 2 / 4),
        (-1.0, 2 / 4),
    ],
)
def test_effects_of_a_bonus_by_hand(alpha_2, changes):
    case = {name: np.array(values, np.float32) for name, values in BONUS_CASE.items()}
    optimistic = case['next_q'] + alpha_2 * case['next_bonus'][:, None]
    experience = effects_experience(case['next_q'], case['discounts'])
    effects = tf.function(updates.bonus_effects)(
        experience, case['reward_bonus'], case['next_bonus'], optimistic.argmax(-1).astype('i4')
    )
    best = np.sort(case['next_q'][:2], axis=-1)  # Without the terminal.
    np.testing.assert_allclose(effects, [3.0, 7 / 4, (0.5 + 0.2 + 2 + 1) / 4, changes], rtol=1e-6)
    np.testing.assert_allclose(effects[2], (best[..., 1] - best[..., 0]).mean(), rtol=1e-6)


def test_effects_of_a_bonus_without_a_choice_and_without_a_next_state():
    def effects(discounts):
        experience = effects_experience(tf.ones((2, 3, 1)), discounts)
        optimistic = tf.zeros((2, 3), tf.int32)
        found = updates.bonus_effects(experience, tf.ones(2), tf.ones((2, 1)), optimistic)
        return [float(x) for x in found]

    np.testing.assert_array_equal(effects(tf.ones(2)), [1, 1, np.nan, 0])
    np.testing.assert_array_equal(effects(tf.zeros(2)), [1, np.nan, np.nan, np.nan])


@pytest.mark.parametrize('normalize', [False, True])
@pytest.mark.parametrize('update', [atari.EpisodicUpdate, atari.TransitionUpdate])
def test_reported_effects_of_a_bonus_against_numpy(update, normalize):
    replay, network, target_network, (episode,) = parts(length=20)
    made = update(
        replay,
        network,
        target_network,
        alpha_1=0.3,
        alpha_2=0.7,
        bonus=bonuses.UcbBonus(normalize_next_bonus=normalize),
    )
    batch, report = made.next_batch()
    assert set(report) == set(updates._MEANS + updates._BONUS_MEANS)
    stacks = all_stacks(episode)
    t = [
        np.flatnonzero((stacks[:-1] == row).all(axis=(1, 2, 3)))[0]
        for row in batch.observations[batch.weights > 0]
    ]
    rows, goes_on = np.arange(len(t)), episode.discounts[t] > 0
    reward_bonus = network(stacks[t]).numpy().std(1)[rows, episode.actions[t]]
    next_q = target_network(stacks[1:][t]).numpy()[goes_on]
    next_bonus = next_q.std(1)
    assert report['next_bonus_mean'] == pytest.approx(next_bonus.mean(), rel=1e-5)
    if normalize:
        greedy = np.take_along_axis(next_bonus, next_q.argmax(-1), axis=1)
        next_bonus = next_bonus / greedy.std()
    optimistic = next_q + 0.7 * next_bonus[:, None]
    changes = np.mean(optimistic.argmax(-1) != next_q.argmax(-1))
    assert changes > 0 and not goes_on.all()
    best = np.sort(next_q, axis=-1)
    expected = (
        reward_bonus.mean(),
        next_bonus.mean(),
        np.mean(best[..., -1] - best[..., -2]),
        changes,
    )
    np.testing.assert_allclose([report[name] for name in updates._BONUS_MEANS], expected, rtol=1e-4)


def lowest(q_values):
    return tf.argmin(q_values, axis=-1)


@pytest.mark.parametrize(
    'update, choose, double_q',
    [
        (functools.partial(atari.EpisodicUpdate, batching='episode'), lowest, False),
        (atari.TransitionUpdate, lowest, False),
        (functools.partial(atari.TransitionUpdate, double_q=True), lowest, True),
        (
            functools.partial(atari.TransitionUpdate, double_q=True),
            targets.argmax_actions,
            True,
        ),
    ],
)
def test_targets_moments_and_effects_follow_the_chosen_action(update, choose, double_q):
    replay, network, target_network, (episode,) = parts(length=20)
    weights = {'alpha_1': 0.3, 'alpha_2': 0.7}
    made = update(
        replay,
        network,
        target_network,
        bonus=bonuses.UcbBonus(),
        next_actions=choose,
        **weights,
    )
    batch, report = made.next_batch()
    stacks, drawn = all_stacks(episode), batch.weights > 0
    t = [
        np.flatnonzero((stacks[:-1] == row).all(axis=(1, 2, 3)))[0]
        for row in batch.observations[drawn]
    ]
    next_q = target_network(stacks[1:][t]).numpy()
    selector_q = network(stacks[1:][t]).numpy() if double_q else next_q
    next_actions = choose(selector_q).numpy()
    assert np.mean(next_actions != next_q.argmax(-1)) > 0.3
    seen = np.take_along_axis(next_q.std(1), next_actions, axis=1)[episode.discounts[t] > 0]
    np.testing.assert_allclose(made.bonus.next_bonus_std.std, seen.std(), rtol=1e-5)
    next_bonus = next_q.std(1) / seen.std()
    changes = choose(selector_q + 0.7 * next_bonus[:, None]) != next_actions
    changes = np.mean(changes[episode.discounts[t] > 0])
    assert report['next_action_changes'] == pytest.approx(changes, rel=1e-5) and changes > 0
    arrays = {
        'rewards': episode.rewards[t],
        'discounts': episode.discounts[t],
        'next_q': next_q,
        'reward_bonus': network(stacks[t]).numpy().std(1)[np.arange(len(t)), episode.actions[t]],
        'next_bonus': next_bonus,
        'next_actions': next_actions,
        **weights,
    }
    if update.func is updates.EpisodicUpdate:
        y = targets.backward_induction(actions=episode.actions[t], beta=0.5, **arrays)
    else:
        y = targets.one_step(**arrays)
    np.testing.assert_allclose(batch.targets[drawn], y, atol=1e-5)


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
        'episodic': lambda: atari.EpisodicUpdate(replay, *pair, batch_size=4),
        'transitions': lambda: atari.TransitionUpdate(replay, *pair),
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
    with pytest.raises(ValueError, match="EpisodicUpdate.batching must be one of .*'none'"):
        atari.EpisodicUpdate(replay, network, target_network, batching='none')
    with pytest.raises(ValueError, match="EpisodicUpdate.greedy must be one of .*'max'"):
        atari.EpisodicUpdate(replay, network, target_network, greedy='max')


# Bootstrap masks.


def test_masks_are_splitmix64_by_id_and_head():
    """The known outputs for seed 1234567, over 2^64: .350, .174, .532, .249, .890."""
    outputs = [
        6457827717110365317,
        3203168211198807973,
        9817491932198370423,
        4593380528125082431,
        16408922859458223821,
    ]
    for probability in (0.1, 0.2, 0.3, 0.4, 0.6, 0.9):
        expected = np.array([output / 2**64 < probability for output in outputs])
        masks = updates.bootstrap_masks(np.arange(5), 1, probability, 1234567)
        np.testing.assert_array_equal(masks[:, 0], expected)
        masks = updates.bootstrap_masks(np.arange(2), 2, probability, 1234567)
        np.testing.assert_array_equal(masks, expected[:4].reshape(2, 2))
        assert masks.dtype == np.float32


@pytest.mark.parametrize('probability', [0.1, 0.5, 0.9])
def test_masks_are_independent_draws(probability):
    masks = updates.bootstrap_masks(np.arange(10**6, 10**6 + 40_000), 5, probability, seed=3)
    assert set(np.unique(masks)) == {0, 1}
    deviation = np.sqrt(probability * (1 - probability) / 40_000)
    np.testing.assert_allclose(masks.mean(axis=0), np.full(5, probability), atol=4 * deviation)
    shifted = np.concatenate([masks[1:], masks[:-1]], axis=1)  # A row and the one before.
    others = updates.bootstrap_masks(np.arange(10**6, 10**6 + 40_000), 5, probability, seed=4)
    for pair in (shifted, np.concatenate([masks, others], axis=1)):
        correlation = np.corrcoef(pair, rowvar=False)
        assert np.abs(correlation - np.eye(10)).max() < 5 / np.sqrt(40_000)
    counts = np.bincount(masks.sum(axis=1).astype(int), minlength=6) / 40_000
    binomial = [math.comb(5, n) * probability**n * (1 - probability) ** (5 - n) for n in range(6)]
    np.testing.assert_allclose(counts, binomial, atol=0.015)


def test_a_mask_depends_on_the_id_alone():
    ids = np.random.default_rng(0).integers(0, 2**40, 50)
    together = updates.bootstrap_masks(ids, 7, 0.5, 1)
    for number, mask in zip(ids, together):
        np.testing.assert_array_equal(updates.bootstrap_masks([number], 7, 0.5, 1)[0], mask)
    order = np.random.default_rng(1).permutation(50)
    np.testing.assert_array_equal(updates.bootstrap_masks(ids[order], 7, 0.5, 1), together[order])
    np.testing.assert_array_equal(updates.bootstrap_masks(ids, 7, 1.0, 1), np.ones((50, 7)))
    np.testing.assert_array_equal(updates.bootstrap_masks(ids, 7, 1, 1), np.ones((50, 7)))


def masks_seen(update, batches=60):
    """The mask of each transition, by its observation, which must be the same in all batches."""
    seen = {}
    for _ in range(batches):
        batch, _ = update.next_batch()
        for observation, mask, weight in zip(batch.observations, batch.masks, batch.weights):
            if weight:
                mask = tuple(mask.tolist())
                assert seen.setdefault(observation.tobytes(), mask) == mask
    return seen


def test_a_transition_keeps_its_mask(tmp_path):
    _, *pair, _ = parts()
    rng = np.random.default_rng(0)
    replay = EpisodeReplay((2, 2), 120, history=HISTORY, seed=3)
    episodes = [random_episode(rng, length) for length in (50, 20, 30, 7, 33, 40, 9)]
    for episode in episodes:
        replay.add_episode(episode)
    assert replay.num_episodes == 5  # The first id is 70.
    keywords = {'mask_probability': 0.5, 'seed': 8}
    seen = masks_seen(atari.TransitionUpdate(replay, *pair, **keywords))
    assert len(seen) == 119
    masks = updates.bootstrap_masks(np.arange(70, 189), 4, 0.5, 8)
    stacks = np.concatenate([all_stacks(episode)[:-1] for episode in episodes[2:]])
    assert seen == {x.tobytes(): tuple(mask) for x, mask in zip(stacks, masks.tolist())}
    filled_up = released.ReleasedEpisodicUpdate(
        replay, *pair, **atari.EpisodicUpdate.keywords, **keywords
    )
    assert masks_seen(filled_up) == seen
    fresh = EpisodeReplay((2, 2), 120, history=HISTORY, seed=77)
    EpisodeFiles(tmp_path, fresh).load(EpisodeFiles(tmp_path, replay).save())
    again = atari.EpisodicUpdate(fresh, *pair, **keywords)
    assert masks_seen(again) == seen
    new = random_episode(rng, 60)
    fresh.add_episode(new)  # Others leave; those that stay keep theirs.
    again.set_state({})  # Forgets the pending episode, that has left.
    later = masks_seen(again)
    assert len(later) == 109
    assert len(later.keys() & seen) == 49
    assert all(later[key] == seen[key] for key in later.keys() & seen)
    masks = updates.bootstrap_masks(np.arange(189, 249), 4, 0.5, 8).tolist()
    assert [later[x.tobytes()] for x in all_stacks(new)[:-1]] == list(map(tuple, masks))


def test_masks_of_a_pending_episode_survive_a_checkpoint():
    _, *pair, _ = parts()
    replay = EpisodeReplay((2, 2), 100, history=HISTORY, seed=3)
    for length in (50, 90):
        replay.add_episode(random_episode(np.random.default_rng(length), length))
    update = atari.EpisodicUpdate(replay, *pair, mask_probability=0.5, seed=2)
    update.next_batch()
    other = atari.EpisodicUpdate(replay, *pair, mask_probability=0.5, seed=2)
    other.set_state({name: array.copy() for name, array in update.state().items()})
    batch = other.next_batch()[0]  # Rows 26 .. 57 of the second episode.
    np.testing.assert_array_equal(
        batch.masks, updates.bootstrap_masks(50 + np.arange(26, 58), 4, 0.5, 2)
    )


def test_padding_has_no_mask_and_no_weight():
    replay, network, target_network, _ = parts(length=5)
    update = atari.EpisodicUpdate(replay, network, target_network, batch_size=8)
    batch, _ = update.next_batch()
    np.testing.assert_array_equal(batch.masks[:5], np.ones((5, 4)))
    np.testing.assert_array_equal(batch.weights, [1] * 5 + [0] * 3)


@pytest.mark.parametrize('probability', [0, -0.5, 1.1])
@pytest.mark.parametrize('update', [atari.EpisodicUpdate, atari.TransitionUpdate])
def test_mask_probabilities_out_of_range_are_refused(update, probability):
    replay, network, target_network, _ = parts()
    with pytest.raises(ValueError, match=f'{update.func.__name__}.mask_probability'):
        update(replay, network, target_network, mask_probability=probability)


# One beta per head.


@pytest.mark.parametrize(
    'greedy, mask_next_bonus', [('initial', True), ('updated', False), ('released', False)]
)
def test_a_beta_for_each_head_is_the_separate_betas(greedy, mask_next_bonus):
    replay, network, target_network, (episode,) = parts(length=30)
    betas = [index / 3 for index in range(4)]  # i / (K - 1): the adaptive EBU of Lee et al.
    weights = {'alpha_1': 0.3, 'alpha_2': 0.2, 'greedy': greedy, 'mask_next_bonus': mask_next_bonus}
    update = atari.EpisodicUpdate(
        replay, network, target_network, beta=betas, bonus=bonuses.UcbBonus(), **weights
    )
    batch, _ = update.next_batch()
    for k, beta in enumerate(betas):
        y = expected_targets(episode, network, target_network, beta=beta, **weights)
        np.testing.assert_allclose(batch.targets[:30, k], y[:, k], atol=1e-4)
        assert np.abs(batch.targets[:30, k - 1] - y[:, k - 1]).max() > 1e-3


@pytest.mark.parametrize('beta', [[0.5] * 3, [0.0, 0.5, 1.0, 1.1], [[0.5] * 4], -0.1])
def test_betas_that_do_not_fit_are_refused(beta):
    replay, network, target_network, _ = parts()
    with pytest.raises(ValueError, match='EpisodicUpdate.beta must be'):
        atari.EpisodicUpdate(replay, network, target_network, beta=beta)


# Several steps.


def n_step_targets(episode, target_network, n_steps, online=None):
    """A literal loop over an episode, target by target."""
    stacks = all_stacks(episode)
    next_q = target_network(stacks).numpy().astype(np.float64)
    chooser = next_q if online is None else online(stacks).numpy()
    length = len(episode.actions)
    y = np.zeros((length, next_q.shape[1]))
    for t in range(length):
        for k in range(next_q.shape[1]):
            factor, end = 1.0, min(t + n_steps, length)
            for i in range(t, end):
                y[t, k] += factor * episode.rewards[i]
                factor *= episode.discounts[i]
            y[t, k] += factor * next_q[end, k, chooser[end, k].argmax()]
    return y


@pytest.mark.parametrize('n_steps', [1, 3, 100])
@pytest.mark.parametrize('double_q', [False, True])
def test_targets_over_several_steps_against_a_literal_loop(n_steps, double_q):
    _, network, target_network, _ = parts()
    selector = networks.build(
        networks.MultiHeadQNetwork(3, 4, 16, conv_layers=(), seed=5), (2, 2, HISTORY), tf.uint8
    )
    rng = np.random.default_rng(0)
    replay = EpisodeReplay((2, 2), 30, history=HISTORY, seed=3)
    kinds = ((9, True), (10, True), (7, False), (1, True), (1, False), (2, False), (6, True))
    episodes = [random_episode(rng, length, terminal) for length, terminal in kinds]
    for episode in episodes:
        replay.add_episode(episode)
    update = atari.TransitionUpdate(
        replay,
        network,
        target_network,
        double_q_values=lambda x, seed: selector(x),
        double_q=double_q,
        n_steps=n_steps,
    )
    expected = {}
    for episode in episodes[1:]:
        y = n_step_targets(episode, target_network, n_steps, selector if double_q else None)
        for x, action, row in zip(all_stacks(episode), episode.actions, y):
            expected[x.tobytes()] = action, row
    seen = set()
    for _ in range(12):
        batch, _ = update.next_batch()
        assert batch.targets.dtype == np.float32 and batch.weights.all()
        for x, action, y in zip(batch.observations, batch.actions, batch.targets):
            assert action == expected[x.tobytes()][0]
            np.testing.assert_allclose(y, expected[x.tobytes()][1], atol=1e-5)
            seen.add(x.tobytes())
    assert len(expected) == 27 and seen == set(expected)


def test_double_q_without_a_selector_asks_the_online_network():
    replay, network, target_network, (episode,) = parts(length=40)
    other = networks.build(
        networks.MultiHeadQNetwork(3, 4, 16, conv_layers=(), seed=5), (2, 2, HISTORY), tf.uint8
    )
    mine = n_step_targets(episode, target_network, 2, network)
    its = n_step_targets(episode, target_network, 2, other)
    assert np.abs(mine - its).max() > 0.05
    for selector, y in ((None, mine), (lambda x, seed: other(x), its)):
        update = atari.TransitionUpdate(
            replay, network, target_network, double_q_values=selector, double_q=True, n_steps=2
        )
        batch, _ = update.next_batch()
        for row, x in enumerate(batch.observations):
            (t,) = np.flatnonzero((all_stacks(episode)[:-1] == x).all(axis=(1, 2, 3)))
            np.testing.assert_allclose(batch.targets[row], y[t], atol=1e-5)


# Noise.


def noisy_parts(length, **keywords):
    """Two noisy networks, and one episode of which all frames and rewards are the same."""
    replay = EpisodeReplay((4,), 1000, seed=3, observation_dtype=np.float32)
    replay.add_episode(
        types.Episode(
            np.ones((length + 1, 4), np.float32),
            np.zeros(length, np.int32),
            np.zeros(length, np.float32),
            np.full(length, 0.5, np.float32),
        )
    )
    pair = [
        networks.build(
            networks.MultiHeadQNetwork(3, 4, 8, conv_layers=(), seed=seed, **keywords),
            (4,),
            tf.float32,
        )
        for seed in (1, 2)
    ]
    return replay, *pair


@pytest.mark.parametrize('name', ['episodic', 'transitions'])
def test_noise_is_drawn_once_for_all_targets_of_a_time_and_then_anew(name):
    replay, *pair = noisy_parts(24, noise='factorised')

    def targets_of(seed):
        update = {
            'episodic': lambda: atari.EpisodicUpdate(
                replay, *pair, beta=0.0, batch_size=24, chunk_size=3, seed=seed
            ),
            'transitions': lambda: atari.TransitionUpdate(replay, *pair, seed=seed),
        }[name]()
        return [update.next_batch()[0].targets for _ in range(3)]

    batches = targets_of(seed=1)
    for batch in batches:
        np.testing.assert_allclose(batch, np.tile(batch[:1], (len(batch), 1)), atol=1e-6)
    assert min(np.abs(batches[i][0] - batches[i - 1][0]).min() for i in range(3)) > 0
    mean = 0.5 * pair[1](np.ones((1, 4), np.float32)).numpy().max(axis=-1)
    assert np.abs(batches[0][0] - mean).min() > 0
    assert np.abs(batches[0] - targets_of(seed=2)[0]).min() > 0


def test_networks_draw_noise_apart():
    """Otherwise a network that chooses a' for an equal one would always choose the maximum."""
    replay, network, target_network = noisy_parts(20, noise='independent')
    networks.copy_variables(network, target_network)
    for layer in (network.heads.output_layer, target_network.heads.output_layer):
        layer.kernel_sigma.assign(tf.ones_like(layer.kernel_sigma))
    seeds = []

    def spy(x, seed):
        seeds.append(seed)
        return network(x, seed)

    both = [
        atari.TransitionUpdate(
            replay, network, target_network, double_q_values=spy, double_q=double_q
        )
        for double_q in (True, False)
    ]
    y, maximum = (np.array([u.next_batch()[0].targets[0] for _ in range(6)]) for u in both)
    assert len(seeds) == 1 and seeds[0] is not None
    assert (y <= maximum + 1e-6).all() and (y < maximum - 1e-3).any()


whole_episodes = functools.partial(atari.EpisodicUpdate, batching='episode')


@pytest.fixture(
    scope='module',
    params=[
        (whole_episodes, bonuses.UcbBonus),
        (whole_episodes, released.ReleasedUcbBonus),
        (atari.TransitionUpdate, bonuses.UcbBonus),
        (
            atari.TransitionUpdate,
            functools.partial(released.ReleasedUcbBonus, normalizer_batch=10),
        ),
    ],
)
def without_and_with_xla(request):
    update, bonus = request.param
    weights = {'alpha_1': 0.3, 'alpha_2': 0.2}
    return [update(*parts()[:3], xla=xla, bonus=bonus(), **weights) for xla in (False, True)]


@pytest.mark.parametrize('length', [5, 64, 75])
def test_xla_computes_the_same_targets(without_and_with_xla, length):
    batches = []
    for update in without_and_with_xla:
        update.replay = parts(length=length)[0]
        batches.append(update.next_batch()[0])
    plain, compiled = batches
    assert compiled.targets.dtype == np.float32
    np.testing.assert_array_equal(plain.actions, compiled.actions)
    np.testing.assert_allclose(plain.targets, compiled.targets, rtol=1e-4, atol=1e-5)


def test_xla_trains_with_rnd_on_transitions():
    """300 frames per batch: several chunks and minibatches, of which the last is short."""
    runs = []
    for xla in (False, True):
        replay, network, target_network, _ = parts(num_episodes=3, length=20)
        bonus = bonuses.RndBonus((), 4, (4,), batch_size=70, scale_by='bonuses')
        update = atari.TransitionUpdate(
            replay,
            network,
            target_network,
            xla=xla,
            batch_size=150,
            alpha_1=1.0,
            alpha_2=1.0,
            bonus=bonus,
        )
        learner, seen = atari.QLearner(network, target_network, 0), []
        for _ in range(3):
            batch, report = update.next_batch()
            seen += [batch.targets, report['bonus_mean'], learner.step(batch)[0]['loss']]
        runs.append([*seen, *(v.numpy() for v in bonus.predictor.variables)])
    assert int(bonus.optimizer.iterations) == 15
    for plain, compiled in zip(*runs):
        np.testing.assert_allclose(plain, compiled, rtol=1e-4, atol=1e-5)


def test_xla_compiles_few_shapes():
    replay, network, target_network, _ = parts(length=3)
    update = atari.EpisodicUpdate(replay, network, target_network, xla=True, chunk_size=64)
    for length in range(4, 130, 9):
        replay.add_episode(random_episode(np.random.default_rng(length), length))
    for _ in range(30):
        update.next_batch()
    assert update._compiled_targets.function.experimental_get_tracing_count() == 1


def test_targets_of_a_network_in_bfloat16_are_float32(monkeypatch):
    monkeypatch.setattr(networks, '_cpu_has_bfloat16', lambda: True)
    x = np.random.default_rng(0).integers(0, 256, (6, 20, 20, 4), dtype=np.uint8)
    trunk = {'conv_layers': ((8, 4, 2), (8, 3, 1)), 'hidden_units': 64}
    exact, rounded = (
        networks.build(
            networks.MultiHeadQNetwork(3, 5, **trunk, precision=precision, seed=4),
            x.shape[1:],
            tf.uint8,
        )
        for precision in ('float32', 'bfloat16')
    )
    assert {variable.dtype for variable in rounded.variables} == {tf.float32}
    values = [network(x) for network in (exact, rounded)]
    assert values[1].dtype == tf.float32
    difference = np.abs(values[0] - values[1]).max() / np.std(values[0])
    assert 0 < difference < 0.05  # It does round, to 8 bits.
    replay = EpisodeReplay((20, 20), 100, history=4, seed=3)
    frames = np.random.default_rng(1).integers(0, 256, (11, 20, 20), dtype=np.uint8)
    replay.add_episode(
        types.Episode(
            frames,
            np.zeros(10, np.int32),
            np.ones(10, np.float32),
            np.full(10, 0.99, np.float32),
            frames[:3],
        )
    )
    targets_of = [
        atari.EpisodicUpdate(replay, network, network, beta=1.0).next_batch()[0].targets[:10]
        for network in (exact, rounded)
    ]
    assert targets_of[1].dtype == np.float32
    np.testing.assert_allclose(targets_of[0], targets_of[1], atol=0.05)
    # Nothing of a recursion of ten rewards of 1 is rounded to 8 bits.
    without_value = [y[0] - 0.99**10 * y[-1] for y in targets_of]
    np.testing.assert_allclose(without_value[0], without_value[1], atol=1e-2)


def test_another_choice_of_the_next_action_needs_the_initial_reading():
    with pytest.raises(ValueError, match=r"next_actions needs EpisodicUpdate\.greedy = 'initial'"):
        atari.EpisodicUpdate(
            *parts()[:3], greedy='updated', next_actions=lambda q: tf.argmin(q, -1)
        )


@pytest.mark.parametrize('update', [atari.EpisodicUpdate, atari.TransitionUpdate])
def test_next_actions_may_be_of_any_integer_type(update):
    batches = [
        update(*parts()[:3], next_actions=choose).next_batch()[0]
        for choose in (targets.argmax_actions, lambda q: tf.argmax(q, axis=-1))
    ]
    np.testing.assert_array_equal(batches[0].targets, batches[1].targets)


@pytest.mark.parametrize('update', [atari.EpisodicUpdate, atari.TransitionUpdate])
@pytest.mark.parametrize(
    'choose, reason',
    [
        (lambda q: tf.reduce_max(q, -1), r'got float32 in '),
        (lambda q: 99 + tf.argmax(q, -1), r'got int64 in 99\.\.'),
        (lambda q: -1 - tf.argmax(q, -1), r'got int64 in -\d+\.\.-1'),
    ],
)
def test_next_actions_that_are_no_actions_are_refused(update, choose, reason):
    message = rf'Update\.next_actions must return integers in 0\.\.\d+, {reason}'
    with pytest.raises(ConfigError, match=message):
        update(*parts()[:3], next_actions=choose)


@pytest.mark.parametrize(
    'name, value, range_',
    [('batch_size', 65537, 'in 1..65536'), ('chunk_size', 2**31, '.* at most 2147483647')],
)
def test_sizes_are_bounded(name, value, range_):
    with pytest.raises(ValueError, match=rf'EpisodicUpdate.{name} must be {range_}, got {value}'):
        atari.EpisodicUpdate(*parts()[:3], **{name: value})
