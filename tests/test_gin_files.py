"""Every shipped gin file: it has the values of the table in gin_values.txt, and trains."""

import contextlib
import csv
import fnmatch
import re
import shutil
from pathlib import Path
from typing import NamedTuple

import pytest

import ob2i_tf
from ob2i_tf import config
from ob2i_tf.errors import ConfigError, UserError
from ob2i_tf.replay import EpisodeReplay
from ob2i_tf.training import (
    checkpoints,
    runner,  # noqa: F401, which registers all parts
)
from ob2i_tf.training.episode_files import EpisodeFiles

FILES = config.available()
# Short and small enough for seconds, without changes to what distinguishes methods.
SHORT = {
    'Runner.num_iterations': 2,
    'Runner.training_steps': 40,
    'Runner.evaluation_steps': 12,
    'Runner.checkpoint_steps': 27,  # The last but one is within an iteration, and within episodes.
    'EpisodeReplay.capacity_transitions': 100,
    'Agent.learning_starts': 28,
    'Agent.target_period': 20,
}
SMALL = {'MultiHeadQNetwork.hidden_units': 8, 'MultiHeadQNetwork.conv_layers': '((4, 8, 8),)'}
TASKS = {  # With short episodes, so that there are enough of them.
    'atari': {**SMALL, 'make_atari.max_episode_frames': 16},
    'mnist_maze': {**SMALL, 'make_mnist_maze.max_episode_steps': 6, 'Agent.train_period': 5},
    'deep_sea': {'MultiHeadQNetwork.hidden_units': 8},
    'linear_mdp': {'horizon': 10},
}
# All Atari files; of the other tasks, files that differ in more than the task.
TRAINED = [file for file in FILES if 'atari' in file] + [
    f'{name}.gin'
    for name in (
        'ob2i_mnist_maze',
        'bootdqn_mnist_maze',
        'ob2i_deep_sea',
        'ob2i_linear_mdp',
        'lsvi_ucb_linear_mdp',
        'lsvi_randomised_linear_mdp',
    )
]
# So that the slower schedules of a method take effect as well.
SHORTER = {
    'bayesian_dqn_atari': {
        'BayesianLinearPosterior.regression_period': 2,
        'BayesianLinearPosterior.sample_period': 7,
    },
    'bebu_rnd_atari': {
        'RndBonus.conv_layers': '((4, 8, 8),)',
        'RndBonus.features': 8,
        'RndBonus.predictor_layers': '(8,)',
    },
    'ebu_adaptive_atari': {
        'AdaptivePosterior.selection_period': 30,
        'num_learners': 3,
        'EpisodicUpdate.beta': '(0.0, 0.5, 1.0)',
    },
    'lsvi_ucb_linear_mdp': {'Agent.learning_starts': 10**9},  # Nothing is learned by gradient.
    'lsvi_randomised_linear_mdp': {'Agent.learning_starts': 10**9},
    'ob2i_atari_fast': {'Runner.num_envs': 2, 'Runner.evaluation_envs': 2},
    'ube_atari': {'UncertaintyBellmanPosterior.n_steps': 3},
}
# Files that are trained but not resumed, since their runs have the PARTS of another file's.
RESUMED_LIKE = {
    'bebu_ids_atari': 'bebu_atari',
    'bebu_ucb_atari': 'bebu_atari',
    'bootdqn_ids_atari': 'bootdqn_atari',
    'ebu_atari': 'bebu_atari',
    'ob2i_atari_small': 'ob2i_atari',
    'ube_1step_atari': 'ube_atari',
}
PARTS = re.compile(  # With something to save.
    r'Runner\.(agent|environment|learner|network|num_envs|posterior|replay|update)'
    r'|\w+\.(bonus|noise|optimizer)|make_environment\.name'
)
TABLE = Path(__file__).with_name('gin_values.txt')


class Entry(NamedTuple):
    """A line of the table: the patterns of its section, and the binding with its source."""

    patterns: tuple[str, ...]
    binding: str
    value: str
    source: str
    line: int

    def holds_for(self, name):
        return any(fnmatch.fnmatchcase(name, pattern) for pattern in self.patterns)


