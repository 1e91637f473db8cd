"""The example's quantiles learn as columns of their heads."""

import functools

import numpy as np
import pytest

from examples.quantile_heads import quantile_heads
from ob2i_tf import acting, bonuses, networks, optimizers, posteriors
from ob2i_tf.replay import EpisodeReplay
from tests import atari
from tests.episodes import FRAME, make_episode

HEADS, QUANTILES, ACTIONS = 2, 8, 3


def build_network(seed):
    heads = functools.partial(
        networks.MultiHeadQNetwork, num_heads=HEADS, hidden_units=4, conv_layers=()
    )
    network = quantile_heads.QuantileQNetwork(ACTIONS, QUANTILES, heads, seed)
    return networks.build(network, FRAME, np.int32)


def test_a_learner_step_moves_all_quantiles_to_their_targets():
    network, target = build_network(1), build_network(2)
    replay = EpisodeReplay(FRAME, 100, observation_dtype=np.int32)
    replay.add_episode(make_episode(0, 10)._replace(actions=np.arange(10) % ACTIONS))
    update = atari.EpisodicUpdate(
        replay,
        network,
        target,
        alpha_1=1.0,
        alpha_2=1.0,
        bonus=bonuses.UcbBonus(statistic=quantile_heads.std_of_means),
        next_actions=quantile_heads.greedy_by_mean,
    )
    batch, report = update.next_batch()
    assert batch.targets.shape == (16, HEADS * QUANTILES) and report['bonus_mean'] > 0
    loss = functools.partial(quantile_heads.quantile_huber, num_quantiles=QUANTILES)
    optimizer = functools.partial(optimizers.adam, 0.01)
    learner = atari.QLearner(network, target, loss=loss, optimizer=optimizer)
    losses = [learner.step(batch)[0]['loss'] for _ in range(200)]
    assert losses[-1] < 0.8 * losses[0]


@pytest.mark.parametrize('head', [0, 5, 8, 15])
def test_the_agent_follows_the_mean_of_the_head_of_a_drawn_column(head):
    network = build_network(1)
    posterior = posteriors.EnsemblePosterior(network, network, None, 1, 0)
    policy = acting.Policy(posterior, quantile_heads.quantile_head_preferences)
    observation = make_episode(0, 1).observations[:1]
    (action,) = policy.actions(observation, np.array([head]), 0.0, np.random.default_rng(0))
    columns = network(observation).numpy().reshape(HEADS, QUANTILES, ACTIONS)
    assert action == columns[head // QUANTILES].mean(axis=0).argmax()
