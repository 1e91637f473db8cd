"""Regret of made-up runs on a linear MDP whose optimum is known by hand."""

import numpy as np
import pandas as pd
import pytest

from ob2i_tf.analysis import load, regret
from ob2i_tf.environments import linear_mdp

MDP = {'kind': 'tabular', 'num_states': 3, 'num_actions': 2, 'horizon': 4, 'num_features': 5,
       'mdp_seed': 1}  # fmt: skip
BEST = linear_mdp.draw_mdp(*MDP.values()).optimal_return


def write_run(base, name, seed, scores, lengths=None):
    folder = base / name / 'LinearMDP' / f'seed{seed}'
    folder.mkdir(parents=True)
    bindings = {f'make_linear_mdp.{key}': repr(value) for key, value in MDP.items()}
    bindings |= {'make_environment.name': "'LinearMDP'", 'Runner.seed': seed}
    (folder / 'config.gin').write_text(''.join(f'{k} = {v}\n' for k, v in bindings.items()))
    lengths = [4] * len(scores) if lengths is None else lengths
    rows = [f'{4 * (i + 1)},{s},{n}\n' for i, (s, n) in enumerate(zip(scores, lengths))]
    (folder / 'episodes.csv').write_text('frames,score,length\n' + ''.join(rows))
    for table in ('train', 'eval'):
        (folder / f'{table}.csv').write_text('iteration,frames\n')
    return folder


def test_regret_is_what_the_best_policy_would_have_had_more(tmp_path):
    write_run(tmp_path, 'mine', 0, [1.0, 0.0, 2.0, 1.0], lengths=[4, 2, 4, 4])
    (run,) = load.load([tmp_path]).runs
    np.testing.assert_allclose(
        regret.of_run(run, []), [BEST - 1, 2 * BEST - 3, 3 * BEST - 4]
    )  # fmt: skip


def test_evaluations_are_missed_only_where_there_should_be_some(tmp_path):
    config = write_run(tmp_path, 'mine', 0, [1.0, 0.0]) / 'config.gin'
    assert any('eval.csv holds no row' in problem for problem in load.load([tmp_path]).problems)
    config.write_text(config.read_text() + 'Runner.evaluation_steps = 0\n')
    assert not any('eval.csv' in problem for problem in load.load([tmp_path]).problems)


def test_the_exponent_tells_learning_from_not_learning(tmp_path):
    episodes = np.arange(1, 2001)
    grows = 3 * np.sqrt(episodes)
    root = BEST - np.diff(grows, prepend=0.0)
    for seed in (0, 1):
        write_run(tmp_path, 'learns', seed, root)
        write_run(tmp_path, 'never', seed, [BEST - 0.5] * 2000)
    table = regret.curves(load.load([tmp_path]))
    assert list(table.index[[0, -1]]) == [1, 2000] and len(table) == regret.POINTS
    rows = regret.summary(table).set_index('method')
    assert rows.loc['learns', 'exponent'] == pytest.approx(0.5, abs=1e-3)
    assert rows.loc['never', 'exponent'] == pytest.approx(1, abs=1e-3)
    assert rows.loc['never', 'regret'] == pytest.approx(1000, rel=1e-6)
    assert list(rows['seeds']) == [2, 2]


def test_the_command_writes_its_files(tmp_path, capsys):
    for name in ('lsvi_ucb', 'ob2i'):
        for seed in (0, 1):
            write_run(tmp_path / 'runs', name, seed, [0.0, 1.0] * 60)
    assert regret.main([str(tmp_path / 'runs'), '--out', str(tmp_path / 'out')]) == 0
    names = {path.name for path in (tmp_path / 'out').iterdir()}
    assert names == {'regret.csv', 'summary.csv', 'regret.png', 'regret.svg'}
    long = pd.read_csv(tmp_path / 'out' / 'regret.csv')
    last = long[(long['episode'] == 120) & (long['seed'] == 0)]
    np.testing.assert_allclose(last['regret'], [120 * BEST - 60] * 2, rtol=1e-4)
    capsys.readouterr()
    write_run(tmp_path / 'empty', 'ob2i', 0, [])
    assert regret.main([str(tmp_path / 'empty'), '--out', str(tmp_path / 'out')]) == 1
    assert 'no finished episode' in capsys.readouterr().err
