"""A chain of states, small enough to learn in seconds."""

import functools

import numpy as np
import tensorflow as tf

from ob2i_tf import acting, networks, optimizers, posteriors, types
from ob2i_tf.learner import QLearner
from ob2i_tf.replay import EpisodeReplay
from tests import atari


class Chain:
    """Right leads from the first of 5 states to a reward of 1 at the last, left pays 0.01.

    Left goes back one state, and pays at the first one only, so a learner that does not look ahead
    stays at the first. A game ends at the last state, or is truncated after `limit` steps.
    """

    num_actions = 2
    states = np.eye(5, dtype=np.float32)

    def __init__(self, num_envs=1, limit=12):
        self._limit = limit
        self._at = np.zeros(num_envs, int)
        self._steps = np.zeros(num_envs, int)

    @property
    def observations(self):
        return self.states[self._at]

    def step(self, actions):
        left = actions == 0
        rewards = np.where(left & (self._at == 0), 0.01, 0.0).astype(np.float32)
        self._at = np.where(left, np.maximum(self._at - 1, 0), self._at + 1)
        self._steps += 1
        rewards[self._at == 4] = 1
        final = self.observations
        terminated = self._at == 4
        truncated = (self._steps == self._limit) & ~terminated
        over = terminated | truncated
        self._at[over] = self._steps[over] = 0
        info = {'final_obs': final, 'game_over': over}
        return self.observations, rewards, terminated, truncated, info


def agent(
    num_envs=1,
    num_networks=None,
    network=None,
    optimizer=None,
    learner=None,
    posterior=posteriors.EnsemblePosterior,
    posterior_settings=None,
    update=atari.TransitionUpdate,
    update_settings=None,
    epsilon=0.0,
    **keywords,
):
    """An agent for a Chain, built as Runner builds it."""
    pair = []
    for seed in (1, 2):
        if num_networks:
            net = networks.IndependentQNetworks(2, num_networks=num_networks, seed=seed)
        else:
            settings = {'num_heads': 1, 'hidden_units': 32, 'conv_layers': (), **(network or {})}
            net = networks.MultiHeadQNetwork(2, seed=seed, **settings)
        pair.append(networks.build(net, (5,), tf.float32))
    replay = EpisodeReplay((5,), 10_000, seed=0, observation_dtype=np.float32)
    optimizer = optimizer or functools.partial(optimizers.adam, 1e-2)
    learner = QLearner(*pair, seed=3, optimizer=optimizer, **(learner or {}))
    believed = posterior(*pair, replay, num_envs, 4, **(posterior_settings or {}))
    update_settings = {'batch_size': 12, **(update_settings or {})}
    update = update(replay, *pair, believed.double_q_values, seed=5, **update_settings)
    rng = np.random.default_rng(6)
    keywords = {
        'preferences': acting.mean_preferences,
        'discount': 0.8,
        'learning_starts': 80,
        'train_period': 1,
        'target_period': 10,
        **keywords,
    }
    return atari.Agent(
        learner, believed, update, replay, num_envs, rng, epsilon=lambda _: epsilon, **keywords
    )


def play(agent, env, agent_steps):
    """Trains for `agent_steps`; returns the heads of the games, in order of their start."""
    observations = env.observations
    agent.begin(observations)
    heads = agent.heads.tolist()
    while agent.agent_steps < agent_steps:
        actions = agent.act(observations)
        agent.learn()
        acted_on = observations
        observations, *results = env.step(actions)
        agent.observe(types.EnvStep(acted_on, actions, observations, *results))
        heads += agent.heads[results[-1]['game_over']].tolist()
    agent.end()
    return heads


def reaches_the_goal(preferences):
    """Whether 4 steps from the first state, greedy by preferences [5, A], end at the last one."""
    return (np.argmax(preferences, axis=-1)[:4] == 1).all()
