"""The agent on small environments: its schedule, its episodes, and that every method learns."""

import functools

import gin
import numpy as np
import pytest
import tensorflow as tf

from ob2i_tf import (
    acting,
    bonuses,
    environments,
    networks,
    optimizers,
    posteriors,
    types,
    updates,
)
from ob2i_tf.errors import ConfigError, UserError
from ob2i_tf.learner import huber
from ob2i_tf.replay import EpisodeReplay
from tests import atari, chain


class Corridor:
    """Frames that count; each game lasts `length` steps with a life loss in its middle.

    Environment i shows the frame 100 i + steps so far, so every frame identifies its origin.
    """

    def __init__(self, num_envs, length=10, history=4, truncate=False):
        self.count, self.length, self.history, self.truncate = num_envs, length, history, truncate
        self.steps = np.zeros(num_envs, int)
        self.frame = 100 * np.arange(num_envs)
        self.stacks = np.repeat(self.frame.astype(np.uint8)[:, None], history, axis=1)
        self.acted_on = []

    def step(self):
        self.acted_on.append(self.stacks.copy())
        self.steps += 1
        self.frame += 1
        final = np.concatenate([self.stacks[:, 1:], self.frame[:, None]], 1).astype(np.uint8)
        over = self.steps % self.length == 0
        life_lost = self.steps % self.length == self.length // 2
        self.stacks = np.where(over[:, None], self.frame[:, None] + 1, final).astype(np.uint8)
        self.frame += over
        ended = np.zeros(self.count, bool) if self.truncate else over
        return (
            self.stacks[:, None],
            np.ones(self.count, np.float32),
            ended | life_lost,
            over & ~ended,
            {'final_obs': final[:, None], 'game_over': over},
        )


class Tape:
    """A learner that works as usual and writes down at which agent step."""

    def __init__(self, history=4):
        network, target = (
            networks.build(
                networks.MultiHeadQNetwork(3, 5, 8, conv_layers=(), seed=seed),
                (1, history),
                tf.uint8,
            )
            for seed in (1, 2)
        )
        self.learner = atari.QLearner(network, target)
        self.steps, self.copies = [], []
        self._agent_step = 0
        step, copy = self.learner.step, self.learner.update_target
        self.learner.step = lambda batch: (self.steps.append(self._agent_step), step(batch))[1]
        self.learner.update_target = lambda: (self.copies.append(self._agent_step), copy())[1]

    def watch(self, agent):
        learn_at = agent.learn_at

        def learn_and_note(agent_step):
            self._agent_step = agent_step
            return learn_at(agent_step)

        agent.learn_at = learn_and_note


def play(agent_steps, num_envs=1, corridor=None, **keywords):
    env = Corridor(num_envs, **(corridor or {}))
    tape = Tape(env.history)
    replay = EpisodeReplay((1,), 10_000, history=env.history, seed=0)
    update = atari.EpisodicUpdate(replay, tape.learner.network, tape.learner.target_network)
    keywords = {'learning_starts': 40, 'train_period': 4, 'target_period': 30, **keywords}
    pair = tape.learner.network, tape.learner.target_network
    posterior = posteriors.EnsemblePosterior(*pair, replay, num_envs, 0)
    rng = np.random.default_rng(0)
    agent = atari.Agent(tape.learner, posterior, update, replay, num_envs, rng, **keywords)
    tape.watch(agent)
    agent.begin(env.stacks[:, None])
    heads, epsilons, actions = [], [], []
    observations = env.stacks[:, None]
    while agent.agent_steps < agent_steps:
        heads.append(agent.state()['heads'])
        epsilons.append(agent.epsilon)
        action = agent.act(observations)
        actions.append(action)
        agent.learn()
        acted_on = observations
        observations, *results = env.step()
        agent.observe(types.EnvStep(acted_on, action, observations, *results))
    return agent, tape, replay, env, np.array(heads), np.array(epsilons), np.array(actions)


def test_learner_steps_and_copies_run_at_their_exact_step():
    _, tape, *_ = play(100)
    assert tape.steps == list(range(44, 101, 4))
    assert tape.copies == [60, 90]  # Before learning starts there is nothing to copy.


@pytest.mark.parametrize('num_envs', [2, 5, 20])
def test_several_environments_keep_the_ratio(num_envs):
    _, tape, *_ = play(100, num_envs, corridor={'length': 2})
    assert tape.steps == list(range(44, 101, 4))
    assert tape.copies == [60, 90]  # Before learning starts there is nothing to copy.


