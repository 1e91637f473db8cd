"""Parts are checked when they are built, and a replay against the machine's memory."""

import numpy as np
import pytest
import tensorflow as tf
from absl import logging

from ob2i_tf import acting, networks, posteriors
from ob2i_tf.environments import make
from ob2i_tf.errors import ConfigError
from ob2i_tf.replay import EpisodeReplay
from ob2i_tf.training import build, system
from tests import atari

SPEC = build.EnvironmentSpec((4,), np.dtype(np.float32), 3, 1, 1, 0, None)


def network(num_actions, seed, prior_seed):
    layers = {'num_heads': 2, 'hidden_units': 4, 'conv_layers': ()}
    return networks.MultiHeadQNetwork(num_actions, **layers, seed=seed, prior_seed=prior_seed)


class Flat(posteriors.Posterior):
    def sample(self, observations, seed):
        return tf.reduce_mean(self.network(observations, seed), axis=1)


class Failing(posteriors.Posterior):
    def mean(self, observations):
        return self.network(observations, heads=0)


@pytest.mark.parametrize(
    'posterior, reason',
    [
        (Flat, r'and a seed \[2\] to samples .*, but \(None, 4\), \(2,\) gives'),
        (Failing, 'to means .*, but fails with TypeError'),
    ],
)
def test_a_posterior_without_values_for_each_head_is_named(posterior, reason):
    pair = build.build_networks(network, SPEC, seed=0)
    assert build.build_posterior(posteriors.Posterior, SPEC, pair, None, 1, 0).network is pair[0]
    with pytest.raises(ConfigError, match=rf'^Runner.posterior must map observations .*{reason}'):
        build.build_posterior(posterior, SPEC, pair, None, 1, 0)


def test_networks_get_the_seeds_of_the_run():
    seeds = []

    def noting(num_actions, seed, prior_seed):
        seeds.append((seed, prior_seed))
        return network(num_actions, seed, prior_seed)

    for seed in (0, 0, 1):
        build.build_networks(noting, SPEC, seed)
    online, target = seeds[:2]
    assert online[0] != target[0] and online[1] == target[1]
    assert seeds[2:4] == seeds[:2] and not set(seeds[4:]) & set(seeds[:2])


def test_the_memory_of_a_replay_is_logged_and_checked(monkeypatch, caplog):
    logging.set_verbosity(logging.INFO)
    replay = EpisodeReplay((84, 84), 1_000_000)
    monkeypatch.setattr(system, 'memory_bytes', lambda: 23.4e9)
    build.check_memory(replay)
    assert '1,000,000 transitions of 84x84 uint8 = 7.1 GB (machine: 23.4 GB)' in caplog.text
    monkeypatch.setattr(system, 'memory_bytes', lambda: 7e9)
    message = r'EpisodeReplay.capacity_transitions = 1000000: .* 7.1 GB, .* machine has 7.0 GB'
    with pytest.raises(ValueError, match=message):
        build.check_memory(replay)


def test_a_run_without_the_memory_for_its_replay_is_not_built():
    with pytest.raises(ValueError, match=r'capacity_transitions = 1000000000000: .* the machine'):
        build.build(
            seed=0,
            num_envs=1,
            make_environment=lambda **keywords: make('DeepSea', **keywords),
            make_network=network,
            make_replay=lambda *args, **keywords: EpisodeReplay(*args, 10**12, **keywords),
            make_learner=atari.QLearner,
            make_posterior=posteriors.EnsemblePosterior,
            make_update=atari.TransitionUpdate,
            make_agent=atari.Agent,
            evaluation_preferences=acting.vote_preferences,
            evaluation_tie_break='random',
            evaluation_belief='mean',
        )


def test_networks_that_do_not_fit_into_memory_are_named():
    def huge(num_actions, seed, prior_seed):
        layers = {'num_heads': 2, 'hidden_units': 10**10, 'conv_layers': ()}
        return networks.MultiHeadQNetwork(num_actions, **layers, seed=seed, prior_seed=prior_seed)

    with pytest.raises(MemoryError, match='Runner.network: '):
        build.build_networks(huge, SPEC, seed=0)
