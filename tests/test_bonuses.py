import numpy as np
import tensorflow as tf

from ob2i_tf import bonuses, types
from ob2i_tf.moments import RunningStd


def test_ensemble_std_is_the_population_std():
    assert float(bonuses.ensemble_std([[1.0], [3.0]])[0]) == 1.0
    q_values = np.random.default_rng(0).normal(size=(5, 7, 10, 4)).astype(np.float32)
    np.testing.assert_allclose(bonuses.ensemble_std(q_values), q_values.std(-2), rtol=1e-5)


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


def experience(q_values, next_q, actions):
    return types.Experience(None, None, actions, next_q, lambda: q_values)


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
    np.testing.assert_allclose([mean, next_mean], [np.mean(reward_bonus), next_q.std(1).mean()],
                               rtol=1e-5)  # fmt: skip


def test_rows_at_a_time_divides_each_chunk_by_what_was_seen_so_far():
    q_values, next_q, actions = q_tables(70)
    bonus = bonuses.UcbBonus(rows_at_a_time=32, normalize_reward_bonus=True)
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
