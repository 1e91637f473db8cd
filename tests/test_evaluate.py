"""Games of a checkpoint of a real run."""

import csv

import pytest
from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

from ob2i_tf import evaluate
from ob2i_tf.analysis import episode
from ob2i_tf.training import main

BINDINGS = (
    'Runner.num_iterations = 1',
    'Runner.training_steps = 60',
    'Runner.evaluation_steps = 60',
    'Agent.learning_starts = 1000',
    'MultiHeadQNetwork.num_heads = 3',
    'MultiHeadQNetwork.hidden_units = 8',
    'make_mnist_maze.max_episode_steps = 25',
)


pytestmark = pytest.mark.usefixtures('clean_gin')


@pytest.fixture(scope='module')
def runs(tmp_path_factory):
    folder = tmp_path_factory.mktemp('runs')
    for seed in (0, 1):
        status = main.main(
            [
                'run_experiment.py',
                '--gin_files=bebu_mnist_maze.gin',
                f'--base_dir={folder}/seed{seed}',
                *(f'--gin_bindings={b}' for b in (*BINDINGS, f'Runner.seed = {seed}')),
            ]
        )
        assert not status
    return folder


def rows_of(path):
    with open(path, newline='') as file:
        return list(csv.DictReader(file))


def test_every_run_plays_by_every_preference(runs, tmp_path, capsys):
    before = {path: path.stat().st_mtime_ns for path in runs.rglob('*')}
    command = [str(runs), '--preferences=vote,head', '--games=3', f'--out={tmp_path}/games.csv']
    assert evaluate.main(command) == 0
    *printed, last = capsys.readouterr().out.splitlines()
    rows = rows_of(tmp_path / 'games.csv')
    means = [sum(float(row['score']) for row in rows[i : i + 3]) / 3 for i in (0, 3, 6, 9)]
    assert last == f'{tmp_path}/games.csv'
    assert printed == [
        f'{runs}/seed{i // 2}, {("vote", "head")[i % 2]}: mean score {mean:g}, games 3'
        for i, mean in enumerate(means)
    ]
    assert list(rows[0]) == list(evaluate.COLUMNS)
    assert [(row['preferences'], row['game']) for row in rows] == [
        (name, str(game)) for name in ('vote', 'head') for game in range(3)
    ] * 2
    assert [row['run'][-5:] for row in rows] == ['seed0'] * 6 + ['seed1'] * 6
    assert {row['agent_steps'] for row in rows} == {'60'}
    for row in rows:  # 25 steps without the goal, each of them a bump or not.
        assert row['length'] == '25' and -25 <= float(row['score']) <= 0
    scores = {
        name: [r['score'] for r in rows if r['preferences'] == name] for name in ('vote', 'head')
    }
    assert scores['vote'] != scores['head']  # The same games, other actions.
    assert {path: path.stat().st_mtime_ns for path in runs.rglob('*')} == before
    assert evaluate.main([*command[:-1], f'--out={tmp_path}/again.csv']) == 0
    assert rows_of(tmp_path / 'again.csv') == rows


def test_what_cannot_be_played_is_named(runs, tmp_path, capsys):
    out = f'--out={tmp_path}/games.csv'
    assert evaluate.main([str(tmp_path / 'nowhere'), out]) == 1
    assert 'no run folder at or below' in capsys.readouterr().err
    broken = tmp_path / 'broken'
    broken.mkdir()
    (broken / 'config.gin').write_text((runs / 'seed0' / 'config.gin').read_text())
    assert evaluate.main([str(broken), str(runs / 'seed0'), '--games=1', out]) == 1
    assert f'error: {broken}: no checkpoint in {broken}/checkpoints\n' in capsys.readouterr().err
    (broken / 'checkpoints' / 'best').mkdir(parents=True)
    assert evaluate.main([str(broken), '--games=1', out]) == 1
    assert '/checkpoints, only best: a checkpoint is named by' in capsys.readouterr().err
    assert len(rows_of(tmp_path / 'games.csv')) == 1
    assert evaluate.main([str(broken), '--games=1', out]) == 1
    assert len(rows_of(tmp_path / 'games.csv')) == 1  # As it was: nothing was played.
    assert {path.name for path in tmp_path.iterdir()} == {'broken', 'games.csv'}
    with pytest.raises(SystemExit) as ended:
        evaluate.main([str(runs), '--preferences=best', out])
    assert ended.value.code == 2


def test_a_way_of_acting_that_a_run_cannot_take_is_named(runs, tmp_path, capsys):
    bindings = (
        'Runner.num_iterations = 1',
        'Runner.training_steps = 20',
        'Runner.evaluation_steps = 0',
        'Agent.learning_starts = 1000',
        'MultiHeadQNetwork.hidden_units = 8',
        'make_atari.max_episode_frames = 24',
        'EpisodeReplay.capacity_transitions = 1000',
    )
    assert not main.main(
        [
            'run_experiment.py',
            '--gin_files=ebu_adaptive_atari.gin',
            f'--base_dir={tmp_path}/run',
            *(f'--gin_bindings={binding}' for binding in bindings),
        ]
    )
    capsys.readouterr()
    out = tmp_path / 'games.csv'
    command = [f'{tmp_path}/run', str(runs / 'seed0'), '--games=1', f'--out={out}']
    assert evaluate.main([*command, '--preferences=vote,head']) == 1
    assert 'run: AdaptivePosterior requires a preference that follows' in capsys.readouterr().err
    assert [row['preferences'] for row in rows_of(out)] == ['head', 'vote', 'head']


