"""The study of Deep Sea: when a sea counts as solved, and how its sweeps continue."""

import re
import signal

import pytest

from experiments.deep_sea import __main__ as deep_sea
from ob2i_tf import sweep


def test_deep_sea_is_solved_when_more_than_a_tenth_of_all_episodes_found_the_treasure():
    miss, find = -0.01, 0.99
    assert deep_sea.solved_at([find]) == 1
    assert deep_sea.solved_at([miss] * 9 + [find]) is None  # Not below 0.9.
    assert deep_sea.solved_at([miss] * 8 + [find]) == 9
    assert deep_sea.solved_at([miss] * 10 + [find, miss]) is None
    assert deep_sea.solved_at([miss] * 30 + [find] * 5) == 34  # 3 of 33 are too few.
    assert deep_sea.solved_at([0.0] * 20_000 + [find] * 20_000) is None
    assert deep_sea.solved_at([miss] * 9_000 + [find] * 999 + [miss]) is None
    assert deep_sea.solved_at([miss] * 8_999 + [find] * 1_001) == 9_999


def write_episodes(base_dir, size, method, seed, scores):
    folder = base_dir / f'size{size}' / f'{method}_deep_sea' / f'seed{seed}'
    folder.mkdir(parents=True)
    rows = ''.join(f'{n},{score},{size}\n' for n, score in enumerate(scores))
    (folder / 'episodes.csv').write_text('frames,score,length\n' + rows)


def test_deep_sea_goes_on_where_half_of_the_seeds_solved(tmp_path, monkeypatch, capsys):
    """Finished runs are not run again; a run that fails is named and does not stop the others."""
    runs, out = tmp_path / 'runs', tmp_path / 'table.csv'
    solved, failed = [-0.01] * 8 + [0.99], [-0.01] * deep_sea.EPISODES
    for method, of_seeds in (('ob2i', [solved, failed]), ('bebu', [failed, failed])):
        for seed, scores in enumerate(of_seeds):
            write_episodes(runs, 10, method, seed, scores)
    attempts = []

    def attempt(arguments, base_dir, *_):
        attempts.append(base_dir)
        if base_dir.endswith('seed1'):
            return 3
        write_episodes(runs, 20, 'ob2i', 0, [0.99])
        return -15  # Stopped, as it has solved its size.

    monkeypatch.setattr(sweep, 'attempt', attempt)
    monkeypatch.setattr(signal, 'signal', lambda *_: None)
    command = [
        '--methods',
        'ob2i',
        'bebu',
        '--sizes',
        '10',
        '20',
        '30',
        '--seeds=2',
        f'--base_dir={runs}',
        f'--out={out}',
        '--gin_bindings=Agent.train_period = 4',
    ]
    assert deep_sea.main([*command, '--gin_bindings=make_deep_sea.mapping_seed = 42']) == 1
    of_size_20 = runs.resolve() / 'size20' / 'ob2i_deep_sea'
    assert sorted(attempts) == [f'{of_size_20}/seed0', *[f'{of_size_20}/seed1'] * 2]
    assert out.read_text().splitlines() == [
        'method,size,seed,solved,episodes,found',
        'ob2i,10,0,True,9,1',
        'ob2i,10,1,False,10000,0',
        'ob2i,20,0,True,1,1',
        'bebu,10,0,False,10000,0',
        'bebu,10,1,False,10000,0',
    ]
    assert {path.suffix for path in tmp_path.glob('table.*')} == {'.csv', '.png', '.svg', '.pdf'}
    printed = capsys.readouterr()
    assert 'seed1: FAILED (3)' in printed.out and 'not complete' in printed.err


@pytest.mark.parametrize(
    'binding, what',
    [
        ('Runner.num_iterations = 3', 'Runner.num_iterations is 100 here, not 3'),
        ('make_deep_sea.size = 20', 'make_deep_sea.size is 10 here, not 20'),
        ('Runner.num_envs = 8', 'Runner.num_envs is 1 here, not 8'),
        ('Agent.trainperiod = 4', 'trainperiod'),
    ],
)
def test_a_wrong_binding_of_deep_sea_leaves_the_table_alone(tmp_path, capsys, binding, what):
    out = tmp_path / 'table.csv'
    out.write_text('old\n')
    command = ['--methods=ebu', '--sizes=10', f'--base_dir={tmp_path / "runs"}', f'--out={out}']
    assert deep_sea.main([*command, f'--gin_bindings={binding}']) == 2
    assert what in capsys.readouterr().err and out.read_text() == 'old\n'


def test_the_mean_of_deep_sea_ends_where_a_seed_fails():
    rows = [('ob2i', size, seed, True, 100 * size, 9) for size in (10, 20) for seed in (0, 1)]
    rows += [('ob2i', 30, 0, True, 5000, 9), ('ob2i', 30, 1, False, 10000, 0)]
    svg = deep_sea.figure(rows).svg
    mean = re.search(r'<path d="([^"]*)"[^>]*stroke: #0072b2; stroke-width: 1.6', svg)[1]
    assert len(re.findall('[ML]', mean)) == 2  # Sizes 10 and 20.
    assert '>one seed</text>' in svg and '>one seed, not solved</text>' in svg
