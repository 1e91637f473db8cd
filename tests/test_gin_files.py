"""Every shipped gin file: it loads whole, says what its row is made of, and trains."""

import csv
import shutil

import pytest

from ob2i_tf import acting, bonuses, config, runner, updates  # noqa: F401, which register parts
from tests.processes import start

FILES = config.available()
# Short, and small enough for seconds; what tells the rows apart is left alone.
SHORT = {
    'Runner.num_iterations': 2,
    'Runner.training_steps': 80,
    'Runner.evaluation_steps': 20,
    'Runner.checkpoint_steps': 55,  # The last but one is within an iteration, and within episodes.
    'EpisodeReplay.capacity_transitions': 200,
    'Agent.learning_starts': 50,
    'Agent.target_period': 20,
}
SMALL = {'MultiHeadQNetwork.hidden_units': 8, 'MultiHeadQNetwork.conv_layers': '((4, 8, 8),)'}
TASKS = {  # With short episodes, so that there are enough of them.
    'atari': {**SMALL, 'make_atari.max_episode_frames': 24},
    'mnist_maze': {**SMALL, 'make_mnist_maze.max_episode_steps': 6, 'Agent.train_period': 5},
    'deep_sea': {'MultiHeadQNetwork.hidden_units': 8},
    'linear_mdp': {'horizon': 10},
}
# Off Atari, what differs from the rows there.
TRAINED = [file for file in FILES if 'atari' in file] + [
    f'{row}.gin' for row in ('ob2i_mnist_maze', 'bootdqn_mnist_maze', 'ob2i_deep_sea',
                             'ob2i_linear_mdp', 'lsvi_ucb_linear_mdp',
                             'lsvi_randomised_linear_mdp')
]  # fmt: skip
# So that the slower schedules of a row come to pass as well.
SHORTER = {
    'bayesian_dqn_atari': {
        'BayesianLinearPosterior.regression_period': 2,
        'BayesianLinearPosterior.sample_period': 7,
    },
    'ebu_adaptive_atari': {'AdaptivePosterior.selection_period': 30},
    'lsvi_ucb_linear_mdp': {'Agent.learning_starts': 10**9},  # Nothing is learnt by gradient.
    'lsvi_randomised_linear_mdp': {'Agent.learning_starts': 10**9},
    'ube_atari': {'UncertaintyBellmanPosterior.n_steps': 3},
}
# preferences, heads, update, beta, alpha_1 = alpha_2, bonus (design of the paper's tables).
BETAS = tuple(i / 10 for i in range(11))
ATARI_ROWS = {
    'ob2i': ('head_preferences', 10, 'EpisodicUpdate', 0.5, 0.5e-4, 'UcbBonus'),
    'bebu': ('head_preferences', 10, 'EpisodicUpdate', 0.5, 0.0, None),
    'bebu_ucb': ('ucb_preferences', 10, 'EpisodicUpdate', 0.5, 0.0, None),
    'bebu_ids': ('ids_preferences', 10, 'EpisodicUpdate', 0.5, 0.0, None),
    'ebu': ('mean_preferences', 1, 'EpisodicUpdate', 0.5, 0.0, None),
    'bootdqn': ('head_preferences', 10, 'TransitionUpdate', None, 0.0, None),
    'bootdqn_ucb': ('head_preferences', 10, 'TransitionUpdate', None, 0.5e-4, 'UcbBonus'),
    'bebu_rnd': ('head_preferences', 10, 'EpisodicUpdate', 0.5, 0.5e-4, 'RndBonus'),
    'bootdqn_ids': ('ids_preferences', 10, 'TransitionUpdate', None, 0.0, None),
    'ebu_adaptive': ('head_preferences', 1, 'EpisodicUpdate', BETAS, 0.0, None),
    'dqn': ('mean_preferences', 1, 'TransitionUpdate', None, 0.0, None),
    'noisynet': ('mean_preferences', 1, 'TransitionUpdate', None, 0.0, None),
    'noisynet_dueling': ('mean_preferences', 1, 'TransitionUpdate', None, 0.0, None),
    'ube': ('mean_preferences', 1, 'TransitionUpdate', None, 0.0, None),
    'ube_1step': ('mean_preferences', 1, 'TransitionUpdate', None, 0.0, None),
    'bayesian_dqn': ('mean_preferences', 1, 'TransitionUpdate', None, 0.0, None),
}
MAZE_ROWS = {
    'ob2i': ('head_preferences', 10, 'EpisodicUpdate', 1.0, 0.01, 'UcbBonus'),
    'bebu': ('head_preferences', 10, 'EpisodicUpdate', 1.0, 0.0, None),
    'bebu_ucb': ('ucb_preferences', 10, 'EpisodicUpdate', 1.0, 0.0, None),
    'bebu_ids': ('ids_preferences', 10, 'EpisodicUpdate', 1.0, 0.0, None),
    'bootdqn': ('head_preferences', 10, 'TransitionUpdate', None, 0.0, None),
    'ebu': ('mean_preferences', 1, 'EpisodicUpdate', 1.0, 0.0, None),
}
DEEP_SEA_ROWS = {
    'ob2i': ('head_preferences', 10, 'EpisodicUpdate', 0.5, 0.01, 'UcbBonus'),
    'bebu': ('head_preferences', 10, 'EpisodicUpdate', 0.5, 0.0, None),
    'bebu_ucb': ('ucb_preferences', 10, 'EpisodicUpdate', 0.5, 0.0, None),
    'bebu_ids': ('ids_preferences', 10, 'EpisodicUpdate', 0.5, 0.0, None),
    'bootdqn': ('head_preferences', 10, 'TransitionUpdate', None, 0.0, None),
    'ebu': ('mean_preferences', 1, 'EpisodicUpdate', 0.5, 0.0, None),
}
LINEAR_ROWS = {
    'lsvi_ucb': ('mean_preferences', 1, 'EpisodicUpdate', 0.5, 0.0, None),
    'lsvi_randomised': ('mean_preferences', 1, 'EpisodicUpdate', 0.5, 0.0, None),
    'lsvi_epsilon': ('mean_preferences', 1, 'EpisodicUpdate', 0.5, 0.0, None),
    'ob2i': ('head_preferences', 10, 'EpisodicUpdate', 1.0, 0.1, 'UcbBonus'),
}
ROWS = {
    **{f'{row}_atari': parts for row, parts in ATARI_ROWS.items()},
    **{f'ob2i_atari_{kind}': ATARI_ROWS['ob2i'] for kind in ('fast', 'released', 'small')},
    **{f'{row}_mnist_maze': parts for row, parts in MAZE_ROWS.items()},
    **{f'{row}_deep_sea': parts for row, parts in DEEP_SEA_ROWS.items()},
    **{f'{row}_linear_mdp': parts for row, parts in LINEAR_ROWS.items()},
}


