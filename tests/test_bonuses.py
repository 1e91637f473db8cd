import numpy as np
import pytest
import tensorflow as tf

from ob2i_tf import bonuses, networks, types
from ob2i_tf.errors import ConfigError
from ob2i_tf.moments import RunningStd
from ob2i_tf.replay import EpisodeReplay
from tests import atari


def test_ensemble_std_is_the_population_std():
    assert float(bonuses.ensemble_std([[1.0], [3.0]])[0]) == 1.0
    q_values = np.random.default_rng(0).normal(size=(5, 7, 10, 4)).astype(np.float32)
    np.testing.assert_allclose(bonuses.ensemble_std(q_values), q_values.std(-2), rtol=1e-5)


def test_ensemble_std_of_integers():
    np.testing.assert_array_equal(bonuses.ensemble_std([[1, 2], [3, 2]]), [1.0, 0.0])


def test_ensemble_std_of_equal_heads_is_0_with_gradient_0():
    q_values = tf.Variable(tf.fill([10, 3], 1e6 / 3))
    with tf.GradientTape() as tape:
        std = bonuses.ensemble_std(q_values)
    np.testing.assert_array_equal(std, [0, 0, 0])
    np.testing.assert_array_equal(tape.gradient(std, q_values), np.zeros((10, 3)))


def test_gradient_of_ensemble_std():
    q_values = tf.constant([[1.0], [3.0], [5.0]])
    with tf.GradientTape() as tape:
        tape.watch(q_values)
        std = bonuses.ensemble_std(q_values)
    np.testing.assert_allclose(tape.gradient(std, q_values), (q_values - 3) / (3 * std), rtol=1e-5)


def test_running_std_equals_the_std_of_everything_seen():
    rng = np.random.default_rng(0)
    batches = [rng.normal(5, 3, size=n).astype(np.float32) for n in (1, 7, 300, 2)]
    running = RunningStd()
    for batch in batches:
        running.update(batch)
    seen = np.concatenate(batches).astype(np.float64)
    np.testing.assert_allclose(running.std, seen.std(), rtol=1e-12)
    np.testing.assert_allclose(running.normalize([6.0]), [6 / seen.std()], rtol=1e-6)


def test_running_std_of_nothing_or_of_a_constant_divides_by_1():
    running = RunningStd()
    assert float(running.normalize(3.0)) == 3.0
    running.update([2.0, 2.0])
    assert float(running.normalize(3.0)) == 3.0


def test_running_std_with_a_prior_is_the_released_recursion():
    running = RunningStd(prior_count=1e-4)
    mean, variance, count = 0.0, 1.0, 1e-4
    for batch in (np.array([0.2, 0.9, 0.4]), np.array([3.0, 1.0])):
        running.update(batch)
        delta, total = batch.mean() - mean, count + len(batch)
        squares = variance * count + batch.var() * len(batch)
        squares += delta**2 * count * len(batch) / total
        mean, variance, count = mean + delta * len(batch) / total, squares / total, total
    np.testing.assert_allclose(running.std, np.sqrt(variance), rtol=1e-12)


def experience(q_values, next_q, actions, discounts=None):
    discounts = tf.ones(tf.shape(actions)) if discounts is None else discounts
    next_actions = tf.argmax(next_q, axis=-1, output_type=tf.int32)
    return types.Experience(
        None, None, None, actions, discounts, next_q, next_actions, lambda: q_values
    )


def q_tables(length=70, heads=5, num_actions=3):
    rng = np.random.default_rng(length)
    shape = (length, heads, num_actions)
    return (
        rng.normal(size=shape).astype(np.float32),
        rng.normal(size=shape).astype(np.float32),
        rng.integers(num_actions, size=length).astype(np.int32),
    )


def test_ucb_bonus_takes_b_at_the_action_and_normalises_the_next_bonus():
    q_values, next_q, actions = q_tables()
    reward_bonus, next_bonus, (mean, next_mean) = bonuses.UcbBonus()(
        experience(q_values, next_q, actions)
    )
    rows = np.arange(len(actions))
    np.testing.assert_allclose(reward_bonus, q_values.std(1)[rows, actions], rtol=1e-5)
    at_greedy = next_q.std(1)[rows[:, None], next_q.argmax(-1)]  # B~ in R^{T x K}
    np.testing.assert_allclose(next_bonus, next_q.std(1) / at_greedy.std(), rtol=1e-5)
    np.testing.assert_allclose(
        [mean, next_mean], [np.mean(reward_bonus), next_q.std(1).mean()], rtol=1e-5
    )