def read_table():
    entries, patterns = [], None
    for number, line in enumerate(TABLE.read_text().splitlines(), start=1):
        if section := re.fullmatch(r'\[(.+)\]', line):
            patterns = tuple(section[1].split())
        elif patterns and line and not line.startswith('# '):
            entry = re.fullmatch(r'(\S+) = (.+?)  # (.+)', line)
            assert entry, f'{TABLE.name}:{number} is not "binding = value  # source"'
            entries.append(Entry(patterns, *entry.groups(), number))
    return entries


def expected_of(name):
    """{binding: the entry that counts} for a gin file, even for bindings that it does not use."""
    return {entry.binding: entry for entry in ENTRIES if entry.holds_for(name)}


def resolved(*files, bindings=()):
    """{binding: value} as texts, of everything that a run with these gin files uses."""
    config.load(files, bindings)
    lines = config.resolved_config().splitlines()
    return dict(line.split(' = ', 1) for line in lines if ' = ' in line)


ENTRIES = read_table()


def name_of(file):
    return file.removesuffix('.gin')


@pytest.mark.parametrize('file', FILES)
def test_a_file_comes_to_the_values_of_the_table(file, clean_gin):
    values, entries = resolved(file), expected_of(name_of(file))
    missing = [f'{name} = {value}' for name, value in values.items() if name not in entries]
    assert not missing, f'without a line and a source in {TABLE.name}'
    differing = [
        f'{name} = {value}, but {entries[name].value} in {TABLE.name}:{entries[name].line}'
        for name, value in values.items()
        if value != entries[name].value
    ]
    assert not differing


@pytest.mark.parametrize('name', ['ob2i', 'bebu', 'bebu_rnd', 'bootdqn_ucb', 'bootdqn', 'ebu'])
def test_the_small_file_goes_over_an_atari_method(name, clean_gin):
    small = {e.binding: e.value for e in ENTRIES if e.patterns == ('ob2i_atari_small',)}
    expected = resolved(f'{name}_atari.gin') | small
    assert resolved(f'{name}_atari.gin', 'base/atari_small.gin') == expected


@pytest.mark.parametrize('name', ['ob2i', 'bebu_ucb', 'bootdqn', 'ebu'])
def test_the_scaled_file_goes_over_a_maze_method(name, clean_gin):
    scaled = {'MultiHeadQNetwork.value_scale': '100.0', 'QLearner.loss_scale': '0.0001'}
    file = f'{name}_mnist_maze.gin'
    assert resolved(file, 'base/mnist_maze_scaled.gin') == resolved(file) | scaled


def outcome(layers):
    """The outcome of a configuration: its resolved text, or its error."""
    try:
        config.apply(layers)
    except ConfigError as error:
        return str(error)
    return config.resolved_config()


def test_every_binding_counts(clean_gin):
    """None repeats a default of the code or a binding of an included file."""
    counts = {}  # The place of a binding -> whether some file comes to something else without it.
    for file in FILES:
        layers = config.read([file])
        expected = outcome(layers)
        for binding in (line for layer in layers for line in layer):
            if not counts.get(binding.where):
                without = [[line for line in layer if line is not binding] for layer in layers]
                counts[binding.where] = outcome(without) != expected
    assert [where for where in counts if not counts[where]] == []


@pytest.mark.parametrize(
    'base, lacking',
    [
        ('atari', 'Runner.training_steps'),
        ('deep_sea', 'Agent.target_period'),
        ('mnist_maze', 'quadratic.steps'),
        ('linear_mdp', 'linear.final'),
    ],
)
def test_no_task_falls_back_to_the_numbers_of_another(base, lacking, clean_gin):
    layers = [
        [line for line in layer if str(line) != lacking]
        for layer in config.read([f'base/{base}.gin'], ['Agent.preferences = @head_preferences'])
    ]
    with pytest.raises(ConfigError, match=f'^{lacking} must be bound$'):
        config.apply(layers)


def test_every_line_of_the_table_holds_for_some_file(clean_gin):
    used = set()
    for file in FILES:
        entries = expected_of(name_of(file))
        used |= {entries[name] for name in resolved(file) if name in entries}
    assert [f'{TABLE.name}:{entry.line}' for entry in ENTRIES if entry not in used] == []


def rows_of(base_dir, table='train'):
    with open(base_dir / f'{table}.csv', newline='') as file:
        table = list(csv.DictReader(file))
    for row in table:
        row.pop('agent_steps_per_second', None)
    return table


