import numpy as np
import pytest

from ob2i_tf.moments import RunningStd


def test_each_element_has_moments_of_its_own():
    rng = np.random.default_rng(0)
    scale, shift = np.arange(1, 7).reshape(2, 3), 10 * np.arange(6).reshape(2, 3)
    batches = [rng.normal(shift, scale, (n, 2, 3)).astype(np.float32) for n in (1, 50, 3)]
    batches.append(rng.normal(-5, 1, (4, 5, 2, 3)).astype(np.float32))  # Of any axes before.
    running = RunningStd(shape=(2, 3))
    for batch in batches:
        running.update(batch)
    seen = np.concatenate([batch.reshape(-1, 2, 3) for batch in batches]).astype(np.float64)
    assert running.std.shape == (2, 3) and float(running.count) == 74
    np.testing.assert_allclose(running.mean, seen.mean(axis=0), rtol=1e-12)
    np.testing.assert_allclose(running.std, seen.std(axis=0), rtol=1e-12)
    normalised = running.normalize(batches[1])
    assert normalised.dtype == np.float32
    np.testing.assert_allclose(normalised, batches[1] / seen.std(axis=0), rtol=1e-5)


def test_an_element_that_is_constant_divides_by_1():
    running = RunningStd(shape=(2,))
    running.update([[1.0, 0.5], [5.0, 0.5]])
    np.testing.assert_allclose(running.std, [2, 1])


@pytest.mark.parametrize('prior_count', [0.5, 4.0])
def test_the_prior_counts_for_each_element(prior_count):
    """As if so many values of mean 0 and variance 1 had been seen."""
    running = RunningStd(prior_count, shape=(2, 3))
    np.testing.assert_array_equal(running.std, np.ones((2, 3)))
    x = np.arange(24.0).reshape(4, 2, 3) ** 1.5
    running.update(x[:1])
    running.update(x[1:])
    total = prior_count + 4
    mean = x.sum(axis=0) / total
    variance = (prior_count * 1 + (x**2).sum(axis=0)) / total - mean**2
    np.testing.assert_allclose(running.mean, mean, rtol=1e-12)
    np.testing.assert_allclose(running.std, np.sqrt(variance), rtol=1e-10)


def test_values_of_weight_0_do_not_count():
    running, plain = RunningStd(shape=(2,)), RunningStd(shape=(2,))
    x = np.random.default_rng(0).normal(size=(5, 2))
    running.update(x, [1, 0, 1, 1, 0])
    plain.update(x[[0, 2, 3]])
    for mine, its in zip(running.variables, plain.variables):
        np.testing.assert_allclose(mine, its, rtol=1e-12)
    before = [variable.numpy() for variable in running.variables]
    running.update(x, np.zeros(5))
    for mine, its in zip(running.variables, before):
        np.testing.assert_array_equal(mine, its)


def test_nothing_changes_by_an_empty_batch():
    running = RunningStd(shape=(2, 3))
    running.update(np.zeros((0, 2, 3)))
    np.testing.assert_array_equal(running.std, np.ones((2, 3)))
    running.update(np.arange(12.0).reshape(2, 2, 3))
    running.update(np.zeros((0, 2, 3)))
    np.testing.assert_allclose(running.std, np.full((2, 3), 3.0))
    np.testing.assert_allclose(running.mean, np.arange(3.0, 9.0).reshape(2, 3))
