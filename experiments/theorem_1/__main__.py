"""Theorem 1 as an experiment: the spread of an ensemble against the bonus of LSVI-UCB.

  python -m experiments.theorem_1 --out experiments/theorem_1

By the theorem, in Bayesian linear regression with prior N(0, I / lambda) and unit noise the
standard deviation of the value at phi is sqrt(phi^T Lambda^-1 phi). A head of the ensemble is a
ridge regression on targets with noise N(0, 1), drawn towards a weight from the prior: a sample of
that posterior. So the error of the ensemble's standard deviation falls like 1 / sqrt(K).
Writes errors.csv and errors.png, .svg and .pdf.
"""

import csv
import os
import sys
from pathlib import Path

import numpy as np

from ob2i_tf import cli
from ob2i_tf.linear import lsvi

with cli.extra('analysis'):
    from ob2i_tf.analysis import figures


def perturbed_regressions(features, targets, regularisation, num_heads, rng):
    """Weights [K, d] of ridge regressions on perturbed targets with randomised priors.

    Args:
      features: [n, d].
      targets: [n].
      regularisation: lambda.
      num_heads: K.
      rng: numpy Generator.
    """
    size = features.shape[1]
    inverse = np.linalg.inv(features.T @ features + regularisation * np.eye(size))
    priors = rng.normal(size=(num_heads, size)) / np.sqrt(regularisation)
    noisy = targets + rng.normal(size=(num_heads, len(targets)))
    return (noisy @ features + regularisation * priors) @ inverse


def relative_error(num_heads, size=10, num_rows=100, regularisation=1.0, seed=0):
    """Root mean square over test features of std_k(phi^T w_k) / sqrt(phi^T Lambda^-1 phi) - 1."""
    rng = np.random.default_rng(seed)
    features = rng.normal(size=(num_rows, size)) * np.geomspace(1, 0.05, size)
    targets = features @ rng.normal(size=size)
    weights = perturbed_regressions(features, targets, regularisation, num_heads, rng)
    test = rng.normal(size=(200, size))
    inverse = np.linalg.inv(features.T @ features + regularisation * np.eye(size))
    spread = (test @ weights.T).std(axis=1)
    return np.sqrt(np.mean((spread / lsvi.norms(test, inverse) - 1) ** 2))


def exponents(heads, errors):
    """p of K^p fitted to the errors of each seed.

    Args:
      heads: [k], the values of K.
      errors: [k, seeds].

    Returns:
      [seeds].
    """
    return np.polyfit(np.log(heads), np.log(errors), 1)[0]


def figure(heads, errors):
    """Errors over K, one point per seed, beside 1 / sqrt(2 K).

    Args:
      heads: [k], the values of K.
      errors: [k, seeds].
    """
    with figures.style():
        picture = figures.empty(figures.NARROW, 3.3)
        axis = picture.subplots()
        dots = axis.loglog(heads, errors, 'o', color=figures.COLOURS[0], markersize=3, alpha=0.6)
        (line,) = axis.loglog(heads, 1 / np.sqrt(2 * np.array(heads)), '--', color=figures.INK)
        axis.set(xlabel='heads K', ylabel='relative error of the standard deviation')
        for each in (axis.xaxis, axis.yaxis):
            each.set_major_formatter(lambda value, _: figures.short(value))
        figures.legend(picture, {'one seed': dots[0], '1 / sqrt(2 K)': line})
        caption = 'Relative error of the standard deviation of K heads, one point per seed'
        return figures.rendered('errors', 'Theorem 1', caption, picture)


@cli.command()
def main(argv=None):
    """Runs the command line; returns the exit status."""
    parser = cli.parser('experiments.theorem_1', __doc__)
    parser.add_argument('--out', required=True, type=os.path.expanduser, metavar='DIR')
    out = Path(parser.parse_args(argv).out)
    out.mkdir(parents=True, exist_ok=True)
    heads = [10, 30, 100, 300, 1000, 3000, 10000]
    errors = [[relative_error(k, seed=seed) for seed in range(10)] for k in heads]
    with open(out / 'errors.csv', 'w', newline='') as file:
        writer = csv.writer(file)
        writer.writerow(['num_heads', 'seed', 'relative_error'])
        writer.writerows((k, s, e) for k, row in zip(heads, errors) for s, e in enumerate(row))
    figure(heads, errors).save(out)
    print(f'the error falls like K^{exponents(heads, errors).mean():.2f}')
    return 0


if __name__ == '__main__':
    sys.exit(main())
