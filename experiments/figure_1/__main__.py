"""Figure 1 of the paper: the UCB-bonus on a regression task.

  python -m experiments.figure_1 --out experiments/figure_1

Twenty networks are fitted to the same 60 points, from different initial weights: the heads of a
MultiHeadQNetwork without a trunk share nothing. The paper does not specify the points; these are
as in Osband et al. (2016, appendix A): y = x + sin(4 (x + w)) + sin(13 (x + w)) + w,
w ~ N(0, 0.03^2), x uniform in (0, 0.6) and (0.8, 1).
Writes curves.csv and regression.png, .svg and .pdf.
"""

import csv
import functools
import os
import sys
from pathlib import Path

import numpy as np

from ob2i_tf import cli

cli.import_tensorflow()

from ob2i_tf import bonuses, networks, optimizers, types  # noqa: E402
from ob2i_tf.learner import QLearner  # noqa: E402

with cli.extra('analysis'):
    from ob2i_tf.analysis import figures

NUM_NETWORKS, NUM_POINTS = 20, 60


def draw_points(rng):
    """x and y, [NUM_POINTS] each."""
    x = np.concatenate([rng.uniform(0, 0.6, NUM_POINTS // 2), rng.uniform(0.8, 1, NUM_POINTS // 2)])
    w = rng.normal(0, 0.03, NUM_POINTS)
    return x, x + np.sin(4 * (x + w)) + np.sin(13 * (x + w)) + w


def fit(x, y, steps=12_000, seed=0):
    """The fitted networks as one function, [n] -> [n, NUM_NETWORKS]."""

    def inputs(x):  # Biases start at 0; the second input spreads the kinks.
        return np.stack([x, np.full_like(x, 0.5)], axis=-1).astype(np.float32) * 4

    pair = [
        networks.build(
            networks.MultiHeadQNetwork(1, NUM_NETWORKS, 100, conv_layers=(), seed=seed),
            (2,),
            np.float32,
        )
        for _ in range(2)
    ]
    learner = QLearner(*pair, optimizer=functools.partial(optimizers.adam, 5e-3))
    batch = types.Batch(
        inputs(x),
        np.zeros(len(x), np.int32),
        np.repeat(y[:, None], NUM_NETWORKS, axis=1).astype(np.float32),
        np.ones(len(x), np.float32),
        np.ones((len(x), NUM_NETWORKS), np.float32),
    )
    for _ in range(steps):
        learner.step(batch)
    return lambda x: pair[0](inputs(x)).numpy()[..., 0]


def mean_bonuses(curve, std):
    """The mean bonus among the points, in the gap between them, and beyond them.

    Args:
      curve: [n], values of x.
      std: [n], the bonus.
    """
    outside, gap = (curve < 0) | (curve > 1), (curve > 0.6) & (curve < 0.8)
    return {
        'among the points': std[~outside & ~gap].mean(),
        'in the gap between them': std[gap].mean(),
        'beyond them': std[outside].mean(),
    }


def figure(points, curve, fitted, std):
    """The networks, their mean with its spread, and the mean plus the bonus.

    Args:
      points: x and y, [NUM_POINTS] each.
      curve: [n], the x at which the networks are drawn.
      fitted: [n, NUM_NETWORKS].
      std: [n], the bonus.
    """
    mean = fitted.mean(axis=1)
    with figures.style():
        picture = figures.empty(figures.WIDE, 2.5)
        panels = picture.subplots(1, 3, sharex=True, sharey=True)
        panels[0].plot(curve, fitted, linewidth=0.7, alpha=0.7)
        for width, alpha in ((1, 0.35), (2, 0.2)):
            low, high = mean - width * std, mean + width * std
            figures.band(panels[1], curve, low, high, figures.COLOURS[0], alpha)
        for panel in panels[1:]:
            (line,) = panel.plot(curve, mean, color=figures.INK)
        (optimistic,) = panels[2].plot(curve, mean + std, color=figures.COLOURS[1])
        for panel, title in zip(panels, (f'{NUM_NETWORKS} networks', 'spread', 'optimistic value')):
            (dots,) = panel.plot(*points, '.', color=figures.COLOURS[2], markersize=5, zorder=3)
            panel.set(title=title, xlabel='x', ylim=(points[1].min() - 2, points[1].max() + 2))
        panels[0].set_ylabel('y')
        lines = {'points': dots, 'mean of the networks': line, 'mean + bonus': optimistic}
        bands = panels[1].collections
        lines |= {'1 standard deviation': bands[0], '2 standard deviations': bands[1]}
        figures.legend(picture, lines)
        caption = 'Networks fitted to the same points, and their spread as a bonus'
        return figures.rendered('regression', 'The UCB-bonus', caption, picture)


@cli.command()
def main(argv=None):
    """Runs the command line; returns the exit status."""
    parser = cli.parser('experiments.figure_1', __doc__)
    parser.add_argument('--out', required=True, type=os.path.expanduser, metavar='DIR')
    out = Path(parser.parse_args(argv).out)
    out.mkdir(parents=True, exist_ok=True)
    x, y = draw_points(np.random.default_rng(0))
    curve = np.linspace(-0.2, 1.2, 281)
    networks_fitted = fit(x, y)
    errors = np.mean((networks_fitted(x) - y[:, None]) ** 2, axis=0)
    fitted = networks_fitted(curve)
    std = bonuses.ensemble_std(fitted[..., None]).numpy()[:, 0]
    with open(out / 'curves.csv', 'w', newline='') as file:
        writer = csv.writer(file)
        writer.writerow(['x', 'mean', 'std'])
        writer.writerows(np.round(np.stack([curve, fitted.mean(axis=1), std], axis=1), 5))
    figure((x, y), curve, fitted, std).save(out)
    print(f'mean squared error of the networks: {errors.min():.3f} to {errors.max():.3f}')
    for where, mean in mean_bonuses(curve, std).items():
        print(f'mean bonus {where}: {mean:.3f}')
    return 0


if __name__ == '__main__':
    sys.exit(main())
