"""The report on the claims of the paper, docs/reproduction.md, computed from tables.

  python -m experiments.reproduction          # writes it
  python -m experiments.reproduction --check  # exit status 1 and a diff if it is out of date

report.md.in has the text. Its {names} are numbers and tables that the functions here compute from
the CSV files of the studies and of third_party/.
"""

import difflib
import sys
from pathlib import Path

import numpy as np

from experiments.atari_ablation import __main__ as atari_ablation
from experiments.figure_1 import __main__ as figure_1
from experiments.theorem_1 import __main__ as theorem_1
from ob2i_tf import cli

with cli.extra('analysis'):
    import pandas as pd
    from scipy import stats

    from ob2i_tf.analysis import scores

HERE = Path(__file__).parent
EXPERIMENTS, RESULTS = HERE.parent, HERE.parents[1] / 'docs' / 'results'
REPORT = RESULTS.parent / 'reproduction.md'

PRINTED_WINS = {'BEBU': 36, 'BEBU-UCB': 34, 'BEBU-IDS': 35}  # Appendix G.
TUNED_ON = ['Breakout', 'Freeway', 'Q*Bert', 'Seaquest', 'Space Invaders']  # Section 5.2.
GAMES, SEEDS = 5, 3  # Of each method in the ablation.
PAIRS = {  # Of which the first is better in table 2.
    'backward': ('OB2I', 'BootDQN-UCB'),
    'bonus': ('OB2I', 'BEBU'),
    'both': ('OB2I', 'BootDQN'),
    'rnd': ('OB2I', 'BEBU-RND'),
    'backward_alone': ('BEBU', 'BootDQN'),
}
SPREAD = 1.25  # Largest ratio of two single measurements of speed (docs/results/rows.md).
AGENT_STEPS, EVALUATION_STEPS = 5_000_000, 50 * 108_000  # Of a run of the paper's length.
COMPARED_RUNS = 4 * 49 * 5  # Methods, games and seeds of the paper's comparison.
ABLATION_RUNS = 5 * 3 * 3  # Methods, games and seeds of its ablation.


def verdict(holds, complete=True) -> str:
    """The verdict on a claim; it is open until all of its runs are complete."""
    if not complete:
        return 'in progress'
    return '**reproduced**' if holds else '**not reproduced**'


def interval(number, low, high, form='.2f') -> str:
    return f'{number:{form}} ({low:{form}} to {high:{form}})'


def ratio(first, second):
    """Geometric mean of `first` over that of `second`, with its 95% interval by Welch's t: [3]."""
    logs = np.log(first), np.log(second)
    bounds = stats.ttest_ind(*logs, equal_var=False).confidence_interval()
    return np.exp([logs[0].mean() - logs[1].mean(), *bounds])


def markdown(header, rows) -> str:
    """A Markdown table; all columns but the first are numbers."""
    lines = [header, ['---'] + ['---:'] * (len(header) - 1), *rows]
    return '\n'.join('| ' + ' | '.join(map(str, line)) + ' |' for line in lines)


