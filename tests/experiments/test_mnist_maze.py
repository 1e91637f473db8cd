"""The study of the MNIST maze: its measures by hand, and its tables on short runs."""

import csv
import shutil

import gin
import numpy as np
import pandas as pd
import pytest
from scipy import stats

import ob2i_tf
from experiments.mnist_maze import __main__ as mazes

LIMIT, STEPS, EVALUATION_STEPS, ITERATIONS = 300, 600, 580, 4
TINY = {
    'Runner.num_iterations': ITERATIONS,
    'Runner.training_steps': STEPS,
    'Runner.evaluation_steps': EVALUATION_STEPS,
    'Runner.evaluation_epsilon': 1.0,
    'Agent.learning_starts': STEPS,
    'EpisodicUpdate.batch_size': 16,
    'MultiHeadQNetwork.conv_layers': ((4, 4, 4),),
    'MultiHeadQNetwork.hidden_units': 8,
    'quadratic.steps': 2 * ITERATIONS * STEPS,
    'make_mnist_maze.max_episode_steps': LIMIT,
    'make_mnist_maze.wall_density': 0.0,
}


def rows(path):
    with open(path, newline='') as file:
        return list(csv.DictReader(file))


@pytest.fixture(scope='module')
def runs(tmp_path_factory):
    """Two seeds of OB2I and one of BEBU, on a maze without walls; another run is not complete."""
    gin.clear_config()
    folder = tmp_path_factory.mktemp('mazes') / 'runs'
    for method, seed in (('ob2i', 0), ('ob2i', 1), ('bebu', 1)):
        bindings = {**TINY, 'Runner.seed': seed}
        if method == 'ob2i':
            bindings |= {'EpisodicUpdate.alpha_1': 3.0, 'EpisodicUpdate.alpha_2': 0.5}
        ob2i_tf.train(
            f'{method}_mnist_maze.gin', bindings, folder / 'tiny' / method / f'seed{seed}'
        )
    cut = folder / 'tiny' / 'bebu' / 'seed0'
    shutil.copytree(folder / 'tiny' / 'bebu' / 'seed1', cut)
    config = (cut / 'config.gin').read_text()
    (cut / 'config.gin').write_text(config.replace('Runner.seed = 1', 'Runner.seed = 0'))
    for name in ('train', 'eval'):
        path = cut / f'{name}.csv'
        path.write_text(''.join(path.read_text().splitlines(keepends=True)[:-1]))
    return folder


@pytest.fixture(scope='module')
def written(runs, tmp_path_factory):
    out = tmp_path_factory.mktemp('out')
    assert mazes.main([str(runs), '--out', str(out)]) == 0
    return out


def test_the_command_writes_tables_and_a_figure_of_complete_runs(written):
    tables = {f'{name}.csv' for name in ('curves', 'areas', 'comparison', 'noise')}
    pictures = {f'curves.{suffix}' for suffix in ('png', 'svg', 'pdf')}
    assert {path.name for path in written.iterdir()} == tables | pictures
    svg = (written / 'curves.svg').read_text()
    assert '>tiny, training</text>' in svg and '>tiny, vote</text>' in svg
    found = {(row['method'], row['seed']) for row in rows(written / 'areas.csv')}
    assert found == {('OB2I', '0'), ('OB2I', '1'), ('BEBU', '1')}
    (pair,) = {
        tuple(row[x] for x in ('mazes', 'seeds', 'pairs'))
        for row in rows(written / 'comparison.csv')
    }
    assert pair == ('1', '1', '1')


def test_a_curve_has_the_mean_of_each_iteration(runs, written):
    """Games of an evaluation count if they started early enough to end in any case."""
    shortest, late, expected = 18, 0, {}
    for method, seed in (('OB2I', '0'), ('OB2I', '1'), ('BEBU', '1')):
        folder, lengths = runs / 'tiny' / method.lower() / f'seed{seed}', {}
        for row in rows(folder / 'episodes.csv'):
            iteration = (int(row['frames']) - 1) // STEPS
            lengths.setdefault(('training', iteration), []).append(int(row['length']))
        for iteration in range(ITERATIONS):
            start = 0
            for row in rows(folder / 'eval_episodes.csv'):
                if int(row['iteration']) == iteration:
                    if start <= EVALUATION_STEPS - LIMIT:
                        lengths.setdefault(('vote', iteration), []).append(int(row['length']))
                    else:
                        late += 1
                    start += int(row['length'])
        for (played, iteration), games in lengths.items():
            key = (played, method, seed, STEPS * (iteration + 1))
            expected[key] = sum(games) / len(games) / shortest
    assert late and len(set(expected.values())) > 5
    found = {
        (*(row[x] for x in ('played', 'method', 'seed')), int(row['agent_steps'])): float(
            row['relative_length']
        )
        for row in rows(written / 'curves.csv')
    }
    assert found == pytest.approx(expected, rel=1e-3)


def test_the_tables_in_the_repository_are_those_of_its_runs(tmp_path):
    assert mazes.main(['--out', str(tmp_path)]) == 0
    for path in tmp_path.glob('*.csv'):
        pd.testing.assert_frame_equal(
            pd.read_csv(path), pd.read_csv(mazes.RUNS.parent / path.name), rtol=2e-3
        )
    count = len(list(mazes.RUNS.rglob('config.gin')))
    assert f' {count} of 51 runs' in (mazes.RUNS.parent / 'README.md').read_text()


