"""Checks that need all parts of a run, or the machine."""

import pytest
from absl import logging

from ob2i_tf import acting, networks, posteriors
from ob2i_tf.environments import make
from ob2i_tf.replay import EpisodeReplay
from ob2i_tf.training import build, system
from tests import atari


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
            environment=lambda **keywords: make('DeepSea', **keywords),
            network=lambda *args, **seeds: networks.MultiHeadQNetwork(
                *args, num_heads=2, hidden_units=4, conv_layers=(), **seeds
            ),
            replay=lambda *args, **keywords: EpisodeReplay(*args, 10**12, **keywords),
            learner=atari.QLearner,
            posterior=posteriors.EnsemblePosterior,
            update=atari.TransitionUpdate,
            agent=atari.Agent,
            evaluation_preferences=acting.vote_preferences,
            evaluation_tie_break='random',
            evaluation_belief='mean',
        )
