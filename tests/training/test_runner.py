"""Complete runs with a small network: files, determinism, kill and resume.

Tests of disturbed runs that ask nothing of the environment are on Deep Sea, which takes less time.
"""

import contextlib
import csv
import itertools
import json
import logging as python_logging
import os
import re
import shutil
import signal
import subprocess
import time
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
import tensorflow as tf
from absl import logging
from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

from ob2i_tf import config
from ob2i_tf.agent import Agent
from ob2i_tf.training import build, checkpoints, loop, main, run_folder, run_state
from ob2i_tf.training.run_folder import COLUMNS
from tests.processes import start

ATARI, DEEP_SEA = 'ob2i_atari.gin', 'ob2i_deep_sea.gin'
SHORT = {
    'Runner.num_iterations': 3,
    'Runner.training_steps': 60,
    'Runner.evaluation_steps': 55,
    'MultiHeadQNetwork.num_heads': 3,
    'EpisodeReplay.capacity_transitions': 100,
    'Agent.learning_starts': 30,
    'Agent.target_period': 25,
    'linear.steps': 120,
}
SETTINGS = {
    ATARI: {
        **SHORT,
        'make_atari.max_episode_frames': 100,  # A game ends at the latest after 25 agent steps.
        'MultiHeadQNetwork.hidden_units': 8,
        'MultiHeadQNetwork.conv_layers': '((4, 8, 8),)',
    },
    DEEP_SEA: {
        **SHORT,
        'make_deep_sea.size': 8,  # So that the end of an iteration cuts an episode off.
        'Agent.warmup': "'random'",
        'Agent.train_period': 4,
        'linear.start': 1.0,
        'linear.final': 0.1,
    },
}


def arguments(base_dir, gin_file=DEEP_SEA, **settings):
    given = {name.replace('__', '.'): value for name, value in settings.items()}
    return [
        'run_experiment.py',
        f'--gin_files={gin_file}',
        f'--base_dir={base_dir}',
        *(f'--gin_bindings={n} = {v}' for n, v in {**SETTINGS[gin_file], **given}.items()),
    ]


def run(base_dir, status=0, argv=None, **settings):
    """Runs to the end, in this process; returns the output."""
    output, root = Path(f'{base_dir}.stderr'), python_logging.getLogger()
    handlers, verbosity = root.handlers, logging.get_verbosity()  # Which main sets.
    with (
        open(output, 'w') as file,
        contextlib.redirect_stderr(file),
        config.GinState().entered(),
    ):
        ended = main.main(argv or arguments(base_dir, **settings))
    root.handlers = handlers
    logging.set_verbosity(verbosity)
    assert ended == status, output.read_text()[-3000:]
    return output.read_text()


def run_separately(base_dir, status, largest_file_bytes=None, stop_at=None, **settings):
    """Runs in a process that ends early; returns the output."""
    output = Path(f'{base_dir}.stderr')
    process = start(
        arguments(base_dir, **settings),
        output,
        largest_file_bytes=largest_file_bytes,
        stop_at=stop_at,
    )
    process.join(timeout=300)
    process.kill()
    assert process.exitcode == status, output.read_text()[-3000:]
    return output.read_text()


def _slowly():
    """So that a signal that is sent between two steps meets the run where it is meant to."""
    observe = Agent.observe

    def observe_and_wait(self, *args):
        observe(self, *args)
        time.sleep(0.01)

    Agent.observe = observe_and_wait


def start_and_stop(base_dir, number, when, **settings):
    """Starts a run and sends it a signal as soon as `when()`; returns its exit status."""
    process = start(arguments(base_dir, **settings), before=(_slowly,))
    try:
        deadline = time.monotonic() + 120
        while not when():
            assert process.is_alive(), 'the run ended before it was to be stopped'
            assert time.monotonic() < deadline
            time.sleep(0.005)
        os.kill(process.pid, number)
        process.join(timeout=120)
        return process.exitcode
    finally:
        process.kill()


def rows(base_dir, name):
    """The lines of a CSV file; of train.csv without the last column, which is a speed."""
    lines = (Path(base_dir) / f'{name}.csv').read_text().splitlines()
    return [line.rpartition(',')[0] for line in lines] if name == 'train' else lines


TABLES = ('train', 'eval', 'episodes', 'eval_episodes', 'bonus')