def published() -> dict:
    """What follows from the paper's table of raw scores."""
    known = scores.published()
    paper, ob2i = known.paper, known.paper['OB2I']
    normalised = 100 * paper.apply(scores.human_normalised, args=(known.random, known.human))
    summary = 100 * scores.published_summary(known).set_index('method')[['mean', 'median', 'iqm']]
    printed = known.summary.set_index('method')
    few = ['Atlantis', 'Krull', 'Video Pinball']
    methods = [
        [
            method,
            f'{printed["mean"][method]} / {printed["median"][method]}',
            *(f'{summary[name][method]:.1f}' for name in ('mean', 'median', 'iqm')),
            *(f'{normalised[method].drop(games).mean():.1f}' for games in (few[:1], few)),
        ]
        for method in paper
    ]
    baselines = []
    for method, claimed in PRINTED_WINS.items():
        wins, ties, losses = scores.wins_ties_losses(ob2i, paper[method])
        others = scores.wins_ties_losses(ob2i.drop(TUNED_ON), paper[method])
        relative = scores.relative_score(ob2i, paper[method], known.random, known.human)
        p = stats.binomtest(wins, wins + losses).pvalue
        counts = [claimed, f'{wins} / {ties} / {losses}', f'{p:.3f}']
        relative = [f'{100 * x:.1f}' for x in (relative.mean(), relative.median())]
        baselines.append([method, *counts, '{} / {} / {}'.format(*others), *relative])
    best = paper.eq(paper.max(axis=1), axis=0)
    bold = pd.get_dummies(known.bold).reindex(columns=paper.columns)
    wrong = best.index[~(best & bold).any(axis=1)]
    pinball = known.earlier.loc['Video Pinball']
    earlier = printed[printed['frames_millions'] == 200]['median']
    return {
        'summaries': markdown(
            [
                '',
                'printed mean / median',
                'mean',
                'median',
                'IQM',
                'mean without Atlantis',
                'nor Krull, Video Pinball',
            ],
            methods,
        ),
        'wins': markdown(
            [
                'OB2I against',
                'printed wins',
                'wins / ties / losses',
                'p, sign test',
                'without the 5 tuning games',
                'relative score, mean',
                'median',
            ],
            baselines,
        ),
        'atlantis': f'{normalised.loc["Atlantis", "OB2I"] / len(paper):.0f}',
        'ob2i_mean': f'{summary["mean"]["OB2I"]:.0f}',
        'road_runner': f'{100 * (ob2i / paper["BEBU"] - 1)["Road Runner"]:.0f}',
        'pinball': f'{ob2i["Video Pinball"]:,.0f}',
        'pinball_dueling': f'{pinball["NoisyNet"]:,.0f}',
        'pinball_noisynet': f'{pinball["NoisyNet-DQN"]:,.0f}',
        'best': int(best['OB2I'].sum()),
        'best_alone': int((best['OB2I'] & (best.sum(axis=1) == 1)).sum()),
        'bold_wrong': ', '.join(wrong),
        'ids_printed': printed['mean']['BootDQN-IDS'],
        'median_printed': printed['median']['OB2I'],
        'least_median': earlier.min(),
        'greatest_median': earlier.max(),
        'noisynet_printed': '{mean} / {median}'.format(**printed.loc['NoisyNet']),
        'noisynet': '{mean:,.1f} / {median:.1f}'.format(**summary.loc['NoisyNet']),
        'noisynet_montezuma': known.montezuma.set_index('method')['score']['NoisyNet'],
        'ablation_equal': sum(
            row[game] == paper[row['method']][game]
            for _, row in known.ablation.iterrows()
            if row['method'] in paper
            for game in known.ablation.columns[3:]
        ),
    }


def ablation(table, summary, comparisons) -> dict:
    """Differences between methods in the small ablation, or the number of runs until complete.

    Args:
      table, summary, comparisons: The tables of these names; scores.csv is the first.
    """
    runs = {name: table[table['method'] == name] for name in atari_ablation.METHODS}
    summary = summary.set_index('method')
    means = scores.by_game(table)
    rows = []
    for name, of_method in runs.items():
        iqm, low, high = summary.loc[name, ['iqm', 'iqm_low', 'iqm_high']]
        text = f'{iqm:.2f}' if np.isnan(low) else interval(iqm, low, high)
        cells = ['–' if np.isnan(mean) else f'{mean:,.1f}' for mean in means[name]]
        rows.append([name, f'{len(of_method)} of {GAMES * SEEDS}', text, *cells])
    games = [game.replace('*', r'\*') for game in means.index]
    found = {
        'runs': f'{len(table)} of {len(runs) * GAMES * SEEDS}',
        'common_games': summary['games'].iloc[0],
        'ablation': markdown(['', 'runs', 'IQM', *games], rows),
    }
    differences = comparisons.set_index(['method', 'over'])
    for key, pair in PAIRS.items():
        of_pair = [runs[name] for name in pair]
        complete = all(len(of_method) == GAMES * SEEDS for of_method in of_pair)
        difference, low, high = differences.loc[
            pair, ['iqm_difference', 'iqm_difference_low', 'iqm_difference_high']
        ]
        if complete:
            found[key] = interval(difference, low, high)
        else:
            found[key] = f'{sum(map(len, of_pair))} of {2 * GAMES * SEEDS} runs'
        found[f'{key}_verdict'] = verdict(low > 0, complete)
    return found


