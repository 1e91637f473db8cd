"""Draws curves.png from curves.csv in the same folder: python docs/results/speed/curves.py"""

from pathlib import Path

import pandas as pd

from ob2i_tf.analysis import figures

HERE = Path(__file__).parent


def main():
    table = pd.read_csv(HERE / 'curves.csv')
    with figures.style():
        picture = figures.empty(5.6, 3.2)
        axis = picture.subplots()
        for name, color in (('before', 'C1'), ('after', 'C0')):
            rows = table[table['version'] == name]
            of_seeds = rows.pivot(index='agent_steps', columns='seed', values='treasures')
            band = figures.interval_of_mean(of_seeds)
            axis.fill_between(of_seeds.index, *band, color=color, alpha=0.18, lw=0)
            mean = of_seeds.mean(axis=1)
            axis.plot(of_seeds.index, mean, color=color, label=f'{name}, {of_seeds.shape[1]} seeds')
        axis.set(xlabel='agent steps', ylabel='share of 50 episodes with the treasure', xlim=0)
        axis.legend()
        picture.savefig(HERE / 'curves.png', dpi=110)


if __name__ == '__main__':
    main()