def all_rows(base_dir):
    return {name: rows(base_dir, name) for name in TABLES}


def newest(base_dir):
    return sorted((Path(base_dir) / 'checkpoints').iterdir())[-1]


def events(base_dir):
    accumulator = EventAccumulator(str(Path(base_dir) / 'tensorboard'))
    accumulator.Reload()
    return {
        tag: [(event.step, event.value) for event in accumulator.Scalars(tag)]
        for tag in accumulator.Tags()['scalars']
        if not tag.startswith('process/') and 'per_second' not in tag
    }


@pytest.fixture(scope='module')
def straight(tmp_path_factory):
    """A run on Deep Sea that nothing disturbed."""
    base_dir = tmp_path_factory.mktemp('straight') / 'run'
    run(base_dir)
    return base_dir


@pytest.fixture(scope='module')
def atari(tmp_path_factory):
    """A run on Atari that nothing disturbed, and its output."""
    base_dir = tmp_path_factory.mktemp('atari') / 'run'
    return base_dir, run(base_dir, gin_file=ATARI)


def lines_of(base_dir, name='episodes'):
    path = Path(base_dir) / f'{name}.csv'
    return len(path.read_text().splitlines()) if path.exists() else 0


def test_files_of_a_run(atari):
    base_dir, output = atari
    assert {path.name for path in base_dir.iterdir()} == {
        'config.gin',
        'environment.json',
        'train.csv',
        'eval.csv',
        'episodes.csv',
        'eval_episodes.csv',
        'bonus.csv',
        'checkpoints',
        'replay',
        'tensorboard',
        'lock',
    }
    with open(base_dir / 'train.csv', newline='') as file:
        train = list(csv.DictReader(file))
    assert tuple(train[0]) == COLUMNS['train']
    assert [int(row['iteration']) for row in train] == [0, 1, 2]
    assert [int(row['agent_steps']) for row in train] == [60, 120, 180]
    assert [int(row['frames']) for row in train] == [240, 480, 720]
    assert [int(row['learner_steps']) for row in train] == [8, 23, 38]
    assert all(float(row['loss']) > 0 and float(row['bonus_mean']) > 0 for row in train)
    assert float(train[-1]['epsilon']) == pytest.approx(0.1)
    assert float(train[-1]['agent_steps_per_second']) > 0
    with open(base_dir / 'eval.csv', newline='') as file:
        evaluations = list(csv.DictReader(file))
    assert tuple(evaluations[0]) == COLUMNS['eval'] and len(evaluations) == 3
    with open(base_dir / 'episodes.csv', newline='') as file:
        games = list(csv.DictReader(file))
    assert tuple(games[0]) == COLUMNS['episodes']
    assert sum(int(row['episodes']) for row in train) == len(games)
    with open(base_dir / 'eval_episodes.csv', newline='') as file:
        games = list(csv.DictReader(file))
    assert tuple(games[0]) == COLUMNS['eval_episodes']
    with open(base_dir / 'bonus.csv', newline='') as file:
        bonus = list(csv.DictReader(file))
    assert tuple(bonus[0]) == COLUMNS['bonus']
    for row, of_train in zip(bonus, train, strict=True):
        for name in ('iteration', 'frames', 'next_bonus_mean'):
            assert row[name] == of_train[name]
        assert row['reward_bonus_mean'] == of_train['bonus_mean']  # The paper does not divide B.
        assert 0 < float(row['next_bonus_normalized_mean']) < 10 and float(row['q_gap_mean']) > 0
    for row in evaluations:
        scores = [float(g['score']) for g in games if g['iteration'] == row['iteration']]
        assert len(scores) == int(row['episodes'])
        assert float(row['score_mean']) == pytest.approx(np.mean(scores))
    record = json.loads((base_dir / 'environment.json').read_text())
    assert record['packages']['tensorflow'] and record['devices'] and not record['earlier']
    assert len(list((base_dir / 'checkpoints').iterdir())) == 2
    assert len(re.findall('No GPU: training on|Training on', output)) == 1
    assert [int(row['episodes']) for row in evaluations] == [2, 2, 2]
    assert len(re.findall(r'Evaluation score: best .* at .* frames, last', output)) == 1
    assert output.splitlines()[-1] == f'Next: python -m ob2i_tf.analysis {base_dir} --out report'
    assert len(re.findall(r'iteration \d of 3, [0-9,]+ frames', output)) == 4
    assert len(re.findall(r'iteration \d of 3, .* learner steps, training score \d', output)) == 3