def bonus_over_training(table) -> dict:
    """Whether the mean bonus of OB2I rises and then falls in the small ablation, and its size.

    Args:
      table: sizes.csv of bonus_size.
    """
    runs = [run for _, run in table[table['method'] == 'OB2I'].groupby(['task', 'seed'])]
    peaks = [int(np.argmax(run['reward_bonus_mean'])) for run in runs]
    inside = sum(0 < peak < len(run) - 1 for peak, run in zip(peaks, runs))
    low = stats.binomtest(inside, len(runs)).proportion_ci().low
    last = pd.DataFrame([run.iloc[-1] for run in runs])
    shares = 100 * last['next_over_gap']
    return {
        'peaks': f'{inside} of {len(runs)}',
        'peaks_verdict': verdict(low > 0.5, len(runs) == GAMES * SEEDS),
        'share_of_gap': f'{shares.min():.1f} to {shares.max():.1f}',
        'changes': f'{100 * last["next_action_changes"].max():.2f}',
    }


def mazes(table) -> dict:
    """Methods beside OB2I at the end of training, over mazes.

    Args:
      table: comparison.csv.
    """
    end = table[(table['agent_steps'] == 'end') & (table['wall_density'] == 'all')]
    columns = ['ratio', 'low', 'high']
    training, vote = (
        end[end['played'] == played].set_index('method')[columns] for played in ('training', 'vote')
    )
    texts = {
        f'{name}_{method.lower().replace("-", "_")}': interval(*row)
        for name, of_games in (('maze', training), ('vote', vote))
        for method, row in of_games.iterrows()
    }
    return texts | {
        'maze_verdict': verdict((training['low'] > 1).all()),
        'maze_ids_verdict': verdict(training['high']['BEBU-IDS'] < 1),
    }


def theorem(errors) -> dict:
    """How fast the error of the ensemble's spread falls.

    Args:
      errors: errors.csv of theorem_1.
    """
    wide = errors.pivot(index='num_heads', columns='seed', values='relative_error')
    exponents = theorem_1.exponents(wide.index, wide)
    mean = np.mean(exponents)
    low, high = stats.t.interval(0.95, len(exponents) - 1, mean, stats.sem(exponents))
    return {
        'exponent': interval(mean, low, high, '.3f'),
        'theorem_verdict': verdict(low <= -0.5 <= high),
    }


def regression(curves) -> dict:
    """The bonus of figure 1.

    Args:
      curves: curves.csv of figure_1.
    """
    points, gap, beyond = figure_1.mean_bonuses(curves['x'], curves['std']).values()
    return {
        'bonus_points': f'{points:.2f}',
        'bonus_beyond': f'{beyond:.2f}',
        'beyond_verdict': verdict(beyond > 2 * points),
        'bonus_gap': f'{gap:.2f}',
        'gap_verdict': verdict(gap > 2 * points),
    }


def regret(table) -> dict:
    """OB2I beside LSVI-UCB at the end of the river swim.

    Args:
      table: regret.csv.
    """
    ends = table[table['episode'] == table['episode'].max()].set_index('method')['regret']
    regrets = ratio(ends['OB2I'], ends['LSVI-UCB'])
    return {'regret': interval(*regrets), 'regret_verdict': verdict(regrets[2] < 1)}


