"""Flags of the command line, and what a dry run says."""

import shutil

import pytest

from ob2i_tf import cli, config
from ob2i_tf.training import main
from tests.training.test_compatibility import STORED

pytestmark = pytest.mark.usefixtures('clean_gin')
ATARI = ('run_experiment.py', '--gin_files=ob2i_atari.gin')


def test_game_and_seed_are_bindings_and_a_dry_run_makes_nothing(tmp_path, capsys, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert main.main([*ATARI, '--game=Ms. Pacman', '--seed=3', '--dry_run']) == 0
    printed = capsys.readouterr().out
    assert not list(tmp_path.iterdir())
    comments = [line[2:] for line in printed.splitlines() if line.startswith('#')]
    assert comments[:2] == [
        'run folder: runs/ob2i_atari/Ms_Pacman/seed3',
        'agent steps: 5,000,000, 20,000,000 frames',
    ]
    # 1M frames of 84 x 84 bytes; 4 x 16.16M float32 (docs/results/footprint/README.md).
    assert comments[2].startswith('memory: 8.3 GB when the replay is full (7.1 GB replay, 0.3 GB')
    assert comments[3].startswith('disk: 0.52 GB for 2 checkpoints, and up to 7.1 GB')
    assert comments[4].startswith('time of training: unknown')
    (tmp_path / 'printed.gin').write_text(printed)
    config.load(['printed.gin'])
    assert config.value('make_environment.name') == 'Ms. Pacman'
    assert config.value('Runner.seed') == 3
    assert printed.endswith('\n\n' + config.resolved_config())


def test_a_dry_run_of_a_run_in_progress_knows_its_speed(tmp_path, capsys):
    base_dir = shutil.copytree(STORED, tmp_path / 'run')
    more = '--gin_bindings=Runner.num_iterations = 101'
    before = {path: path.stat().st_mtime_ns for path in base_dir.rglob('*')}
    command = ['run', f'--gin_files={base_dir}/config.gin', f'--base_dir={base_dir}', more]
    assert main.main([*command, '--dry_run']) == 0
    rate = float((base_dir / 'train.csv').read_text().splitlines()[1].rpartition(',')[2])
    assert (
        f'{cli.duration(6000 / rate)} for 6,000 agent steps at {rate:,.1f} per second'
    ) in capsys.readouterr().out
    assert {path: path.stat().st_mtime_ns for path in base_dir.rglob('*')} == before


@pytest.mark.parametrize(
    'flags, message',
    [
        (
            ['--game=Pong', "--gin_bindings=make_environment.name = 'Alien'"],
            "--game=Pong, but make_environment.name = 'Alien' is bound too",
        ),
        (
            ['--seed=3', '--gin_bindings=Runner.seed = 4'],
            '--seed=3, but Runner.seed = 4 is bound too',
        ),
        (['--seed=-1'], '--seed=-1: Runner.seed: expected at least 0, got -1'),
        (['--seed=x'], "flag --seed=x: invalid literal for int() with base 10: 'x'"),
        (['--game=Pon'], "--game=Pon: make_environment.name: unknown environment 'Pon'; did"),
    ],
)
def test_flags_that_contradict_or_are_wrong(flags, message, tmp_path, capsys):
    base_dir = tmp_path / 'run'
    assert main.main([*ATARI, *flags, f'--base_dir={base_dir}']) == 2
    assert capsys.readouterr().err.splitlines()[-1].startswith(f'error: {message}')
    assert not base_dir.exists()


@pytest.mark.parametrize(
    'gin_file, binding, expected',
    [
        ('ob2i_deep_sea', 'adam.learning_rate = 1e300', 'within +-3.4e+38, got 1e+300'),
        ('ob2i_deep_sea', 'adam.epsilon = 1e308', 'within +-3.4e+38, got 1e+308'),
        ('ob2i_deep_sea', 'EpisodicUpdate.alpha_1 = 1e200', 'within +-3.4e+38, got 1e+200'),
        ('ob2i_deep_sea', 'EpisodicUpdate.batch_size = 65537', 'in 1..65536, got 65537'),
        ('bootdqn_deep_sea', 'TransitionUpdate.batch_size = 65537', 'in 1..65536, got 65537'),
        ('ob2i_deep_sea', 'make_deep_sea.size = 1001', 'in 1..1000, got 1001'),
        ('ob2i_linear_mdp', 'make_linear_mdp.horizon = 10001', 'in 1..10000, got 10001'),
        ('ob2i_atari', 'make_atari.frame_skip = 108001', 'in 1..108000, got 108001'),
        ('ob2i_atari', 'make_atari.noop_max = 108001', 'in 0..108000, got 108001'),
        ('ob2i_atari', 'make_atari.history = 1001', 'in 1..1000, got 1001'),
        ('ob2i_atari', 'make_atari.num_threads = 1025', 'in 0..1024, got 1025'),
        ('bebu_rnd_atari', 'RndBonus.features = 65537', 'in 1..65536, got 65537'),
        ('bebu_rnd_atari', 'RndBonus.batch_size = 65537', 'in 1..65536, got 65537'),
    ],
)
def test_numbers_that_no_run_can_have(gin_file, binding, expected, tmp_path, capsys):
    base_dir = tmp_path / 'run'
    files = f'--gin_files={gin_file}.gin'
    assert main.main(['run', files, f'--gin_bindings={binding}', f'--base_dir={base_dir}']) == 2
    name = binding.partition(' ')[0]
    last = capsys.readouterr().err.splitlines()[-1]
    assert last == f'error: --gin_bindings={binding!r}: {name}: expected {expected}'
    assert not base_dir.exists()


@pytest.mark.parametrize('below', ['', 'below'])
def test_a_file_is_no_run_folder(below, tmp_path, capsys):
    (tmp_path / 'file').touch()
    base_dir = tmp_path / 'file' / below
    assert main.main([*ATARI, f'--base_dir={base_dir}', '--dry_run']) == 1
    last = capsys.readouterr().err.splitlines()[-1]
    assert last.startswith(f'error: {base_dir} cannot be the run folder: part of this path is a')


def test_a_flag_and_an_equal_binding_agree(tmp_path, capsys):
    bindings = '--gin_bindings=Runner.seed = 3'
    assert main.main([*ATARI, '--seed=3', bindings, f'--base_dir={tmp_path}', '--dry_run']) == 0
    assert 'Runner.seed = 3\n' in capsys.readouterr().out


def test_durations():
    shown = [cli.duration(seconds) for seconds in (45, 119, 600, 12_000, 300_000)]
    assert shown == ['45 s', '2 min', '10 min', '3 h 20 min', '3 days 11 h']