def test_tensorboard_shows_each_iteration_once(atari):
    base_dir, _ = atari
    scalars = events(base_dir)
    for tag in (
        'train/loss',
        'train/bonus_mean',
        'train/epsilon',
        'train/learner_steps',
        'bonus/q_gap_mean',
        'bonus/next_action_changes',
    ):
        assert [step for step, _ in scalars[tag]] == [240, 480, 720]
    losses = [float(row['loss']) for row in csv.DictReader(open(base_dir / 'train.csv'))]
    np.testing.assert_allclose([value for _, value in scalars['train/loss']], losses, rtol=1e-6)


def test_the_saved_config_alone_reproduces_the_run(atari, tmp_path):
    base_dir, _ = atari
    files = f'--gin_files={base_dir / "config.gin"}'
    run(tmp_path / 'again', argv=['run', files, f'--base_dir={tmp_path / "again"}'])
    assert all_rows(tmp_path / 'again') == all_rows(base_dir)
    assert (tmp_path / 'again' / 'config.gin').read_text() == (base_dir / 'config.gin').read_text()


def test_half_the_iterations_then_the_other_half(straight, tmp_path):
    run(tmp_path / 'run', Runner__num_iterations=2)
    run(tmp_path / 'run')
    assert all_rows(tmp_path / 'run') == all_rows(straight)
    assert events(tmp_path / 'run') == events(straight)
    output = run(tmp_path / 'run', status=1, Runner__num_iterations=2)
    assert (
        'has started 3 iterations, more than Runner.num_iterations = 2' in output.splitlines()[-1]
    )
    assert 'num_iterations = 3' in (tmp_path / 'run' / 'config.gin').read_text()


def test_killed_within_an_iteration(straight, tmp_path):
    other = tmp_path / 'run'
    status = start_and_stop(
        other,
        signal.SIGKILL,
        lambda: lines_of(other, 'train') > 1 and lines_of(other) > lines_of_checkpoint(other),
    )
    assert status == -signal.SIGKILL
    run(other)
    assert all_rows(other) == all_rows(straight)
    assert events(other) == events(straight)


def lines_of_checkpoint(base_dir):
    """Games that the newest checkpoint saw, with the header."""
    try:
        size = json.loads((newest(base_dir) / 'state.json').read_text())['tables']['episodes'][
            'bytes'
        ]
        return (Path(base_dir) / 'episodes.csv').read_text()[:size].count('\n')
    except (OSError, IndexError):
        return 10**9


@pytest.mark.parametrize('number', [signal.SIGTERM, signal.SIGINT])
def test_a_signal_saves_first_and_the_run_goes_on_from_there(straight, tmp_path, number):
    other = tmp_path / 'run'
    status = start_and_stop(other, number, lambda: lines_of(other) > 1)
    assert status == 128 + number
    steps = int(newest(other).name)
    assert 0 < steps < 180
    run(other)
    assert all_rows(other) == all_rows(straight)
    assert events(other) == events(straight)


@pytest.mark.parametrize('gin_file, agent_steps', [(ATARI, 75), (DEEP_SEA, 120)])
def test_stopped_at_a_step_of_ones_choice(straight, atari, tmp_path, gin_file, agent_steps):
    """120 is the last step of an iteration, which is not evaluated then."""
    undisturbed, other = atari[0] if gin_file == ATARI else straight, tmp_path / 'run'
    run_separately(other, status=128 + signal.SIGTERM, stop_at=agent_steps, gin_file=gin_file)
    assert int(newest(other).name) == agent_steps
    if agent_steps == 120:
        output = run(other, status=1, Runner__num_iterations=1)
        assert 'has started 2 iterations, more than Runner.num_iterations = 1' in output
    run(other, gin_file=gin_file)
    assert all_rows(other) == all_rows(undisturbed)
    assert events(other) == events(undisturbed)


def _stop_while_playing_again():
    record, number = Agent.record, signal.SIGTERM

    def record_and_stop(self, *args):
        os.kill(os.getpid(), number)
        return record(self, *args)

    Agent.record = record_and_stop