def deep_sea(solved, variants, bonus) -> dict:
    """Episodes until size 30 is solved, acting by the upper bound, and the bonus over training.

    Args:
      solved, variants, bonus: deep_sea.csv, variants.csv and bonus.csv.
    """

    def episodes(table, method, size=30):
        chosen = table[(table['method'] == method) & (table['size'] == size)]
        return chosen['episodes'].where(chosen['solved'])

    def variant(binding):
        return variants[variants['variant'] == binding]

    def listed(values):
        return ', '.join('no' if np.isnan(value) else f'{value:,.0f}' for value in values)

    ob2i, bebu = episodes(solved, 'ob2i'), episodes(solved, 'bebu')
    without = episodes(variant('UcbBonus.normalize_next_bonus = False'), 'ob2i')
    by_bonus, by_normaliser = ratio(ob2i, bebu), ratio(ob2i, without)
    ucb = episodes(variant('ucb_preferences.scale = 10.0'), 'bebu_ucb', 20).notna()
    ucb_paper = episodes(solved, 'bebu_ucb', 10).notna()
    released = variant("EpisodicUpdate.greedy = 'released'")
    of_seeds = bonus[bonus['normalize_next_bonus']].groupby('seed')['bonus_mean']
    first, last = of_seeds.first(), of_seeds.last()
    return {
        'sea_bonus': interval(*by_bonus),
        'sea_bonus_verdict': verdict(by_bonus[2] < 1),
        'sea_normaliser': interval(*by_normaliser),
        'normaliser_verdict': verdict(by_normaliser[2] < 1),
        'ucb_solved': f'{ucb.sum()} of {len(ucb)}',
        'ucb_paper_solved': f'{ucb_paper.sum()} of {len(ucb_paper)}',
        'deep_verdict': verdict(not ucb.any()),
        'sea_ob2i': listed(ob2i),
        'sea_ob2i_released': listed(episodes(released, 'ob2i')),
        'sea_bebu': listed(bebu),
        'sea_bebu_released': listed(episodes(released, 'bebu')),
        'sea_bonus_first': f'{first.mean():.3f}',
        'sea_bonus_last': f'{last.mean():.3f}',
    }


def cost(rows, runs) -> dict:
    """Speed of OB2I beside other methods.

    Args:
      rows, runs: rows.csv and speed/runs.csv, by method.
    """
    acting, learning = rows['acting_ms'], 'learning_agent_steps_per_second'
    ratios = {
        method: [table[learning]['ob2i'] / table[learning][method] for table in tables]
        for method, tables in {
            'bebu_ucb': (rows, runs),
            'bebu_ids': (rows,),
            'bootdqn': (rows, runs),
        }.items()
    }
    found = {f'speed_{name}': ' and '.join(f'{x:.2f}' for x in of) for name, of in ratios.items()}
    return found | {
        'acting_ob2i': acting['ob2i'],
        'acting_bebu_ucb': acting['bebu_ucb'],
        'acting_bebu_ids': acting['bebu_ids'],
        'speed_verdict': verdict(min(ratios['bebu_ucb'] + ratios['bebu_ids']) > SPREAD),
        'simplicity_verdict': verdict(min(ratios['bootdqn']) > 1 / SPREAD),
    }


