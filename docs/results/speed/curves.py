"""Draws curves.png from curves.csv in the same folder: python docs/results/speed/curves.py"""

from pathlib import Path

import pandas as pd

from ob2i_tf.analysis import figures

HERE = Path(__file__).parent


def main():
    table = pd.read_csv(HERE / 'curves.csv')
    with figures.style():
        picture = figures.empty(8.4, 3.2)
        axes = picture.subplots(1, 2, sharey=True)
        axes[0].set_ylabel('share of 50 episodes with the treasure')
        for axis, versions in zip(axes, (('before', 'after'), ('float32', 'bfloat16'))):
            for name, color in zip(versions, ('C1', 'C0')):
                rows = table[table['version'] == name]
                of_seeds = rows.pivot(index='agent_steps', columns='seed', values='treasures')
                band = figures.interval_of_mean(of_seeds)
                axis.fill_between(of_seeds.index, *band, color=color, alpha=0.18, lw=0)
                label = f'{name}, {of_seeds.shape[1]} seeds'
                axis.plot(of_seeds.index, of_seeds.mean(axis=1), color=color, label=label)
            axis.set(xlabel='agent steps', xlim=0)
            axis.legend()
        picture.savefig(HERE / 'curves.png', dpi=110)


if __name__ == '__main__':
    main()