def test_stopped_while_it_plays_again_what_was_played(straight, tmp_path):
    """With checkpoints within an iteration, which change nothing either."""
    other, output = tmp_path / 'run', tmp_path / 'output'
    settings = {'Runner__checkpoint_steps': 13}
    run_separately(other, status=128 + signal.SIGTERM, stop_at=75, **settings)
    assert len(list((other / 'checkpoints').iterdir())) == 2
    process = start(arguments(other, **settings), output, before=(_stop_while_playing_again,))
    process.join(timeout=300)
    assert process.exitcode == 128 + signal.SIGTERM
    assert 'Playing 15 agent steps again' in output.read_text()
    assert newest(other).name == '000000000075'
    output = run(other, status=1, **settings, Runner__num_iterations=1)
    assert 'has started 2 iterations, more than Runner.num_iterations = 1' in output
    run(other, **settings)
    assert all_rows(other) == all_rows(straight)


def test_killed_between_a_row_and_its_checkpoint(straight, tmp_path):
    """The newest checkpoint is missing, but all rows and events of its iteration exist."""
    other = tmp_path / 'run'
    shutil.copytree(straight, other)
    shutil.rmtree(newest(other))
    run(other)
    assert all_rows(other) == all_rows(straight)
    assert events(other) == events(straight)