TERMINALS = {  # Two heads, one action, so that B~ is half their difference: 1, 3, 100, 5.
    'next_q': np.array([[0, 2], [0, 6], [0, 200], [0, 10]], np.float32)[..., None],
    'discounts': np.array([0.9, 0.9, 0, 0.9], np.float32),
}


def bonus_of_terminals(bonus):
    next_q, discounts = TERMINALS.values()
    compiled = tf.function(lambda *x: bonus(experience(*x)))
    _, next_bonus, means = compiled(next_q, next_q, np.zeros(4, np.int32), discounts)
    np.testing.assert_allclose(means[1], 3, rtol=1e-6)
    return next_bonus[:, 0]


def test_terminals_do_not_enter_the_moments_of_the_next_bonus():
    bonus, std = bonuses.UcbBonus(), np.std([1, 3, 5])
    np.testing.assert_allclose(bonus_of_terminals(bonus), np.divide([1, 3, 100, 5], std), rtol=1e-6)
    assert float(bonus.next_bonus_std.count) == 6  # Each once per head.
    np.testing.assert_allclose(bonus.next_bonus_std.std, std, rtol=1e-12)


def test_a_bonus_of_nothing_but_terminals_has_no_mean():
    next_q = np.array([[[0.0], [2.0]]], np.float32)
    bonus = bonuses.UcbBonus()
    _, next_bonus, means = bonus(experience(next_q, next_q, [0], np.zeros(1)))
    assert float(next_bonus[0, 0]) == 1 and float(means[0]) == 1 and np.isnan(means[1])


# RND.


def build_rnd(frame_shape=(3,), rate=1e-2, **keywords):
    keywords = {
        'conv_layers': (),
        'features': 4,
        'predictor_layers': (6,),
        'learning_rate': rate,
        'update_proportion': 0.0,
        **keywords,
    }
    bonus = bonuses.RndBonus(**keywords)
    bonus.build(frame_shape, num_heads=2, num_actions=3, seed=5)
    return bonus


def rnd_experience(frames, next_frames, heads=2, num_actions=3):
    next_q = np.zeros((len(frames), heads, num_actions), np.float32)
    rows = np.arange(len(frames))
    both = np.concatenate([frames, next_frames]).astype(np.float32)
    return types.Experience(
        both, rows, rows + len(rows), None, np.ones(len(rows)), next_q, None, None
    )


def dense(layers, x):
    """Layers of ReLU, the last one linear."""
    for i in range(0, len(layers), 2):
        x = x @ layers[i].numpy().astype(np.float64) + layers[i + 1].numpy()
        x = np.maximum(x, 0) if i + 2 < len(layers) else x
    return x


def rnd_errors(bonus, frames, seen):
    """Whitened by hand, with the population moments of all frames seen."""
    frames, seen = np.asarray(frames, np.float64), np.asarray(seen, np.float64)
    std = seen.std(0)
    white = np.clip((frames - seen.mean(0)) / np.where(std > 0, std, 1), -5, 5)
    difference = dense(bonus.predictor.variables, white) - dense(bonus.target.variables, white)
    return (difference**2).mean(-1)


