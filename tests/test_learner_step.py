"""A learner step in one compiled call equals the update and the learner called in turn."""

import numpy as np
import pytest
import tensorflow as tf

from ob2i_tf import bonuses, learner, updates
from ob2i_tf.errors import NotFiniteError, UserError
from tests import chain

UPDATES = {
    'transitions': (updates.TransitionUpdate, {'mask_probability': 0.6, 'batch_size': 12}),
    'pooled': (  # The last row is padding of weight 0.
        updates.EpisodicUpdate,
        {'batching': 'pooled', 'beta': 0.5, 'batch_size': 15},
    ),
    'episode': (updates.EpisodicUpdate, {'batching': 'episode', 'beta': 0.5, 'batch_size': 1}),
    'chunks': (updates.EpisodicUpdate, {'batching': 'chunks', 'beta': 0.5, 'batch_size': 8}),
}


def agent_of(name, change=lambda kind: kind, **keywords):
    """An agent on the chain with one of UPDATES, whose class `change` may replace."""
    update, settings = UPDATES[name]
    ucb = {'bonus': bonuses.UcbBonus(), 'alpha_1': 0.1, 'alpha_2': 0.1}
    return chain.agent(
        update=change(update),
        update_settings={**ucb, **settings},
        network={'num_heads': 3, 'prior_scale': 1.0},
        learning_starts=20,
        **keywords,
    )


def train(agent, agent_steps=60):
    """What the learner steps reported, and what replay was told of their errors."""
    reports, told, step = [], [], agent.learner_step

    def recorded():
        reports.append(step())
        return reports[-1]

    agent.learner_step = recorded
    agent.replay.learned = lambda ids, errors: told.append((ids, errors))
    chain.play(agent, chain.Chain(), agent_steps)
    agent.learner_step = step
    return [report for report, *_ in reports], told


def with_own_next_batch(kind):
    """A subclass like a user's, which is called instead of composed."""
    return type('Own', (kind,), {'next_batch': lambda self: kind.next_batch(self)})


def is_composed(agent):
    composed = agent.learner_step._composed
    return composed is not None and composed.function.experimental_get_tracing_count() == 1


@pytest.mark.parametrize('name', ['transitions', 'pooled', 'episode'])
def test_composed_and_separate_calls_are_equal(name):
    composed, separate = agent_of(name), agent_of(name, with_own_next_batch)
    (reports, told), (its_reports, was_told) = train(composed), train(separate)
    assert is_composed(composed) and not separate.learner_step._composed
    assert len(reports) == 40
    for ours, its in zip(reports, its_reports):
        assert ours == pytest.approx(its, rel=1e-4, abs=1e-6)  # Sums may differ in their last bit.
    for (ids, errors), (its_ids, its_errors) in zip(told, was_told):
        np.testing.assert_array_equal(ids, its_ids)
        np.testing.assert_allclose(errors, its_errors, atol=1e-5)
    for variable, other in zip(composed.learner.variables, separate.learner.variables):
        np.testing.assert_allclose(variable, other, atol=1e-4)


def test_targets_of_several_batches_are_computed_apart():
    agent = agent_of('chunks')
    train(agent, 24)
    assert not agent.learner_step._composed
    assert agent.learner.learner_steps == 4


def test_a_learner_with_its_own_step_is_called(monkeypatch):
    batches = []

    class Own(learner.QLearner):
        def step(self, batch):
            batches.append(batch)
            return super().step(batch)

    monkeypatch.setattr(chain, 'QLearner', Own)
    train(agent_of('transitions'), 24)
    assert len(batches) == 4


def failing(targets, q_values):
    def fail(_):
        raise RuntimeError('no loss')

    wrong = tf.ensure_shape(tf.numpy_function(fail, [targets], tf.float32), targets.shape)
    return tf.square(targets - q_values) + tf.stop_gradient(wrong)


def undefined(targets, q_values):
    return tf.square(targets - q_values) * np.nan


def test_infinite_targets_are_found_though_the_loss_is_finite():
    agent = agent_of('transitions', learner={'loss': lambda y, q: tf.minimum(tf.abs(y - q), 1.0)})
    agent.update.alpha_1 = np.inf
    with pytest.raises(NotFiniteError, match='returned NaN or infinite targets from next_batch'):
        train(agent)


class OneTarget(updates.TransitionUpdate):
    """Targets of one head, which would broadcast."""

    def batch(self, *arrays):
        (observations, actions, y, *others), means = super().batch(*arrays)
        return (observations, actions, y[:, :1], *others), means


def test_columns_of_a_wrong_shape_are_refused():
    agent = agent_of('transitions', lambda _: OneTarget)
    with pytest.raises(UserError) as error:
        train(agent)
    assert ' returned targets of float32 (12, 1) from batch, not float32 (None, 3)' in str(
        error.value
    )


def test_a_loss_that_goes_wrong_is_named():
    for loss, error, message in (
        (failing, UserError, ' raised UnknownError in step: RuntimeError: no loss'),
        (undefined, NotFiniteError, ': loss nan, mean Q-value '),
    ):
        agent = agent_of('pooled', learner={'loss': loss})
        with pytest.raises(error) as caught:
            train(agent)
        name = f'Runner.learner = @QLearner with QLearner.loss = @{loss.__name__}'
        assert str(caught.value).startswith(name + message)