def test_a_damaged_checkpoint_is_skipped_with_a_warning(straight, tmp_path):
    other = tmp_path / 'run'
    shutil.copytree(straight, other)
    (path,) = newest(other).glob('variables.data*')
    content = bytearray(path.read_bytes())
    content[len(content) // 2] ^= 1
    path.write_bytes(content)
    (newest(other) / 'state.json').write_text('')  # Which a later save must not read.
    assert 'Skipping the damaged checkpoint' in run_separately(other, status=143, stop_at=150)
    assert {p.name.partition('-')[0] for p in (other / 'checkpoints').iterdir()} == {
        '000000000120',
        '000000000150',
        'damaged',
    }
    run(other)
    assert all_rows(other) == all_rows(straight)


def test_a_configuration_that_a_part_refuses_leaves_no_trace(tmp_path):
    other = tmp_path / 'run'
    last = run(other, status=2, EpisodicUpdate__beta=(0.5, 0.7)).strip().splitlines()[-1]
    assert last.startswith('error: EpisodicUpdate.beta must be a number or 3 numbers')
    last = run(other, status=2, Runner__evaluation_preferences='@linear').splitlines()[-1]
    assert last.startswith('error: Runner.evaluation_preferences must map')
    last = run(other, status=2, make_environment__num_envs=2).splitlines()[-1]
    assert last.endswith('cannot be bound: it is supplied by the caller; see Runner.num_envs')
    run(other, Runner__num_iterations=0)


def test_rows_without_a_checkpoint_are_not_written_over(straight, tmp_path):
    other = tmp_path / 'run'
    shutil.copytree(straight, other)
    (other / 'train.csv').write_text((other / 'train.csv').read_text()[:-30])
    assert 'rows are missing' in run(other, status=1).splitlines()[-1]
    shutil.rmtree(other / 'checkpoints')
    assert 'but no checkpoint' in run(other, status=1).splitlines()[-1]
    assert len(rows(other, 'train')) == 4
    one_row = (other / 'train.csv').read_text().splitlines(keepends=True)[:2]
    (other / 'train.csv').write_text(''.join(one_row))
    assert f'no checkpoint in {other}/checkpoints: the run starts over' in run(
        other, Runner__num_iterations=1
    )
    assert rows(other, 'train') == rows(straight, 'train')[:2]


def test_without_a_whole_checkpoint_the_run_stops(straight, tmp_path):
    other = tmp_path / 'run'
    shutil.copytree(straight, other)
    before = all_rows(other)
    for folder in (other / 'checkpoints').iterdir():
        (folder / 'state.json').write_text('')
    output = run(other, status=1)
    assert (
        output.strip()
        .splitlines()[-1]
        .startswith(
            f'error: no checkpoint in {other}/checkpoints can be restored (the newest of 2: '
            'state.json differs from the saved file); '
        )
    )
    assert all_rows(other) == before


@pytest.mark.parametrize('kilobytes', [2, 60])
def test_a_full_disk_ends_the_run_and_leaves_earlier_checkpoints_whole(
    straight, tmp_path, kilobytes
):
    other = tmp_path / 'run'
    shutil.copytree(straight, other)
    shutil.rmtree(newest(other))
    output = run_separately(other, status=1, largest_file_bytes=kilobytes * 1000)
    assert output.splitlines()[-1].startswith(f'error: cannot write to the run folder {other}')
    (intact,) = (other / 'checkpoints').iterdir()
    assert not checkpoints.find_damage(intact)
    run(other)
    assert all_rows(other) == all_rows(straight)
    assert events(other) == events(straight)


def test_several_environments_learn_at_the_same_ratio_and_resume(tmp_path):
    settings = {
        'gin_file': ATARI,
        'Runner__num_envs': 4,
        'Runner__evaluation_envs': 2,
        'Runner__training_steps': 140,
        'Runner__num_iterations': 2,
        'Agent__learning_starts': 110,  # By then each environment has ended a game.
    }
    one, other = tmp_path / 'one', tmp_path / 'other'
    run(one, **settings)
    learner_steps = [line.split(',')[3] for line in rows(one, 'train')[1:]]
    assert learner_steps == ['8', '43']
    status = start_and_stop(other, signal.SIGTERM, lambda: lines_of(other) > 2, **settings)
    assert status == 128 + signal.SIGTERM
    run(other, **settings)
    assert all_rows(other) == all_rows(one)


class TwoGames:
    """The first environment's games take 2 steps, the second's 3."""

    num_envs = 2

    def __init__(self):
        self.steps = 0

    def reset(self):
        return np.zeros(2), {}

    def step_async(self, actions):
        self.steps += 1

    def step_wait(self):
        over = self.steps % np.array([2, 3]) == 0
        return (
            np.zeros(2),
            np.ones(2),
            over,
            over & False,
            {
                'raw_rewards': np.ones(2),
                'game_over': over,
            },
        )


def test_the_head_of_an_evaluation_is_drawn_anew_for_each_game():
    heads, followed = iter(range(100)), []

    def actions(observations, heads, epsilon, rng):
        followed.append(heads.tolist())
        return np.zeros(2, np.int32)

    posterior = SimpleNamespace(
        evaluation_heads=lambda count, rng: np.array([next(heads) for _ in range(count)], int)
    )
    policy = SimpleNamespace(actions=actions)
    env = TwoGames()
    steps = loop.play_policy(env, env.reset()[0], policy, posterior, 0.0, None)
    games = [game for _, finished in itertools.islice(steps, 7) for game in finished]
    assert [game.length for game in games] == [2, 3, 2, 2, 3]
    assert followed == [[0, 1], [0, 1], [2, 1], [2, 3], [4, 3], [4, 3], [5, 6]]


@pytest.mark.parametrize(
    'longest, told',
    [
        (60, []),
        (61, ['INFO: Evaluations count only games of up to 60 agent steps (Runner.evaluation_s']),
        (
            1000,
            [
                'INFO: Training cuts games off after 62 agent steps (Runner.training_steps / num',
                'INFO: Evaluations count only games of up to 60 agent steps (Runner.evaluation_st',
                'WARNING: The run will stop at an episode of more than 61 agent steps, EpisodeRep',
            ],
        ),
    ],
)
def test_long_games_are_a_warning_only_if_they_end_the_run(caplog, longest, told):
    parts = SimpleNamespace(
        environment=SimpleNamespace(max_episode_steps=longest),
        replay=SimpleNamespace(capacity_transitions=61),
    )
    with caplog.at_level('INFO', logger='absl'):
        build.report_long_games(parts, training_steps=62, evaluation_steps=60)
    lines = [f'{record.levelname}: {record.getMessage()}' for record in caplog.records]
    assert len(lines) == len(told) and all(map(str.startswith, lines, told))


def test_xla_trains_and_a_profile_shows_the_phases(tmp_path):
    settings = {
        'EpisodicUpdate__batching': "'chunks'",  # Others compute targets within the learner step.
        'Runner__xla': "('acting', 'targets', 'gradient_step')",
        'Runner__profile': '(0, 55)',
        'Runner__num_iterations': 1,
        'Runner__checkpoint_steps': 0,
    }
    run(tmp_path / 'run', **settings)
    (row,) = csv.DictReader(open(tmp_path / 'run' / 'train.csv'))
    assert row['learner_steps'] == '8' and float(row['loss']) > 0
    (profile,) = (tmp_path / 'run' / 'tensorboard').glob('plugins/profile/*/*.xplane.pb')
    for phase in (b'act', b'targets', b'gradient step', b'wait for environments'):
        assert phase in profile.read_bytes()
    accumulator = EventAccumulator(str(tmp_path / 'run' / 'tensorboard')).Reload()
    for phase in ('act', 'targets', 'gradient_step', 'wait_for_environments'):
        (event,) = accumulator.Scalars(f'process/seconds_{phase}')
        assert event.value > 0


@pytest.mark.parametrize(
    'name, value',
    [
        ('xla', "('learner',)"),
        ('profile', '(5, 5)'),
        ('profile', '(3,)'),
        ('evaluation_epsilon', '5.0'),
    ],
)
def test_nonsense_of_speed_is_refused(name, value, tmp_path):
    output = run(tmp_path / 'run', status=2, **{f'Runner__{name}': value})
    assert f'Runner.{name}' in output.splitlines()[-1] and value in output.splitlines()[-1]
    assert 'Traceback' not in output


def test_training_is_the_same_without_evaluation(straight, tmp_path):
    run(tmp_path / 'run', Runner__evaluation_steps=0)
    assert rows(tmp_path / 'run', 'train') == rows(straight, 'train')
    assert rows(tmp_path / 'run', 'episodes') == rows(straight, 'episodes')
    assert len(rows(tmp_path / 'run', 'eval')) == 1


def test_seeds_differ(tmp_path):
    settings = {
        'gin_file': ATARI,
        'Runner__num_iterations': 1,
        'Runner__training_steps': 400,
        'Runner__evaluation_steps': 0,
        'make_atari__max_episode_frames': 400,  # Within which some games score.
        'Agent__learning_starts': 1000,
    }
    for seed in (0, 1):
        run(tmp_path / f'{seed}', Runner__seed=seed, **settings)
    assert rows(tmp_path / '0', 'episodes') != rows(tmp_path / '1', 'episodes')


def test_the_shortest_run(tmp_path):
    output = run(
        tmp_path / 'run',
        Runner__num_iterations=1,
        Runner__training_steps=25,
        Runner__evaluation_steps=13,
        Runner__evaluation_envs=2,
    )
    assert 'Evaluations count only games of up to 7 agent steps' in output
    assert 'no game ended within Runner.evaluation_steps' in output
    (row,) = csv.DictReader(open(tmp_path / 'run' / 'train.csv'))
    assert row['agent_steps'] == '25' and row['learner_steps'] == '0' and row['loss'] == 'nan'


def test_another_configuration_in_the_folder_is_refused(straight):
    before = all_rows(straight)
    last = run(straight, status=1, EpisodicUpdate__beta=0.25).strip().splitlines()[-1]
    assert last.startswith('error: ') and 'EpisodicUpdate.beta = 0.25' in last
    assert all_rows(straight) == before


def test_a_second_process_in_the_folder_is_refused(straight, tmp_path):
    other = tmp_path / 'run'
    process = start(arguments(other))
    try:
        while not lines_of(other):
            assert process.is_alive()
            time.sleep(0.05)
        os.kill(process.pid, signal.SIGSTOP)  # So that it does not end meanwhile.
        assert 'another process is running' in run(other, status=1).strip().splitlines()[-1]
    finally:
        process.kill()


@pytest.mark.skipif(bool(tf.config.list_physical_devices('GPU')), reason='there is a GPU')
def test_require_gpu_stops_at_once(tmp_path):
    last = run(tmp_path / 'run', status=1, Runner__require_gpu='True').strip().splitlines()[-1]
    assert last.startswith('error: Runner.require_gpu = True, but TensorFlow sees no GPU')


def test_nan_stops_the_run_and_keeps_the_last_good_checkpoint(straight, tmp_path):
    other = tmp_path / 'run'
    settings = {'adam__learning_rate': 1e30, 'Agent__learning_starts': 75}
    last = run(other, status=1, **settings).strip().splitlines()[-1]
    assert last.startswith('error: ') and ('loss' in last or 'NaN' in last)
    (kept,) = (other / 'checkpoints').iterdir()
    assert kept.name == '000000000060' and not checkpoints.find_damage(kept)


def _check_with_too_little_memory():
    run_state.check_finite = lambda when, **modules: tf.zeros(10**15)


def test_lack_of_memory_where_nan_is_looked_for_is_no_error_of_the_disk(tmp_path):
    before, output = (_check_with_too_little_memory,), tmp_path / 'stderr'
    process = start(arguments(tmp_path / 'run', Runner__num_iterations=1), output, before=before)
    process.join()
    last = output.read_text().splitlines()[-1]
    assert process.exitcode == 1 and last.startswith('error: out of memory with '), last


def test_scores_are_raw_and_returns_are_clipped(tmp_path):
    run(
        tmp_path / 'run',
        gin_file=ATARI,
        make_environment__name="'Q*Bert'",
        Runner__num_iterations=1,
        make_atari__max_episode_frames=1200,
        Runner__training_steps=400,
        Runner__evaluation_steps=400,
        Agent__learning_starts=390,
        Runner__evaluation_epsilon=1.0,
    )
    (train,) = csv.DictReader(open(tmp_path / 'run' / 'train.csv'))
    assert float(train['score_mean']) == 25 * float(train['return_mean']) > 0  # 25 points a cube.
    (evaluation,) = csv.DictReader(open(tmp_path / 'run' / 'eval.csv'))
    assert float(evaluation['score_max']) >= 25 and float(evaluation['score_max']) % 25 == 0


def test_asking_for_the_commit_writes_nothing_into_the_checkout(tmp_path):
    def git(*arguments):
        identity = ('-c', 'user.name=a', '-c', 'user.email=a@b')
        subprocess.run(['git', *identity, *arguments], cwd=tmp_path, check=True)

    (tmp_path / 'file').touch()
    for arguments in (('init', '-q'), ('add', 'file'), ('commit', '-qm', 'a')):
        git(*arguments)
    os.utime(tmp_path / 'file', (0, 0))  # Which `git status` would note in its index.
    before = (tmp_path / '.git' / 'index').read_bytes()
    assert len(run_folder.git_commit(tmp_path)) == 40
    assert (tmp_path / '.git' / 'index').read_bytes() == before


@pytest.mark.parametrize(
    'name, value, what',
    [
        ('posterior', '@EnsemblePosterior()', 'write @EnsemblePosterior, not @EnsemblePosterior()'),
        ('evaluation_preferences', '@head_preferences()', 'write @head_preferences, not'),
        ('posterior', '@UcbBonus', 'Runner.posterior must be a factory of'),
        ('update', '@UcbBonus', 'Runner.update must be a factory of'),
    ],
)
def test_a_part_that_is_none_is_named(tmp_path, name, value, what):
    output = run(tmp_path / 'run', status=2, **{f'Runner__{name}': value})
    assert what in output.splitlines()[-1]
    assert not (tmp_path / 'run').exists()


def run_own(folder, module, file, base_dir, status=0, files='own.gin', **settings):
    """Trains own.gin, which imports own.py; returns the output."""
    (folder / 'own.py').write_text(module)
    (folder / 'own.gin').write_text(f"import own\ninclude 'ob2i_deep_sea.gin'\n{file}\n")
    settings = {'Runner__num_iterations': 1, 'Runner__training_steps': 60, **settings}
    bindings = [f'{name.replace("__", ".")} = {value}' for name, value in settings.items()]
    argv = ['run', f'--gin_files={files}', f'--base_dir={base_dir}']
    argv += [f'--gin_bindings={binding}' for binding in bindings]
    process = start(argv, output=folder / 'stderr', cwd=folder)
    process.join()
    printed = (folder / 'stderr').read_text()
    assert process.exitcode == status, printed
    return printed


FAILING = """
import gin
import tensorflow as tf

from ob2i_tf.bonuses import Bonus


def fail(_):
    raise RuntimeError('no bonus')


@gin.configurable
class Failing(Bonus):
    def __call__(self, experience):
        bonus = tf.ensure_shape(tf.numpy_function(fail, [experience.discounts], tf.float32), [None])
        next_bonus = tf.zeros_like(experience.next_q[:, 0])
        return bonus, next_bonus, (tf.reduce_mean(bonus), tf.reduce_mean(next_bonus))
"""


def test_a_bonus_that_fails_ends_the_run_with_its_traceback_and_its_binding(tmp_path):
    file = 'EpisodicUpdate.bonus = @Failing()\nAgent.learning_starts = 20'
    printed = run_own(tmp_path, FAILING, file, tmp_path / 'run', status=1)
    assert 'own.py", line 9, in fail' in printed
    assert printed.splitlines()[-1] == (
        'error: Runner.update = @EpisodicUpdate with EpisodicUpdate.bonus = @Failing() raised '
        'UnknownError in next_batch: RuntimeError: no bonus'
    )


def test_an_agent_that_passes_its_arguments_on_trains(tmp_path):
    """gin sees no `epsilon` in its signature; the schedule is that of its base class."""
    run_own(
        tmp_path,
        'import gin\n'
        'from ob2i_tf.agent import Agent\n\n\n'
        '@gin.configurable\n'
        'class OwnAgent(Agent):\n'
        '    def __init__(self, *args, **kwargs):\n'
        '        super().__init__(*args, **kwargs)\n',
        'Runner.agent = @OwnAgent',
        tmp_path / 'run',
    )


SCHEDULES = """
import gin
import tensorflow as tf


@gin.configurable
def after_set_up(agent_steps):
    if tf.config.experimental.tensor_float_32_execution_enabled():  # As TensorFlow starts.
        raise RuntimeError('devices are not set up')
    return float(tf.minimum(1.0, 0.1))


@gin.configurable
def above_one_in_the_end(agent_steps):
    return agent_steps / 59
"""


def test_a_schedule_is_checked_after_devices_are_set_up_and_before_anything_is_written(tmp_path):
    run_own(tmp_path, SCHEDULES, 'Agent.epsilon = @after_set_up', tmp_path / 'run')
    base_dir = tmp_path / 'wrong'
    settings = {'status': 2, 'Agent__epsilon': '@above_one_in_the_end'}
    last = run_own(tmp_path, SCHEDULES, '', base_dir, **settings).splitlines()[-1]
    assert last.startswith('error: Agent.epsilon must map agent steps to a number in 0..1')
    assert last.endswith('at 60') and not base_dir.exists()
    agent = '@gin.configurable\nclass Mine(Agent):\n    pass\n'
    module = f'from ob2i_tf.agent import Agent\n{SCHEDULES}\n\n{agent}'
    file = 'Runner.agent = @Mine\nMine.epsilon = @above_one_in_the_end'
    assert run_own(tmp_path, module, file, base_dir, status=2).splitlines()[-1] == last


PARTS = """
import gin
from ob2i_tf import agent, learner, posteriors, replay, updates

for part in (
    agent.Agent,
    learner.QLearner,
    posteriors.EnsemblePosterior,
    replay.EpisodeReplay,
    updates.EpisodicUpdate,
):
    name = f'My{part.__name__}'
    globals()[name] = gin.configurable(name, module='own')(type(name, (part,), {}))
"""


def test_subclasses_without_a_constructor_take_the_bindings_of_their_base_classes(tmp_path):
    """The run equals one of the base classes, and one from its resolved config.gin."""
    own = (
        'Runner.agent = @MyAgent',
        'Runner.learner = @MyQLearner',
        'Runner.posterior = @MyEnsemblePosterior',
        'Runner.replay = @MyEpisodeReplay',
        'Runner.update = @MyEpisodicUpdate',
        'Agent.discount = 0.5',
        'Agent.learning_starts = 20',
        'QLearner.loss = @huber',
        'EpisodeReplay.capacity_transitions = 45',
        'EpisodicUpdate.beta = 0.25',
    )
    bases = [line for line in own if '@My' not in line]
    folders = [tmp_path / name for name in ('bases', 'own', 'again')]
    run_own(tmp_path, PARTS, '\n'.join(bases), folders[0])
    run_own(tmp_path, PARTS, '\n'.join(own), folders[1])
    text = (folders[1] / 'config.gin').read_text()
    assert 'MyAgent.discount = 0.5' in text and 'MyEpisodeReplay.capacity_transitions = 45' in text
    assert not re.search(r'^(Agent|QLearner|EpisodeReplay|EpisodicUpdate)\.', text, re.M)
    run_own(tmp_path, PARTS, '', folders[2], files=folders[1] / 'config.gin')
    assert all_rows(folders[0]) == all_rows(folders[1]) == all_rows(folders[2])
    assert (folders[2] / 'config.gin').read_text() == text
    assert int(rows(folders[0], 'train')[-1].split(',')[3]) > 0
