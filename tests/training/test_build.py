"""Parts that a user bound are refused when they are built."""

import numpy as np
import pytest
import tensorflow as tf

from ob2i_tf import networks, posteriors
from ob2i_tf.errors import ConfigError
from ob2i_tf.training import build

FACTS = build.Environment((4,), np.dtype(np.float32), 3, 1, 1, 0, None)


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
    pair = build.build_networks(network, FACTS, seed=0)
    assert build.build_posterior(posteriors.Posterior, FACTS, pair, None, 1, 0).network is pair[0]
    with pytest.raises(ConfigError, match=rf'^Runner.posterior must map observations .*{reason}'):
        build.build_posterior(posterior, FACTS, pair, None, 1, 0)


def test_networks_get_the_seeds_of_the_run():
    seeds = []

    def noting(num_actions, seed, prior_seed):
        seeds.append((seed, prior_seed))
        return network(num_actions, seed, prior_seed)

    for seed in (0, 0, 1):
        build.build_networks(noting, FACTS, seed)
    online, target = seeds[:2]
    assert online[0] != target[0] and online[1] == target[1]
    assert seeds[2:4] == seeds[:2] and not set(seeds[4:]) & set(seeds[:2])