@pytest.mark.parametrize('file', TRAINED)
def test_a_file_trains_and_resumes_exactly(file, tmp_path):
    (task,) = [task for task in TASKS if task in file]
    settings = {**SHORT, **TASKS[task], **SHORTER.get(name_of(file), {})}
    entries = expected_of(name_of(file))
    update = entries['Runner.update'].value.removeprefix('@').removeprefix('Released')
    settings[f'{update}.batch_size'] = 16
    bindings = [f'{name} = {value}' for name, value in settings.items()]
    straight = tmp_path / 'straight'
    ob2i_tf.train(file, bindings, straight)
    if name_of(file) not in RESUMED_LIKE:
        check_resumes(straight, tmp_path / 'resumed', file, bindings)
    train = rows_of(straight)
    learns = settings['Agent.learning_starts'] < 40
    assert [int(row['learner_steps']) > 0 for row in train] == [learns] * 2
    assert all((float(row['loss']) > 0) == learns for row in train)
    has_bonus = entries[f'{update}.bonus'].value != 'None'
    assert all((float(row['bonus_mean']) > 0) == has_bonus for row in train)
    bonus = rows_of(straight, 'bonus')
    assert len(bonus) == (2 if has_bonus else 0)
    for row, of_train in zip(bonus, train):
        assert row['next_bonus_mean'] == of_train['next_bonus_mean']
        assert float(row['q_gap_mean']) > 0 and 0 <= float(row['next_action_changes']) <= 1
    check_acts(ob2i_tf.load(straight))


@pytest.mark.parametrize('name, other', RESUMED_LIKE.items())
def test_a_file_that_is_not_resumed_has_the_parts_of_another(name, other, clean_gin):
    values, of_other = (
        {binding: value for binding, value in resolved(file).items() if PARTS.fullmatch(binding)}
        for file in (f'{name}.gin', f'{other}.gin')
    )
    assert values == of_other and len(values) > 8


def check_resumes(straight, resumed, file, bindings):
    """From the checkpoint within its second iteration, a run comes to the same end."""
    shutil.copytree(straight, resumed)
    shutil.rmtree(max((resumed / 'checkpoints').iterdir()))
    (kept,) = (resumed / 'checkpoints').iterdir()
    assert 54 <= int(kept.name) < 60
    ob2i_tf.train(file, bindings, resumed)
    for table in ('train', 'eval', 'episodes', 'eval_episodes', 'bonus'):
        assert rows_of(resumed, table) == rows_of(straight, table)
    # Episodes in progress at the checkpoint may not be drawn before the end.
    environment = ob2i_tf.load(straight).environment
    of_resumed, of_straight = (episodes_of(x, environment) for x in (resumed, straight))
    assert of_resumed == of_straight != []


def episodes_of(base_dir, environment):
    """The episodes in the newest checkpoint: their frames and their steps, as bytes."""
    shape, history = environment.observation_shape, environment.history
    replay = EpisodeReplay(
        shape[:-1] if history > 1 else shape,
        SHORT['EpisodeReplay.capacity_transitions'],
        history,
        observation_dtype=environment.observation_dtype,
    )
    manifest = checkpoints.read_state(max((base_dir / 'checkpoints').iterdir()))['replay']
    EpisodeFiles(base_dir / 'replay', replay).load(manifest)
    episodes = map(replay.episode, range(replay.num_episodes))
    return [(frames.tobytes(), steps.tobytes()) for frames, steps in episodes]


def check_acts(agent):
    """A trained agent acts, from Python, in the environment of its run."""
    assert agent.agent_steps == 80
    with contextlib.closing(agent.make_environment(num_envs=2)) as env:
        batch, _ = env.reset()
        for _ in range(3):
            actions = agent.act(batch)
            batch, *_ = env.step(actions)
    shape = agent.posterior.network.num_heads, env.single_action_space.n
    assert agent.act(batch[0]) in range(shape[1]) and actions.shape == (2,)
    assert agent.q_values(batch).shape == (2, *shape) and agent.q_values(batch[0]).shape == shape
    if shape[0] > 1:
        assert (agent.bonus(batch) > 0).all() and agent.bonus(batch[0]).shape == shape[1:]
    else:
        with pytest.raises(UserError, match='this agent has one head$'):
            agent.bonus(batch)