def outlook(speed, acting_ms, emulator_ms, training) -> dict:
    """Time that the missing runs take.

    Args:
      speed: Agent steps per second of OB2I at the paper's sizes, while it learns.
      acting_ms: Time of an agent step by all heads, without the emulator.
      emulator_ms: Time of the emulator's part of an agent step.
      training: Tables train.csv of the runs of the small ablation.
    """
    evaluation_hours = EVALUATION_STEPS * (acting_ms + emulator_ms) / 3.6e6
    hours = AGENT_STEPS / speed / 3600 + evaluation_hours
    least = (AGENT_STEPS + EVALUATION_STEPS) * emulator_ms / 3.6e6
    small = np.mean(
        [
            (np.diff(run['agent_steps'], prepend=0) / run['agent_steps_per_second']).sum() / 3600
            for run in training
        ]
    )
    left = len(atari_ablation.METHODS) * GAMES * SEEDS - len(training)

    def core_hours(runs):
        return f'{float(f"{2 * runs * hours:.2g}"):,.0f}'

    return {
        'learning_hours': f'{AGENT_STEPS / speed / 3600:.1f}',
        'evaluation_hours': f'{evaluation_hours:.1f}',
        'core_hours_1': core_hours(1),
        'core_hours_5': core_hours(5),
        'core_hours_15': core_hours(15),
        'core_hours_45': core_hours(ABLATION_RUNS),
        'core_hours_490': core_hours(COMPARED_RUNS // 2),
        'core_hours_980': core_hours(COMPARED_RUNS),
        'speed': speed,
        'act_ms': f'{acting_ms + emulator_ms:.2f}',
        'emulator_ms': emulator_ms,
        'full_per_day': f'{24 / hours:.2f}',
        'small_hours': f'{small:.2f}',
        'small_left': left,
        'small_left_days': f'{left * small / 48:.1f}',
        'gpu_hours': f'{least:.1f}',
        'gpu_per_day': f'{24 / least:.0f}',
        'cpu_ablation_days': f'{ABLATION_RUNS * hours / 24:.0f}',
        'gpu_ablation_days': f'{ABLATION_RUNS * least / 24:.1f}',
        'gpu_table_1_days': f'{COMPARED_RUNS * least / 24:.0f}',
    }


def runs_table(rows) -> str:
    """Markdown table of all runs.

    Args:
      rows: runs.csv.
    """
    lines = ['| study | methods | seeds | commit | machine |', '|---|---|---|---|---|']
    for row in rows.itertuples():
        lines.append(
            f'| [{row.study}]({row.folder}) | {row.methods} | {row.seeds} | {row.commit} '
            f'| {row.machine} |'
        )
    return '\n'.join(lines)


def numbers() -> dict:
    """All names in the template with their numbers and tables."""

    def by_method(path):
        table = pd.read_csv(path)
        return table.set_index(table['gin_file'].str.removesuffix('_atari.gin'))

    def read(study, name):
        return pd.read_csv(EXPERIMENTS / study / f'{name}.csv')

    rows, runs = by_method(RESULTS / 'rows.csv'), by_method(RESULTS / 'speed' / 'runs.csv')
    parts = pd.read_csv(RESULTS / 'speed' / 'parts.csv', index_col='part')['float32_ms']
    quantities = read('released_code', 'differences')['verdict']
    return {
        **published(),
        **ablation(
            *(read('atari_ablation', name) for name in ('scores', 'summary', 'comparisons'))
        ),
        **bonus_over_training(read('bonus_size', 'sizes')),
        **mazes(read('mnist_maze/first_comparison', 'comparison')),
        **theorem(read('theorem_1', 'errors')),
        **regression(read('figure_1', 'curves')),
        **regret(read('regret', 'regret')),
        **deep_sea(*(read('deep_sea', name) for name in ('deep_sea', 'variants', 'bonus'))),
        **cost(rows, runs),
        **outlook(
            runs['learning_agent_steps_per_second']['ob2i'],
            parts['act, 1 environment: all heads, UCB'],
            parts['one step of 1 / 8 environments alone'],
            [pd.read_csv(path) for path in atari_ablation.HERE.glob('*/*/seed*/train.csv')],
        ),
        'quantities': len(quantities),
        'quantities_equal': int((quantities == 'equal to rounding').sum()),
        'all_runs': runs_table(pd.read_csv(HERE / 'runs.csv')),
    }


def report() -> str:
    return (HERE / 'report.md.in').read_text(encoding='utf-8').format_map(numbers())


@cli.command()
def main(argv=None):
    """Runs the command line; returns the exit status."""
    parser = cli.parser('experiments.reproduction', __doc__)
    parser.add_argument('--check', action='store_true', help='compare instead of writing')
    check = parser.parse_args(argv).check
    text = report()
    if not check:
        REPORT.write_text(text, encoding='utf-8')
        return 0
    lines = [each.splitlines(keepends=True) for each in (REPORT.read_text('utf-8'), text)]
    difference = list(difflib.unified_diff(*lines, REPORT.name, 'computed'))
    sys.stdout.writelines(difference)
    return int(bool(difference))


if __name__ == '__main__':
    sys.exit(main())