def test_an_episode_that_ends_with_a_step_is_drawn_from_the_next_learner_step_on():
    # A life is lost after 5 agent steps: the first complete episode comes with step 5 itself.
    for first, steps in ((4, [6, 7, 8]), (5, [6, 7, 8]), (6, [7, 8])):
        _, tape, *_ = play(8, learning_starts=first, train_period=1)
        assert tape.steps == steps


def test_epsilon_changes_at_its_exact_step():
    def epsilon(agent_steps):
        return 1 - agent_steps / 200

    *_, epsilons, _ = play(100, epsilon=epsilon)
    np.testing.assert_allclose(epsilons, [1.0] * 40 + [1 - s / 200 for s in range(40, 100)])
    *_, epsilons, _ = play(100, epsilon=epsilon, warmup='epsilon_greedy')
    np.testing.assert_allclose(epsilons, [1 - s / 200 for s in range(100)])


def check_schedule(epsilon, agent_steps):
    play(0, epsilon=epsilon)[0].check_schedule(agent_steps)


def test_a_schedule_is_evaluated_over_the_complete_run():
    check_schedule(atari.linear, 5_000_000)
    check_schedule(lambda steps: 0.5 if steps <= 10_000 else 2.0, 10_000)
    with pytest.raises(ConfigError, match='a number in 0..1, got 2.0 at 9999'):
        check_schedule(lambda steps: 2.0 if steps == 9_999 else 0.5, 10_000)
    with pytest.raises(ConfigError, match='a number in 0..1, got -0.1 at 5000000'):
        check_schedule(lambda steps: 0.5 if steps < 4_999_999 else -0.1, 5_000_000)
    pieces = [1.0, 0.5]
    with pytest.raises(
        ConfigError, match='Agent.epsilon fails at 200 agent steps: IndexError: list index out'
    ):
        check_schedule(lambda steps: pieces[steps // 100], 300)
    check_schedule(atari.linear, 10**21)


@pytest.mark.parametrize(
    'learning_starts, train_period, agent_steps, warns',
    [(39, 4, 40, False), (40, 4, 43, True), (10**30, 1, 100, True), (40, 4, 0, False)],
)
def test_a_run_without_a_learner_step_warns(
    learning_starts, train_period, agent_steps, warns, caplog
):
    keywords = {'learning_starts': learning_starts, 'train_period': train_period}
    agent = play(0, epsilon=atari.linear, **keywords)[0]
    agent.check_schedule(agent_steps)
    message = f'within {agent_steps} agent steps: Agent.learning_starts = {learning_starts:,}.'
    assert (message in caplog.text) == warns
    caplog.clear()
    agent.posterior.needs_learner = False
    agent.check_schedule(agent_steps)
    assert not caplog.messages


@pytest.mark.parametrize('warmup, random_steps', [('random', 40), ('epsilon_greedy', 0)])
def test_a_step_says_whether_its_actions_belong_to_the_warmup(monkeypatch, warmup, random_steps):
    steps = []
    monkeypatch.setattr(
        posteriors.EnsemblePosterior, 'observe', lambda self, step: steps.append(step)
    )
    play(60, 2, warmup=warmup)
    assert [step.agent_steps for step in steps] == list(range(0, 60, 2))
    assert [step.warmup for step in steps] == [s < random_steps for s in range(0, 60, 2)]


def test_an_epsilon_outside_0_to_1_is_refused():
    for wrong in (lambda _: 'x', optimizers.adam, lambda _: 1.1, lambda _: float('nan')):
        with pytest.raises(ConfigError, match='Agent.epsilon must map .* at 0'):
            play(1, epsilon=wrong)
    with pytest.raises(ConfigError, match='got -0.1 at 50'):
        play(60, epsilon=lambda steps: 0.1 if steps < 50 else -0.1)


@pytest.mark.parametrize('head_lifetime, span', [('game', 10), ('episode', 5)])
def test_a_head_is_drawn_for_each_game_or_episode(head_lifetime, span):
    *_, heads, _, _ = play(200, head_lifetime=head_lifetime)
    spans = heads[:, 0].reshape(-1, span)
    assert (spans == spans[:, :1]).all()
    changes = np.count_nonzero(np.diff(spans[:, 0]))
    assert changes > len(spans) / 2  # Four in five draws give another of five heads.
    assert set(spans[:, 0]) == set(range(5))


def test_acts_greedily_by_the_head_of_the_episode():
    agent, tape, _, env, heads, _, actions = play(
        120, epsilon=lambda s: 0.0, learning_starts=120, warmup='epsilon_greedy'
    )
    q_values = tape.learner.network(np.array(env.acted_on)).numpy()  # Nothing was learned.
    best = q_values[np.arange(120), heads[:, 0]].argmax(-1)
    np.testing.assert_array_equal(actions[:, 0], best)


@pytest.mark.parametrize('num_envs, history', [(1, 4), (3, 4), (1, 2)])
def test_stacks_from_replay_are_those_that_were_acted_on(num_envs, history):
    *_, replay, env, _, _, _ = play(60 * num_envs, num_envs, corridor={'history': history})
    acted_on = {tuple(stack) for step in env.acted_on for stack in step}
    assert replay.num_transitions == 60 * num_envs
    assert replay.num_episodes == 12 * num_envs  # Lives, not games.
    for _ in range(100):
        batch = replay.sample_transitions(16)
        for stack in batch.observations[:, 0]:
            assert tuple(stack) in acted_on


@pytest.mark.parametrize('restart', [False, True])
def test_replay_rebuilds_the_stacks_of_breakout_over_several_lives(restart):
    env = environments.make('Breakout', seed=8, restart_stack_on_life_loss=restart)
    pair = [
        networks.build(
            networks.MultiHeadQNetwork(4, 1, 2, conv_layers=((1, 8, 8),)), (84, 84, 4), tf.uint8
        )
        for _ in range(2)
    ]
    replay = EpisodeReplay((84, 84), 10_000, history=4, seed=0)
    posterior = posteriors.EnsemblePosterior(*pair, replay, 1, 0)
    agent = atari.Agent(None, posterior, None, replay, 1, np.random.default_rng(0))
    observations, _ = env.reset()
    agent.begin(observations)
    acted_on, led_to, rng = [], [], np.random.default_rng(0)
    while replay.num_episodes < 12:  # A game has five lives.
        acted_on.append(observations[0])
        actions = rng.integers(4, size=1)
        step = types.EnvStep(observations, actions, *env.step(actions))
        observations = step.observations
        led_to.append(step.info['final_obs'][0])
        for episode in agent.record(step):
            replay.add_episode(episode)
    rows = replay.sample_transitions(300)
    np.testing.assert_array_equal(rows.observations, np.stack([acted_on[i] for i in rows.ids]))
    np.testing.assert_array_equal(rows.next_observations, np.stack([led_to[i] for i in rows.ids]))
    for _ in range(12):
        episode = replay.sample_episode()
        first = np.moveaxis(np.concatenate([episode.context, episode.observations[:1]]), 0, -1)
        np.testing.assert_array_equal(first, acted_on[episode.first_id])
        if episode.first_id and restart:
            assert (first == first[..., :1]).all()


def test_xla_of_acting_is_refused_for_a_posterior_that_it_cannot_compile(monkeypatch):
    monkeypatch.setattr(posteriors.EnsemblePosterior, 'supports_xla', False)
    play(0, xla=False)
    with pytest.raises(ValueError, match="'acting' cannot be compiled with EnsemblePosterior"):
        play(0, xla=True)


def test_discounts_of_terminals_and_of_the_limit():
    *_, replay, _, _, _, _ = play(30)
    assert {float(replay.sample_episode().discounts[-1]) for _ in range(20)} == {0.0}
    *_, replay, _, _, _, _ = play(30, corridor={'truncate': True})
    ends = {}
    for _ in range(50):
        episode = replay.sample_episode()
        np.testing.assert_allclose(episode.discounts[:-1], 0.99)
        ends[int(episode.observations[-1, 0]) % 11] = round(float(episode.discounts[-1]), 2)
    assert ends == {5: 0.0, 10: 0.99}  # The life loss is a terminal, the limit is not.
    *_, replay, _, _, _, _ = play(30, corridor={'truncate': True}, timeout_is_terminal=True)
    assert {float(replay.sample_episode().discounts[-1]) for _ in range(50)} == {0.0}


def test_the_end_of_an_iteration_stores_what_is_in_progress_as_truncated():
    agent, _, replay, *_ = play(12)
    assert replay.num_transitions == 10
    agent.end()
    assert replay.num_transitions == 12
    ends = {round(float(replay.sample_episode().discounts[-1]), 2) for _ in range(60)}
    assert ends == {0.0, 0.99}


def test_learning_is_postponed_while_no_episode_is_complete(caplog):
    corridor = {'length': 1000}
    _, tape, replay, *_ = play(120, corridor=corridor)
    assert replay.num_episodes == 0 and tape.steps == []
    messages = [r.getMessage() for r in caplog.records if 'postponed' in r.getMessage()]
    assert messages == [
        'Learning is postponed at 44 agent steps: replay holds 0 complete episodes.'
    ]


def test_impossible_settings_are_refused():
    for keywords, message in (
        ({'train_period': 0}, 'train_period'),
        ({'warmup': 'greedy'}, "Agent.warmup must be one of .*'greedy'"),
        ({'head_lifetime': 'step'}, 'Agent.head_lifetime'),
        ({'tie_break': 'last', 'preferences': acting.mean_preferences}, 'tie_break'),
    ):
        with pytest.raises(ValueError, match=message):
            play(1, **keywords)


# Methods on a chain.


class Changed(updates.TransitionUpdate):
    """Another result of `next_batch`."""

    def next_batch(self):
        return self.change(*super().next_batch())


@pytest.fixture(scope='module')
def with_changed():
    """An agent with a `Changed` update; each learner step draws 12 transitions."""
    agent = chain.agent(update=Changed, network={'num_heads': 2}, learning_starts=0)
    agent.update.change = lambda batch, report: (batch, report)
    chain.play(agent, chain.Chain(), 13)
    return agent


def with_column(name, change):
    return lambda batch, report: (batch._replace(**{name: change(getattr(batch, name))}), report)


def raising(batch, report):
    return batch, {'a': report['no key']}


UPDATE = 'Runner.update = @Changed'


@pytest.mark.parametrize(
    'change, message',
    [
        (lambda *_: None, f'{UPDATE} returned None from next_batch, not a Batch and a dict'),
        (lambda batch, _: batch, f'{UPDATE} returned Batch('),
        (lambda batch, _: (batch, None), f'{UPDATE} returned (Batch('),
        (
            with_column('targets', lambda x: x.astype(float)),
            f'{UPDATE} returned targets of float64 (12, 2) from next_batch, not float32 (12, 2)',
        ),
        (
            with_column('targets', lambda x: x[:, :1]),
            f'{UPDATE} returned targets of float32 (12, 1',
        ),
        (with_column('targets', lambda x: None), f'{UPDATE} returned targets of object () from'),
        (
            with_column('targets', lambda x: x * np.nan),
            f'{UPDATE} returned NaN or infinite targets from next_batch',
        ),
        (
            with_column('observations', lambda x: x[:3]),
            f'{UPDATE} returned observations of float32',
        ),
        (
            with_column('actions', lambda x: x[:0]),
            f'{UPDATE} returned observations of float32 (12,',
        ),
        (with_column('actions', lambda x: x * 0.5), f'{UPDATE} returned actions of float64 (12,) '),
        (with_column('weights', lambda x: x > 0), f'{UPDATE} returned weights of bool (12,) from'),
        (with_column('masks', lambda x: x[:, 0]), f'{UPDATE} returned masks of float32 (12,) from'),
        (
            with_column('ids', lambda x: x[:3]),
            f'{UPDATE} returned ids of int64 (3,) from next_batc',
        ),
        (
            lambda batch, _: (batch, {'a': 'x'}),
            f"{UPDATE} returned 'x' as 'a' in its report, not a",
        ),
        (
            lambda batch, _: (types.Batch(*(x[:0] for x in batch)), {}),
            f'{UPDATE} returned observations of float32 (0, 5) from next_batch, not number (1, 5)',
        ),
        (raising, f"{UPDATE} raised KeyError in next_batch: 'no key'"),
        (
            with_column('actions', lambda x: x + 7),
            'Runner.learner = @QLearner with QLearner.loss = @squared_error raised '
            'InvalidArgumentError in step: indices[',
        ),
    ],
)
def test_an_update_that_goes_wrong_is_named(with_changed, change, message, capfd):
    with_changed.update.change = change
    with pytest.raises(UserError) as error:
        with_changed.learn_at(1)
    assert str(error.value).startswith(message)
    printed = capfd.readouterr().err
    assert ('Traceback' in printed) == (' raised ' in message)
    assert ("report['no key']" in printed) == (change is raising)


@pytest.mark.parametrize(
    'change',
    [
        lambda batch, report: (batch, {**report, 'a': np.nan, 'b': np.float32(1), 'c': True}),
        lambda batch, _: (batch._replace(ids=None), {}),
        with_column('actions', lambda x: x.astype(np.int64)),
        lambda batch, _: (types.Batch(*map(tf.convert_to_tensor, batch[:-1])), {}),
    ],
)
def test_what_an_update_may_return(with_changed, change):
    with_changed.update.change = change
    with_changed.learner._compiled_step = None  # It is compiled for batches like the first one.
    assert np.isfinite(with_changed.learn_at(1)[0]['loss'])


def undefined(q_values):
    return tf.reduce_max(q_values, axis=-2) * np.nan


def failing(q_values):
    def fail(_):
        raise RuntimeError('no statistic')

    values = tf.numpy_function(fail, [q_values], tf.float32)
    return tf.ensure_shape(values, [None, q_values.shape[-1]])


@pytest.mark.parametrize(
    'statistic, reason',
    [
        (undefined, 'returned NaN or infinite targets from next_batch'),
        (failing, 'raised UnknownError in next_batch: RuntimeError: no statistic'),
    ],
)
def test_a_statistic_that_goes_wrong_is_named(statistic, reason, capfd):
    settings = {'bonus': bonuses.UcbBonus(statistic), 'alpha_1': 1.0}
    agent = chain.agent(update_settings=settings, network={'num_heads': 2}, learning_starts=12)
    with pytest.raises(UserError) as error:
        chain.play(agent, chain.Chain(), 14)
    assert str(error.value) == (
        'Runner.update = @TransitionUpdate with TransitionUpdate.bonus = @UcbBonus(), '
        f'UcbBonus.statistic = @{statistic.__name__} {reason}'
    )
    assert ('in fail' in capfd.readouterr().err) == (statistic is failing)


METHODS = {
    'ube': {
        'posterior': posteriors.UncertaintyBellmanPosterior,
        'update_settings': {'double_q': True},
        'posterior_settings': {
            'n_steps': 5,
            'hidden_units': 8,
            'scale': 0.1,
            'optimizer': functools.partial(optimizers.rmsprop, 2.5e-4),
        },
    },
    'bayesian_dqn': {
        'network': {'train_output': False},
        'update_settings': {'double_q': True},
        'optimizer': functools.partial(optimizers.adam, 2e-3),
        'posterior': posteriors.BayesianLinearPosterior,
        'posterior_settings': {
            'regression_period': 4,
            'regression_transitions': 200,
            'prior_variance': 1.0,
            'noise_variance': 0.1,
            'sample_period': 10,
        },
    },
    'noisynet': {'network': {'noise': 'factorised'}},
    'bebu_rnd': {
        'network': {'num_heads': 3},
        'preferences': acting.head_preferences,
        'update': atari.EpisodicUpdate,
        'epsilon': 0.2,
        'update_settings': {
            'alpha_1': 0.01,
            'alpha_2': 0.01,
            'bonus': functools.partial(
                bonuses.RndBonus, conv_layers=(), features=4, predictor_layers=(8,)
            ),
        },
    },
    'ebu_adaptive': {
        'num_networks': 3,
        'posterior': posteriors.AdaptivePosterior,
        'posterior_settings': {'selection_period': 150},
        'preferences': acting.head_preferences,
        'update': atari.EpisodicUpdate,
        'learner': {'loss_scale': 3.0},
        'epsilon': 0.2,
        'update_settings': {'beta': (0.0, 0.5, 1.0)},
    },
    'bootdqn_ids': {
        'network': {'num_heads': 5},
        'preferences': acting.ids_preferences,
        'update_settings': {'double_q': True},
        'learner': {'loss': huber},
    },
    'dqn_rmsprop': {
        'optimizer': functools.partial(optimizers.rmsprop, 3e-3, epsilon=1e-4),
        'learner': {'loss': huber, 'max_gradient_norm': None},
        'epsilon': 0.2,
    },
}


@pytest.fixture
def small_networks():
    gin.parse_config(
        [
            'MultiHeadQNetwork.hidden_units = 32',
            'MultiHeadQNetwork.num_heads = 1',
            'MultiHeadQNetwork.conv_layers = ()',
        ]
    )
    yield
    gin.clear_config()


def mean_values(agent):
    """[5, A], of the head that is evaluated or of the mean of the heads."""
    values = agent.posterior.mean(chain.Chain.states).numpy()
    if isinstance(agent.posterior, posteriors.AdaptivePosterior):
        return values[:, agent.posterior.best]
    return values.mean(1)


@pytest.mark.parametrize('name', METHODS)
def test_every_method_learns_a_chain(name, small_networks):
    settings = METHODS[name]
    update_settings = dict(settings.get('update_settings', {}))
    if 'bonus' in update_settings:
        update_settings['bonus'] = update_settings['bonus']()
    agent = chain.agent(**{**settings, 'update_settings': update_settings})
    for network in (agent.posterior.network, agent.posterior.target_network):
        prefer_left(network)
    assert not chain.reaches_the_goal(mean_values(agent))
    chain.play(agent, chain.Chain(), 300)
    values = mean_values(agent)
    assert chain.reaches_the_goal(values)
    np.testing.assert_allclose(values[3, 1], 1, atol=0.15)  # The reward.
    np.testing.assert_allclose(values[0, 1], 0.8**3, atol=0.2)


def prefer_left(network):
    """Makes all values of the first action the larger ones, which the agent must unlearn."""
    for each in getattr(network, 'networks', [network]):
        layer = each.heads.output_layer
        layer.kernel.assign(tf.sort(layer.kernel, axis=1, direction='DESCENDING'))


@pytest.mark.parametrize('num_envs', [1, 2])
def test_adaptive_learners_take_turns_over_games(num_envs, small_networks):
    agent = chain.agent(num_envs, **{**METHODS['ebu_adaptive'], 'learning_starts': 1000})
    heads = chain.play(agent, chain.Chain(num_envs), 200)
    assert len(heads) > 15
    assert heads == [game % 3 for game in range(len(heads))]
    assert agent.posterior.state()['games'] == len(heads)


def test_the_score_belongs_to_the_learner_that_played(small_networks):
    agent = chain.agent(2, **{**METHODS['ebu_adaptive'], 'learning_starts': 40})
    env, scores = chain.Chain(2), np.zeros(3)
    observations = env.observations
    agent.begin(observations)
    for _ in range(60):
        heads = agent.heads.copy()
        actions = agent.act(observations)
        agent.learn()
        step = types.EnvStep(observations, actions, *env.step(actions))
        observations = step.observations
        agent.observe(step)
        if agent.agent_steps > 40:  # The first 40 actions are random and count for no learner.
            np.add.at(scores, heads, step.rewards)
    np.testing.assert_allclose(agent.posterior.state()['scores'], scores, rtol=1e-6)
    assert len(set(scores.round(3))) == 3


@pytest.mark.parametrize('timeout_is_terminal', [False, True])
def test_a_posterior_sees_each_step_as_it_was(timeout_is_terminal):
    steps = []

    class Witness(posteriors.EnsemblePosterior):
        copies = ends = 0

        def observe(self, step):
            steps.append(step._replace(heads=step.heads.copy()))

        def end(self):
            self.ends += 1

        def target_updated(self):
            self.copies += 1

    agent = chain.agent(
        2,
        posterior=Witness,
        network={'num_heads': 4},
        preferences=acting.head_preferences,
        timeout_is_terminal=timeout_is_terminal,
        target_period=50,
        learning_starts=60,
        train_period=100,
    )
    heads = chain.play(agent, chain.Chain(2, limit=6), 200)
    assert (agent.posterior.copies, agent.posterior.ends) == (3, 1)  # At 100, 150, 200.
    assert [step.agent_steps for step in steps] == list(range(0, 200, 2))  # Before each step.
    followed, games = [[step.heads[env] for step in steps] for env in range(2)], [0, 1]
    started = iter(range(2, len(heads)))
    for step, following in zip(steps, steps[1:] + [None]):
        for env in range(2):
            state = step.observations[env].argmax()
            next_state = step.next_observations[env].argmax()
            assert next_state == (state + 1 if step.actions[env] else max(state - 1, 0))
            assert step.rewards[env] == pytest.approx(
                1 if next_state == 4 else 0.01 * (state == next_state == 0)
            )
            assert step.heads[env] == heads[games[env]]
            over = bool(step.game_over[env])
            assert over == bool(step.episode_over[env])
            terminal = next_state == 4 or (over and timeout_is_terminal)
            assert step.discounts[env] == pytest.approx(0 if terminal else 0.8)
            if over:
                games[env] = next(started)
            if following:
                assert following.observations[env].argmax() == (0 if over else next_state)
    cut = sum(s.game_over[e] and s.next_observations[e].argmax() < 4 for s in steps for e in (0, 1))
    assert cut > 5 and len(set(followed[0])) == 4
