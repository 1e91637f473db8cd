"""Beliefs about Q: from a network to the Q-values that an agent acts on.

A posterior wraps the online network. The training agent acts on `sample`, and evaluation may act
on `mean`; both return [B, K, A], so every preference function of acting.py takes either. A
posterior that learns while the agent acts does so in `observe`.
"""

from ob2i_tf.posteriors.adaptive import AdaptivePosterior
from ob2i_tf.posteriors.base import EnsemblePosterior, Posterior, SingleHeadPosterior
from ob2i_tf.posteriors.bayesian_linear import BayesianLinearPosterior, regression_posterior
from ob2i_tf.posteriors.ube import UncertaintyBellmanPosterior

__all__ = [
    'AdaptivePosterior',
    'BayesianLinearPosterior',
    'EnsemblePosterior',
    'Posterior',
    'SingleHeadPosterior',
    'UncertaintyBellmanPosterior',
    'regression_posterior',
]