def test_a_maze_logs_its_relative_lengths(runs):
    events = EventAccumulator(str(runs / 'seed0' / 'tensorboard')).Reload()
    for name in ('train', 'eval'):  # Episodes of 25 steps; the shortest path is 18.
        (event,) = events.Scalars(f'{name}/relative_length')
        assert event.value == pytest.approx(25 / 18)


def test_lsvi_plays_by_its_regression(tmp_path):
    command = ['--gin_files=lsvi_ucb_linear_mdp.gin', f'--base_dir={tmp_path}/run']
    bindings = (
        'Runner.num_iterations = 1',
        'Runner.training_steps = 1000',
        'horizon = 5',
        'make_linear_mdp.num_states = 2',
    )
    command += [f'--gin_bindings={binding}' for binding in bindings]
    assert not main.main(['run_experiment.py', *command])
    out = tmp_path / 'games.csv'
    assert (
        evaluate.main(
            [f'{tmp_path}/run', '--games=50', '--epsilon=0', f'--out={out}', '--preferences=mean']
        )
        == 0
    )
    rows = rows_of(out)
    assert {row['length'] for row in rows} == {'5'}
    # The best policy swims to the right: 2.40 rewards; one that never does has 0.03.
    assert sum(float(row['score']) for row in rows) / 50 > 1.8


OWN = """
import gin
import tensorflow as tf

from ob2i_tf import networks, posteriors
from ob2i_tf.environments.deep_sea import make_deep_sea


@gin.configurable
def own_sea(num_envs, seed):
    return make_deep_sea('DeepSea', num_envs, seed, size=3)


@gin.configurable(denylist=['seed', 'prior_seed'])
class OwnQNetwork(networks.QNetwork):
    def __init__(self, num_actions, seed, prior_seed, num_heads: int = 2):
        super().__init__()
        self.num_actions, self.num_heads = num_actions, num_heads
        self.dense = tf.keras.layers.Dense(num_heads * num_actions)

    def call(self, observations, seed=None):
        flat = tf.reshape(tf.cast(observations, tf.float32) / 255, (-1, 9))
        return tf.reshape(self.dense(flat), (-1, self.num_heads, self.num_actions))


@gin.configurable(denylist=['seed'])
class NanPosterior(posteriors.Posterior):
    def mean(self, observations):
        return float('nan') * self.network(observations)
"""


def train_own(folder, monkeypatch, *bindings):
    """Trains in the run folder that is the default; returns it."""
    (folder / 'own.py').write_text(OWN)
    monkeypatch.syspath_prepend(folder)
    monkeypatch.chdir(folder)
    bindings = (
        'import own',
        'Runner.environment = @own_sea',
        'Runner.network = @OwnQNetwork',
        'Runner.num_iterations = 1',
        'Runner.training_steps = 30',
        'Agent.learning_starts = 9',
        'Agent.train_period = 3',
        *bindings,
    )
    argv = ['run_experiment.py', '--gin_files=bebu_deep_sea.gin']
    assert not main.main([*argv, *(f'--gin_bindings={binding}' for binding in bindings)])
    return folder / 'runs' / 'bebu_deep_sea' / 'own_sea' / 'seed0'


def test_parts_of_ones_own_that_give_the_least_play_too(tmp_path, monkeypatch):
    """Factories get the same arguments as in a run; the network has the default methods."""
    run = train_own(tmp_path, monkeypatch)
    (row,) = rows_of(run / 'train.csv')
    assert int(row['learner_steps']) == 7 and float(row['loss']) > 0
    out = tmp_path / 'games.csv'
    command = [str(run), '--games=2', f'--out={out}', '--allow_imports=own']
    assert evaluate.main([*command, '--preferences=vote,head,mean']) == 0
    assert [row['length'] for row in rows_of(out)] == ['3'] * 6
    assert episode.record(run, allow_imports=['own']).title.startswith('own_sea, ')


def test_a_run_whose_games_cannot_be_played_does_not_keep_others_from_it(
    runs, tmp_path, monkeypatch, capsys
):
    bindings = ('Runner.posterior = @NanPosterior', 'Runner.evaluation_steps = 0')
    nan = train_own(tmp_path, monkeypatch, *bindings)
    capsys.readouterr()
    out = tmp_path / 'games.csv'
    command = [str(nan), str(runs / 'seed0'), '--games=1', f'--out={out}']
    assert (
        evaluate.main([*command, '--preferences=mean', '--epsilon=0', '--allow_imports=own']) == 1
    )
    (line,) = capsys.readouterr().err.splitlines()
    assert line.startswith(
        f'error: {nan}: preferences = @mean_preferences with Runner.posterior = '
    )
    assert '@NanPosterior gives NaN' in line
    assert [row['run'] for row in rows_of(out)] == [str(runs / 'seed0')]


def test_a_negative_seed_is_refused(tmp_path, capsys):
    with pytest.raises(SystemExit) as stopped:
        evaluate.main([str(tmp_path), '--seed=-1', f'--out={tmp_path}/games.csv'])
    assert stopped.value.code == 2
    assert "must be an integer >= 0, got '-1'" in capsys.readouterr().err


def test_a_folder_as_the_file_to_write_is_refused_before_anything_is_played(tmp_path, capsys):
    with pytest.raises(SystemExit) as ended:
        evaluate.main([str(tmp_path), f'--out={tmp_path}'])
    assert ended.value.code == 2 and f'--out={tmp_path} is a folder' in capsys.readouterr().err