def row_of(file):
    return file.removesuffix('.gin')


def name(reference):
    return reference and reference.name.rpartition('.')[2]


def test_every_file_has_its_row():
    assert {row_of(file) for file in FILES} == set(ROWS)


@pytest.mark.parametrize('file', FILES)
def test_a_file_is_its_row(file, clean_gin):
    config.load([file])
    update = name(config.value('Runner.update'))
    network = 'LinearQNetwork' if 'linear' in file else 'MultiHeadQNetwork'
    assert ROWS[row_of(file)] == (
        name(config.value('Agent.preferences')),
        config.value(f'{network}.num_heads'),
        update,
        config.value(f'{update}.beta') if update == 'EpisodicUpdate' else None,
        config.value(f'{update}.alpha_1'),
        name(config.value(f'{update}.bonus')),
    )
    assert config.value(f'{update}.alpha_1') == config.value(f'{update}.alpha_2')
    if update == 'EpisodicUpdate' and 'lsvi' not in file:
        as_released = file.startswith('ebu') or file == 'ob2i_atari_released.gin'
        assert config.value('EpisodicUpdate.greedy') == ('released' if as_released else 'initial')
    if 'atari' in file:
        assert config.value('make_atari.sticky_action_probability') == 0.0
        assert config.value('make_atari.full_action_space') is False


@pytest.mark.parametrize('file, name, number', [
    ('noisynet_dueling_atari', 'QLearner.max_gradient_norm', 10 / 32),
    ('bootdqn_ids_atari', 'QLearner.max_gradient_norm', None),
    ('bootdqn_ucb_atari', 'TransitionUpdate.alpha_2', 0.5e-4),
    ('ob2i_atari', 'EpisodicUpdate.consumption', 'in_parts'),
    ('ob2i_atari', 'make_atari.restart_stack_on_life_loss', False),
    ('ob2i_atari_released', 'make_atari.restart_stack_on_life_loss', True),
    ('ob2i_atari_released', 'EpisodicUpdate.tail', 'other_episode'),
])  # fmt: skip
def test_what_sources_of_a_file_differ_in(file, name, number, clean_gin):
    config.load([f'{file}.gin'])
    assert config.value(name) == number


def rows_of(base_dir, table='train'):
    with open(base_dir / f'{table}.csv', newline='') as file:
        table = list(csv.DictReader(file))
    for row in table:
        row.pop('agent_steps_per_second', None)
    return table


@pytest.mark.parametrize('file', TRAINED)
def test_a_file_trains_and_resumes_exactly(file, tmp_path):
    (task,) = [task for task in TASKS if task in file]
    settings = {**SHORT, **TASKS[task], **SHORTER.get(row_of(file), {})}
    settings[f'{ROWS[row_of(file)][2]}.batch_size'] = 16
    straight, resumed = tmp_path / 'straight', tmp_path / 'resumed'
    for base_dir in (straight, resumed):
        process = start(
            ['run_experiment.py', f'--gin_files={file}', f'--base_dir={base_dir}',
             *(f'--gin_bindings={name} = {value}' for name, value in settings.items())],
            output=tmp_path / 'stderr',
        )  # fmt: skip
        process.join(timeout=120)
        assert process.exitcode == 0, (tmp_path / 'stderr').read_text()[-2000:]
        if base_dir is straight:
            shutil.copytree(straight, resumed)
            shutil.rmtree(max((resumed / 'checkpoints').iterdir()))
            (kept,) = (resumed / 'checkpoints').iterdir()
            assert 110 <= int(kept.name) < 118  # Within the second iteration.
    for table in ('train', 'eval', 'episodes', 'eval_episodes'):
        assert rows_of(resumed, table) == rows_of(straight, table)
    train = rows_of(straight)
    learns = settings['Agent.learning_starts'] < 80
    assert [int(row['learner_steps']) > 0 for row in train] == [learns] * 2
    assert all((float(row['loss']) > 0) == learns for row in train)
    has_bonus = ROWS[row_of(file)][5] is not None
    assert all((float(row['bonus_mean']) > 0) == has_bonus for row in train)