def random_frames(count, seed=0):
    """The last pixel never changes; the others have an outlier each, above and below."""
    frames = np.random.default_rng(seed).normal([3, -2, 7], [2, 0.5, 0], size=(count, 3))
    frames[count // 2, 0], frames[count // 3, 1] = 200, -200
    return frames


def test_rnd_networks_are_built_as_said():
    bonus = bonuses.RndBonus()
    bonus.build((84, 84), num_heads=2, num_actions=3, seed=0)
    convolutions = [(8, 8, 1, 32), (4, 4, 32, 64), (3, 3, 64, 64)]
    kernels = [v.shape for v in bonus.target.variables if v.shape.rank > 1]
    assert kernels == [*convolutions, (3136, 512)]
    kernels = [v.shape for v in bonus.predictor.variables if v.shape.rank > 1]
    assert kernels == [*convolutions, (3136, 512), (512, 512), (512, 512)]
    assert bonus.errors(tf.zeros((2, 84, 84), tf.uint8)).shape == (2,)


def test_rnd_bonus_is_the_error_on_whitened_and_clipped_frames():
    bonus = build_rnd(scale_by='bonuses')
    frames, next_frames = random_frames(300), 10 * random_frames(300, 1)
    _, _, means = bonus(rnd_experience(frames, next_frames))
    seen = np.concatenate([frames, next_frames])
    white = (next_frames - seen.mean(0)) / seen.std(0).clip(1e-3)
    assert white.max() > 10 and white.min() < -10
    state, next_state = (rnd_errors(bonus, x, seen) for x in (frames, next_frames))
    np.testing.assert_allclose(bonus.errors(np.float32(frames)), state, rtol=1e-3)
    np.testing.assert_allclose(bonus.errors(np.float32(next_frames)), next_state, rtol=1e-3)
    np.testing.assert_allclose(means, [state.mean(), next_state.mean()], rtol=1e-3)
    more = random_frames(40, 2) - 1
    bonus(rnd_experience(more, more))
    seen = np.concatenate([frames, next_frames, more, more])
    np.testing.assert_allclose(
        bonus.errors(np.float32(more)), rnd_errors(bonus, more, seen), rtol=1e-3
    )


@pytest.mark.parametrize('reward_state', ['state', 'next_state'])
@pytest.mark.parametrize('scale_by', ['bonuses', 'returns'])
def test_rnd_scale_against_a_loop(scale_by, reward_state):
    bonus = build_rnd(scale_by=scale_by, reward_state=reward_state, discount=0.8)
    compiled = tf.function(lambda *x: bonus(episodes_of(*x)))
    seen, scaled_by = [], []
    for seed, lengths in enumerate(((30,), (7, 1, 9))):  # Sums start anew with each episode.
        episodes = [random_frames(length + 1, 10 * seed + length) for length in lengths]
        reward_bonus, next_bonus, means = compiled(
            np.float32(np.concatenate(episodes)), np.repeat(np.arange(len(lengths)), lengths)
        )
        seen += episodes
        state, next_state = (
            rnd_errors(bonus, np.concatenate(frames), np.concatenate(seen))
            for frames in zip(*((frames[:-1], frames[1:]) for frames in episodes))
        )
        expected = state if reward_state == 'state' else next_state
        total, starts = 0.0, np.cumsum([0, *lengths])
        for row, each in enumerate(expected):
            kept = 0.8 * total if scale_by == 'returns' and row not in starts else 0
            total = each + kept
            scaled_by.append(total)
        np.testing.assert_allclose(reward_bonus, expected / np.std(scaled_by), rtol=2e-3)
        assert next_bonus.shape == (sum(lengths), 3)
        for action in range(3):
            np.testing.assert_allclose(
                next_bonus[:, action], next_state / np.std(scaled_by), rtol=2e-3
            )
        np.testing.assert_allclose(means, [expected.mean(), next_state.mean()], rtol=2e-3)


def episodes_of(frames, episode):
    """Episodes in succession: all frames, and the number of each row's episode."""
    first = np.arange(len(episode)) + episode
    next_q = np.zeros((len(episode), 2, 3), np.float32)
    return types.Experience(
        frames, first, first + 1, None, np.ones(len(episode)), next_q, None, None
    )


def rnd_experience_of(frames, next_frames):
    count = tf.shape(frames)[0]
    both, rows = tf.concat([frames, next_frames], axis=0), tf.range(count)
    next_q = tf.zeros((count, 2, 3))
    return types.Experience(both, rows, rows + count, None, tf.ones(count), next_q, None, None)


def test_rnd_predictor_learns_what_it_sees_and_the_target_never_changes():
    bonus = build_rnd(predictor_layers=(16,), update_proportion=1.0)
    seen, unseen = np.eye(3, dtype=np.float32)[:2], np.eye(3, dtype=np.float32)[2:]
    bonus.frame_moments.update(np.tile(np.eye(3), (100_000, 1)))  # They hardly move from here on.
    target = [v.numpy() for v in bonus.target.variables]
    assert not bonus.target.trainable_variables
    before = [float(bonus.errors(x)[0]) for x in (seen, unseen)]
    compiled = tf.function(lambda *x: bonus(rnd_experience_of(*x)))
    for _ in range(300):
        compiled(seen[:1], seen[1:])
    after = [float(bonus.errors(x)[0]) for x in (seen, unseen)]
    assert after[0] < 0.1 * before[0] and after[1] > 3 * after[0]
    for mine, its in zip(target, bonus.target.variables):
        np.testing.assert_array_equal(mine, its)


def test_rnd_bonuses_are_those_before_the_predictor_learns_and_ends_are_learnt_from():
    learning, fixed = build_rnd(update_proportion=1.0), build_rnd()
    frames, next_frames = random_frames(9), random_frames(9, 1)
    for mine, its in zip(*(b(rnd_experience(frames, next_frames)) for b in (learning, fixed))):
        np.testing.assert_allclose(mine, its, rtol=1e-5)
    last = np.float32(next_frames[-1:])
    for _ in range(100):
        learning(rnd_experience(frames, next_frames))
    assert float(learning.errors(last)[0]) < 0.5 * float(fixed.errors(last)[0])


@pytest.mark.parametrize('batch_size, steps', [(4, 5), (32, 1)])
def test_rnd_predictor_takes_a_step_for_each_batch_of_frames(batch_size, steps):
    bonus = build_rnd(update_proportion=1.0, batch_size=batch_size)
    bonus(rnd_experience(random_frames(9), random_frames(9, 1)))
    assert int(bonus.optimizer.iterations) == steps


def test_rnd_update_proportion_leaves_frames_out():
    frames = random_frames(500)

    def gradient_of(proportion):
        bonus = build_rnd(update_proportion=proportion, batch_size=1000, rate=1.0)
        bonus.optimizer = tf.keras.optimizers.legacy.SGD(1.0)
        before = bonus.predictor.variables[-1].numpy()
        bonus(rnd_experience(frames, frames))
        return bonus.predictor.variables[-1].numpy() - before

    none, half, all_of_them = map(gradient_of, (0.0, 0.5, 1.0))
    assert (none == 0).all()
    assert 0 < np.abs(half - all_of_them).max() < 0.5 * np.abs(all_of_them).max()


@pytest.mark.parametrize('count', [1, 5])
def test_rnd_predictor_steps_down_the_mean_error_of_a_batch(count):
    bonus = build_rnd(update_proportion=1.0)
    bonus.optimizer = tf.keras.optimizers.legacy.SGD(0.1)
    frames = np.float32(np.random.default_rng(0).normal(size=(count, 3)))
    variables = bonus.predictor.variables
    with tf.GradientTape() as tape:
        loss = tf.reduce_mean(bonus.errors(frames))
    gradients, before = tape.gradient(loss, variables), [v.numpy() for v in variables]
    bonus.learn(frames)
    for variable, gradient, start in zip(variables, gradients, before):
        np.testing.assert_allclose(variable, start - 0.1 * gradient, rtol=1e-5, atol=1e-6)


def test_rnd_refuses_what_it_cannot_do():
    for keywords, message in (
        ({'scale_by': 'sums'}, "RndBonus.scale_by must be one of .*'sums'"),
        ({'reward_state': 'both'}, 'RndBonus.reward_state'),
        ({'batch_size': 0}, 'RndBonus.batch_size must be in 1..65536, got 0'),
        ({'update_proportion': 1.5}, 'RndBonus.update_proportion must be in 0..1, got 1.5'),
        ({'discount': 1.01}, 'RndBonus.discount must be in 0..1, got 1.01'),
    ):
        with pytest.raises(ValueError, match=message):
            bonuses.RndBonus(**keywords)


@pytest.mark.parametrize('frame_shape, channels', [((10, 12), 1), ((10, 12, 2), 2)])
def test_rnd_convolves_over_height_and_width(frame_shape, channels):
    bonus = build_rnd(frame_shape, conv_layers=((5, 4, 2),))
    assert bonus.target.layers[-3].kernel.shape == (4, 4, channels, 5)
    assert bonus.target.layers[-3].output_shape == (None, 4, 5, 5)
    frames = np.random.default_rng(0).integers(0, 256, (3, *frame_shape), dtype=np.uint8)
    assert bonus.errors(frames).shape == (3,)


def test_rnd_convolves_over_images_only():
    with pytest.raises(ValueError, match=r'conv_layers need images, got frames of shape \(7,\)'):
        build_rnd((7,), conv_layers=((5, 4, 2),))


def test_numbers_out_of_range_are_named():
    for wrong in (lambda q_values: q_values, lambda q_values: None, tf.nn.conv2d):
        with pytest.raises(ConfigError, match='UcbBonus.statistic must map'):
            bonuses.UcbBonus(statistic=wrong).build((), num_heads=2, num_actions=3, seed=0)
    with pytest.raises(ValueError, match='RndBonus.features must be in 1..65536, got 0'):
        bonuses.RndBonus(features=0)


# Bonuses in updates.

HISTORY = 3


def stacked_parts(discount):
    """A replay with one episode of 2x2 pixels, and two networks for its stacks."""
    rng = np.random.default_rng(0)
    replay = EpisodeReplay((2, 2), 100, history=HISTORY, seed=3)
    episode = types.Episode(
        rng.integers(0, 256, (9, 2, 2), dtype=np.uint8),
        rng.integers(3, size=8),
        rng.normal(size=8).astype(np.float32),
        np.full(8, discount, np.float32),
    )
    replay.add_episode(episode)
    pair = [
        networks.build(
            networks.MultiHeadQNetwork(3, 2, 4, conv_layers=(), seed=seed),
            (2, 2, HISTORY),
            tf.uint8,
        )
        for seed in (1, 2)
    ]
    return replay, *pair, episode


@pytest.mark.parametrize('update', [atari.EpisodicUpdate, atari.TransitionUpdate])
def test_updates_refuse_and_accept_rnd_by_whether_it_needs_whole_episodes(update):
    parts = stacked_parts(0.9)[:3]
    ordered = build_rnd((2, 2), scale_by='returns')
    if update is atari.TransitionUpdate:
        with pytest.raises(ValueError, match="RndBonus .* whole episodes .*scale_by = 'bonuses'"):
            update(*parts, bonus=ordered)
    else:
        update(*parts, bonus=ordered).next_batch()
    bonus = bonuses.RndBonus(conv_layers=((4, 2, 1),), features=4, scale_by='bonuses')
    batch, report = update(*parts, bonus=bonus, alpha_1=1.0, alpha_2=1.0).next_batch()
    assert np.isfinite(batch.targets).all()
    assert report['bonus_mean'] > 0 and report['next_bonus_mean'] > 0
    batches = 1 if update is atari.EpisodicUpdate else 2  # 9 frames of an episode, or 2 x 32.
    assert int(bonus.optimizer.iterations) == batches


@pytest.mark.parametrize(
    'update, bonus',
    [
        (atari.EpisodicUpdate, bonuses.UcbBonus),
        (atari.TransitionUpdate, bonuses.UcbBonus),
        (atari.EpisodicUpdate, lambda: small_rnd('returns')),
        (atari.EpisodicUpdate, lambda: small_rnd('bonuses', 'next_state')),
        (atari.TransitionUpdate, lambda: small_rnd('bonuses')),
    ],
)
@pytest.mark.parametrize('lengths', [(9, 7), (1,)])
def test_the_frame_after_a_terminal_changes_nothing(update, bonus, lengths):
    """Byte for byte: targets, reports, moments, RND's weights, and the weights that are learned."""
    runs = []
    for seed in (1, 2):
        replay, network, target_network, _ = stacked_parts(0.9)
        rng = np.random.default_rng(0)
        replay = EpisodeReplay((2, 2), 100, history=HISTORY, seed=3)
        for length in lengths:
            frames = rng.integers(0, 256, (length + 1, 2, 2), dtype=np.uint8)
            frames[-1] = np.random.default_rng(seed).integers(0, 256, (2, 2))
            discounts = np.array([0.9] * (length - 1) + [0], np.float32)
            actions = rng.integers(3, size=length)
            rewards = rng.normal(size=length).astype(np.float32)
            replay.add_episode(types.Episode(frames, actions, rewards, discounts))
        made = update(replay, network, target_network, bonus=bonus(), alpha_1=1.0, alpha_2=1.0)
        learner, seen = atari.QLearner(network, target_network, 0), []
        for _ in range(6):
            batch, report = made.next_batch()
            seen += [batch.targets, *report.values(), *learner.step(batch)[0].values()]
            assert ('next_bonus_mean' in report) == (bool(report) and len(lengths) > 1)
        for part in (*made.bonus.variables, *network.variables):
            seen.append(part.numpy())
        runs.append([np.asarray(x).tobytes() for x in seen])
    assert runs[0] == runs[1]


def small_rnd(scale_by, reward_state='state'):
    return bonuses.RndBonus(
        conv_layers=((4, 2, 1),),
        features=4,
        predictor_layers=(4,),
        scale_by=scale_by,
        reward_state=reward_state,
    )


@pytest.mark.parametrize('update', [atari.EpisodicUpdate, atari.TransitionUpdate])
def test_a_bonus_sees_the_frames_of_an_episode_but_what_follows_a_terminal(update):
    seen = []

    class Spy(Pixels):
        def __call__(self, experience):
            tf.py_function(lambda *x: seen.append([y.numpy() for y in x]), experience[:3], [])
            return super().__call__(experience)

    replay, network, target_network, episode = stacked_parts(0.9)
    discounts = episode.discounts.copy()
    discounts[-1] = 0
    ended = EpisodeReplay((2, 2), 100, history=HISTORY, seed=3)
    ended.add_episode(episode._replace(discounts=discounts))
    for stored, last in ((replay, 8), (ended, 7)):
        batch, _ = update(stored, network, target_network, bonus=Spy(), alpha_1=1.0).next_batch()
        frames, here, after = seen.pop()
        rows = np.arange(int(batch.weights.sum()))
        if update is atari.EpisodicUpdate:
            np.testing.assert_array_equal(frames, episode.observations[: last + 1])
            np.testing.assert_array_equal(here, rows)
            np.testing.assert_array_equal(after, np.minimum(rows + 1, last))
        newest = batch.observations[rows, ..., -1]
        t = [np.flatnonzero((episode.observations == x).all((1, 2)))[0] for x in newest]
        np.testing.assert_array_equal(frames[here], newest)
        np.testing.assert_array_equal(
            frames[after], episode.observations[np.minimum(np.array(t) + 1, last)]
        )


class Pixels(bonuses.Bonus):
    """The bonus is the sum of the frame's pixels."""

    def __call__(self, experience):
        pixels = tf.reduce_sum(tf.cast(experience.frames, tf.float32), axis=(1, 2))
        state, next_state = (
            tf.gather(pixels, x) for x in (experience.obs_rows, experience.next_obs_rows)
        )
        next_bonus = tf.zeros_like(experience.next_q[:, 0]) + next_state[:, None]
        return state, next_bonus, (tf.reduce_mean(state), tf.reduce_mean(next_state))


@pytest.mark.parametrize('update', [atari.EpisodicUpdate, atari.TransitionUpdate])
def test_a_bonus_sees_the_newest_frames_of_s_and_of_the_next_s(update):
    replay, network, target_network, episode = stacked_parts(0.5)
    for weights in network, target_network:
        for variable in weights.variables:
            variable.assign(tf.zeros_like(variable))  # All values 0.
    bonus = Pixels()
    made = update(
        replay,
        network,
        target_network,
        bonus=bonus,
        alpha_1=2.0,
        alpha_2=3.0,
        **({'beta': 0.0, 'mask_next_bonus': False} if update is atari.EpisodicUpdate else {}),
    )
    batch, report = made.next_batch()
    pixels = episode.observations.sum((1, 2), dtype=float)
    y = episode.rewards + 2 * pixels[:-1] + 0.5 * 3 * pixels[1:]
    for row in np.flatnonzero(batch.weights):
        newest = batch.observations[row, ..., -1]
        (t,) = np.flatnonzero((episode.observations == newest).all((1, 2)))
        np.testing.assert_allclose(batch.targets[row], [y[t]] * 2, rtol=1e-5)
    if update is atari.EpisodicUpdate:
        np.testing.assert_allclose(
            [report['bonus_mean'], report['next_bonus_mean']],
            [pixels[:-1].mean(), pixels[1:].mean()],
            rtol=1e-5,
        )


def test_convolutions_that_do_not_fit_the_frames_are_named():
    with pytest.raises(ValueError, match=r'RndBonus cannot take .* \(10, 10\).*RndBonus.conv_lay'):
        build_rnd((10, 10), conv_layers=((32, 8, 4), (64, 4, 2)))