def test_without_a_complete_run_there_is_nothing_to_write(runs, tmp_path, capsys):
    shutil.copytree(runs / 'tiny' / 'bebu' / 'seed0', tmp_path / 'runs' / 'tiny' / 'seed0')
    assert mazes.main([str(tmp_path / 'runs'), '--out', str(tmp_path / 'out')]) == 1
    said = capsys.readouterr().err
    assert 'no complete run' in said and 'cut short: 1,800 of 2,400' in said
    assert not (tmp_path / 'out').exists()


def curve(method, lengths, maze=0, seed=0, played='vote'):
    columns = {'agent_steps': range(10, 10 * len(lengths) + 1, 10), 'relative_length': lengths}
    keys = dict(zip(mazes.CURVE, ('paper', played, method, 0.4, maze, seed)))
    return pd.DataFrame({**keys, **columns})


def test_an_area_is_the_geometric_mean_without_the_first_iteration():
    ob2i, bebu = curve('OB2I', [50, 4, 1, 2, 2, 4]), curve('BEBU', [50, 8, 2, 2, 1, 1])
    table = mazes.areas(pd.concat([ob2i, bebu])).set_index(['method', 'first', 'last'])
    assert table['area'].to_dict() == pytest.approx(
        {
            ('OB2I', 20, 30): 2,
            ('OB2I', 40, 60): 16 ** (1 / 3),
            ('OB2I', 20, 60): 64 ** (1 / 5),
            ('BEBU', 20, 30): 4,
            ('BEBU', 40, 60): 2 ** (1 / 3),
            ('BEBU', 20, 60): 32 ** (1 / 5),
        }
    )
    ratios = table['over_ob2i'].xs('BEBU')
    assert ratios.to_dict() == pytest.approx({(20, 30): 2, (40, 60): 0.5, (20, 60): 2 ** (-1 / 5)})


def areas(**of_methods):
    """Areas of {method: {(maze, seed): area}}."""
    return mazes.areas(
        pd.concat(
            curve(method, [9.0, area, area, area], maze, seed)
            for method, of_runs in of_methods.items()
            for (maze, seed), area in of_runs.items()
        )
    )


def test_methods_are_compared_on_the_same_maze_with_the_same_seed():
    table = areas(
        OB2I={(0, 0): 2.0, (0, 1): 3.0, (1, 0): 5.0, (1, 2): 100.0},
        BEBU={(0, 0): 4.0, (0, 1): 24.0, (1, 0): 20.0, (1, 1): 700.0},
    )
    alone = table[(table['method'] == 'BEBU') & table['over_ob2i'].isna()]
    assert len(alone) == 3 and set(alone['maze_seed']) == set(alone['seed']) == {1}
    found = mazes.comparison(table)
    assert list(found['method']) == ['BEBU'] * 3
    for row in found.to_dict('records'):  # The three periods have the same areas.
        assert (row['mazes'], row['seeds'], row['pairs']) == (2, 2, 3)
        assert row['ratio'] == pytest.approx(4)  # Of 2, 8 and 4.
        assert 0 < row['low'] < 2 and row['high'] > 8


def test_the_interval_of_one_pair_is_unknown():
    (row, *_) = mazes.comparison(areas(OB2I={(0, 0): 2.0}, BEBU={(0, 0): 6.0})).to_dict('records')
    assert row['ratio'] == pytest.approx(3) and np.isnan(row['low']) and np.isnan(row['high'])


def test_one_maze_or_one_seed_has_the_interval_of_student():
    half = 4.302653 * 1 / np.sqrt(3)  # t of 2 degrees of freedom, a standard deviation of 1.
    for values in (np.array([[1.0, 2.0, 3.0]]), np.array([[1.0], [2.0], [3.0]])):
        assert mazes.crossed_interval(values) == pytest.approx([2 - half, 2 + half])


def test_variances_over_mazes_and_seeds_add_up():
    values = np.array([[0.0, 1.0, 2.0], [10.0, 11.0, 12.0]])
    # Means over seeds 1 and 11, variance 50; over mazes 5, 6 and 7, variance 1.
    of_mazes, of_seeds = 50 / 2, 1 / 3
    freedom = (of_mazes + of_seeds) ** 2 / (of_mazes**2 / 1 + of_seeds**2 / 2)
    half = stats.t.ppf(0.975, freedom) * np.sqrt(of_mazes + of_seeds)
    assert mazes.crossed_interval(values) == pytest.approx([6 - half, 6 + half])


def test_the_interval_covers_the_mean_of_all_mazes_and_seeds():
    rng = np.random.default_rng(1)
    covered = 0
    for _ in range(1000):
        values = rng.standard_normal((5, 1)) + 0.5 * rng.standard_normal((1, 3))
        low, high = mazes.crossed_interval(values + 0.2 * rng.standard_normal((5, 3)))
        covered += low < 0 < high
    assert 0.93 < covered / 1000 < 0.98


def test_equal_values_have_an_interval_without_width():
    assert list(mazes.crossed_interval(np.ones((2, 2)))) == [1, 1]


def test_noise_is_the_deviation_over_seeds_of_one_maze():
    table = mazes.noise(
        areas(
            OB2I={(0, 0): 1.0, (0, 1): np.e, (0, 2): np.e**2, (1, 0): 7.0},
            BEBU={(0, 0): np.e, (0, 1): np.e**4, (1, 0): 7.0},
        )
    )
    table = table[table['last'] == 20].set_index('method')
    assert list(table['maze_seed']) == [0, 0]  # The other has one seed.
    assert table['seeds'].to_dict() == {'BEBU': 2, 'OB2I': 3}
    assert table['area'].to_dict() == pytest.approx({'BEBU': 3 / np.sqrt(2), 'OB2I': 1})
    assert table['over_ob2i'].to_dict() == pytest.approx({'BEBU': 2 / np.sqrt(2), 'OB2I': 0})
