"""Training and loading from Python: as the command line does, and gin stays as it was."""

import contextlib
import copy
import csv
import json
import re
import shutil
import signal
import subprocess
import sys
from pathlib import Path

import gin
import numpy as np
import pytest
import tensorflow as tf

import ob2i_tf
from ob2i_tf import api, config, evaluate, seeds
from ob2i_tf.agent import Agent
from ob2i_tf.analysis import episode
from ob2i_tf.environments.vector import DenseVectorEnv
from ob2i_tf.errors import CheckpointError, ConfigError, UserError
from ob2i_tf.training import main, runner
from ob2i_tf.training.run_folder import COLUMNS
from ob2i_tf.training.signals import StopRequest
from tests import processes
from tests.markdown import ROOT, bound_by, code_blocks, commands, read
from tests.processes import start

FILES = ['ob2i_deep_sea.gin']
BINDINGS = {
    'make_deep_sea.size': 4,
    'Runner.num_iterations': 2,
    'Runner.training_steps': 40,
    'Runner.evaluation_steps': 40,
    'Runner.evaluation_epsilon': 0.3,
    'Runner.evaluation_preferences': '@head_preferences',
    'Runner.seed': 3,
    'Agent.learning_starts': 20,
    'MultiHeadQNetwork.num_heads': 5,
    'MultiHeadQNetwork.hidden_units': 4,
    'batch_size': 8,
}
VARIABLES = ('_CONFIG', '_CONFIG_IS_LOCKED', '_IMPORTS', '_OPERATIVE_CONFIG', '_SINGLETONS')


def gin_state():
    state = {name: copy.copy(getattr(gin.config, name)) for name in VARIABLES}
    registered = [dict(x.items()) for x in (gin.config._REGISTRY, gin.config._CONSTANTS)]
    return gin.config_str(), gin.operative_config_str(), state, registered


@contextlib.contextmanager
def nothing_left():
    """Bindings, TF32 and signal handlers are afterwards what they were."""
    tf32 = tf.config.experimental.tensor_float_32_execution_enabled
    before = gin_state(), tf32(), signal.getsignal(signal.SIGINT)
    yield
    assert (gin_state(), tf32(), signal.getsignal(signal.SIGINT)) == before


@pytest.fixture(autouse=True)
def own_gin():
    """gin has bindings already, and its configuration is locked."""
    gin.clear_config()
    gin.bind_parameter('make_deep_sea.size', 7)
    gin.bind_parameter('linear.start', 0.5)
    gin.config.singleton_value('shared', object)
    gin.finalize()
    yield
    gin.clear_config()


@pytest.fixture(scope='module')
def run(tmp_path_factory):
    gin.clear_config()
    return ob2i_tf.train(FILES, BINDINGS, tmp_path_factory.mktemp('run') / 'run')


@pytest.fixture
def agent(run):
    return ob2i_tf.load(run.folder)


def lines_of(folder, table):
    """Its text; of train.csv without the last column, which is a speed."""
    lines = (folder / f'{table}.csv').read_text().splitlines()
    return [line.rpartition(',')[0] for line in lines] if table == 'train' else lines


def tables_of(folder):
    return {table: lines_of(folder, table) for table in COLUMNS}


def observations(agent, count):
    shape = (count, *agent.environment.observation_shape)
    return np.random.default_rng(0).integers(0, 255, shape, np.uint8)


def test_training_is_that_of_the_command_line(run, tmp_path):
    flags = [f'--gin_bindings={flag}' for flag in config.as_flags(BINDINGS)]
    process = start(['run_experiment.py', f'--gin_files={FILES[0]}', *flags], cwd=tmp_path)
    process.join(timeout=120)
    assert process.exitcode == 0
    folder = tmp_path / 'runs' / 'ob2i_deep_sea' / 'DeepSea' / 'seed3'
    assert tables_of(run.folder) == tables_of(folder)
    assert (run.folder / 'config.gin').read_text() == (folder / 'config.gin').read_text()


def test_training_twice_and_further(run, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    with nothing_left():
        first = ob2i_tf.train(FILES[0], [*config.as_flags(BINDINGS), 'Runner.num_iterations = 1'])
    assert first.folder == Path('runs', 'ob2i_deep_sea', 'DeepSea', 'seed3')
    assert len(first.train) == 1
    with nothing_left():
        ob2i_tf.train(FILES[0], BINDINGS, first.folder)
    assert tables_of(first.folder) == tables_of(run.folder)


def test_runs_are_not_taken_for_retracing(caplog):
    """As TensorFlow does from the fifth run on, since their functions share their code."""
    for context, function, warns in (
        (api._no_retracing_warnings(), lambda: tf.constant(1), False),
        (contextlib.nullcontext(), lambda: tf.constant(2), True),
    ):
        with context:
            for _ in range(6):
                tf.function(function)()
        assert any('retracing' in message for message in caplog.messages) == warns


def test_tables(run, tmp_path, monkeypatch):
    train, text = run.train, lines_of(run.folder, 'train')
    assert list(train) == list(COLUMNS['train']) and len(train) == len(run.eval) == 2
    assert [str(steps) for steps in train['agent_steps']] == [
        line.split(',')[2] for line in text[1:]
    ]
    assert train['loss'].dtype == float and run.table('episodes')['length'].tolist() == [4] * 20
    header = ','.join(COLUMNS['eval'])
    (tmp_path / 'eval.csv').write_text(
        f'{header}\n0,40,0,nan,nan,nan,nan\n1,80,2,1.5,0.5,1.0,2.0\n'
    )
    unmeasured = api.Run(tmp_path)
    assert unmeasured.eval['score_mean'].isna().tolist() == [True, False]
    assert unmeasured.eval['score_max'].iloc[1] == 2 and unmeasured.train.empty
    monkeypatch.setitem(sys.modules, 'pandas', None)
    with pytest.raises(UserError, match='^pandas is missing: pip install'):
        run.train  # noqa: B018


def test_values_are_those_of_the_run_itself(run, agent, tmp_path):
    """Which resumes from the same checkpoint in another way."""
    shutil.copytree(run.folder, tmp_path / 'copy')
    config.load([str(run.folder / 'config.gin')])
    parts = runner.Runner(base_dir=tmp_path / 'copy').parts
    batch = observations(agent, 6)
    expected = parts.posterior.mean(batch).numpy()
    assert np.ptp(expected, axis=1).min() > 0 and expected.shape == (6, 5, 2)
    np.testing.assert_array_equal(agent.q_values(batch), expected)
    np.testing.assert_allclose(agent.q_values(batch[0]), expected[0], rtol=1e-6)
    np.testing.assert_allclose(agent.bonus(batch), expected.std(axis=1), rtol=1e-4)
    np.testing.assert_allclose(agent.bonus(batch[0]), expected[0].std(axis=0), rtol=1e-4)
    assert agent.agent_steps == 80 and agent.task == 'DeepSea'


def test_it_plays_the_evaluation_of_its_run_again(run, agent):
    """Its heads, random actions and ties are those of the last evaluation."""
    agent.rng = np.random.default_rng(seeds.stream(3, 'evaluation', 1))
    agent.reset()
    env = agent.make_environment(1, seeds.integer(seeds.stream(3, 'evaluation_environment', 1)))
    observation, _ = env.reset()
    scores = []
    for _ in range(10):
        score, over = 0.0, [False]
        while not over[0]:
            observation, _, _, _, info = env.step(agent.act(observation))
            score, over = score + float(info['raw_rewards'][0]), info['game_over']
            agent.reset(over)
        scores.append(score)
    with open(run.folder / 'eval_episodes.csv', newline='') as file:
        rows = [row for row in csv.DictReader(file) if row['iteration'] == '1']
    np.testing.assert_allclose(scores, [float(row['score']) for row in rows], rtol=1e-6)
    assert len(set(scores)) > 2


def test_an_observation_and_a_batch(agent):
    batch = observations(agent, 3)
    assert type(agent.act(batch[0])) is int and len(agent.heads) == 1
    actions = agent.act(batch)
    assert actions.shape == (3,) and set(actions) <= {0, 1} and len(agent.heads) == 3
    assert agent.act(batch[:0]).shape == (0,)
    assert agent.q_values(batch[:1]).shape == (1, 5, 2) and agent.bonus(batch[:1]).shape == (1, 2)
    with pytest.raises(ValueError, match=r'must have shape \(4, 4\), got \(4, 3\)'):
        agent.q_values(batch[0, :, :3])
    with pytest.raises(TypeError, match='an observation must be uint8, got float'):
        agent.q_values(batch / 255)


def test_the_seed_decides(run):
    def actions(seed):
        agent = ob2i_tf.load(run.folder, seed)
        return [agent.act(row) for row in np.repeat(observations(agent, 10), 8, axis=0)]

    assert actions(1) == actions(1) != actions(2)


def test_reset_draws_the_followed_heads(agent):
    batch = observations(agent, 4)

    def greedy():
        return agent.act(batch, epsilon=0).tolist()

    followed = []
    for _ in range(20):
        agent.reset()
        agent.act(batch[0])
        followed += agent.heads.tolist()
    assert set(followed) == set(range(5))
    agent.act(batch)
    for _ in range(10):
        before = agent.heads.copy()
        expected = agent.q_values(batch)[np.arange(4), before].argmax(axis=-1).tolist()
        assert greedy() == expected == greedy()
        agent.reset([False, True, False, True])
        assert (agent.heads == before)[[0, 2]].all()
        followed += agent.heads.tolist()
    agent.reset(seed=5)
    again = agent.heads.tolist(), agent.rng.random()
    agent.reset(seed=5)
    assert (agent.heads.tolist(), agent.rng.random()) == again


def test_another_preference(agent):
    batch, followed = observations(agent, 5), agent.policy
    with nothing_left():
        voting = agent.with_preferences(ob2i_tf.acting.mean_preferences)
        actions = voting.act(batch, epsilon=0)
    np.testing.assert_array_equal(actions, agent.q_values(batch).mean(axis=1).argmax(axis=-1))
    assert agent.policy is followed and len(agent.heads) == 1
    with nothing_left(), pytest.raises(ConfigError, match='must map values'):
        agent.with_preferences(lambda q_values: q_values)


def test_a_saved_agent_acts_equally_and_cannot_be_continued(run, tmp_path):
    linear = {'Runner.num_iterations': 1, 'Runner.training_steps': 240}
    lsvi = ob2i_tf.train('lsvi_ucb_linear_mdp.gin', linear, tmp_path / 'lsvi')
    for trained in (run, lsvi):  # Of the second, the posterior is in arrays.
        agent, folder = ob2i_tf.load(trained.folder), tmp_path / 'saved' / trained.folder.name
        with nothing_left():
            agent.save(folder)
        saved = ob2i_tf.load(folder)
        batch = agent.make_environment(num_envs=8).reset()[0]
        if trained is run:
            batch = observations(agent, 8)
        np.testing.assert_array_equal(saved.q_values(batch), agent.q_values(batch))
        assert saved.act(batch, 0.5).tolist() == agent.act(batch, 0.5).tolist()
        assert (saved.agent_steps, saved.task) == (agent.agent_steps, agent.task)
        assert (folder / 'config.gin').read_text() == (trained.folder / 'config.gin').read_text()
        assert agent.q_values(batch).any()
    folder = tmp_path / 'saved' / 'run'
    (checkpoint,) = (folder / 'checkpoints').iterdir()
    names = [name.split('/') for name, _ in tf.train.list_variables(f'{checkpoint}/variables')]
    assert {name[1] for name in names if name[1:]} == {'network', '_generator'}
    with pytest.raises(UserError, match='run cannot be continued: its replay was'):
        ob2i_tf.train(FILES, {**BINDINGS, 'Runner.num_iterations': 3}, folder)
    with pytest.raises(UserError, match='run is not empty'):
        ob2i_tf.load(folder).save(run.folder)


@gin.configurable
def own_reward(scale: float = 1.0):
    return scale


@gin.configurable
def configured_sea(num_envs, seed):
    """A Deep Sea that asks gin for its rewards at each step."""

    class OwnSea(ob2i_tf.environments.deep_sea.DeepSea):
        def step(self, action):
            observation, _, *over, info = super().step(action)
            return observation, own_reward(), *over, info

    return DenseVectorEnv(lambda: OwnSea(3, 0, True), num_envs, seed, max_episode_steps=3)


config.uses('configured_sea', 'own_reward')


def test_agents_side_by_side_keep_their_own_configurations(run, agent, tmp_path):
    bindings = {**BINDINGS, 'Runner.num_iterations': 1, 'Runner.environment': '@configured_sea'}
    del bindings['make_deep_sea.size']
    others = [
        ob2i_tf.train(FILES, {**bindings, 'own_reward.scale': scale}, tmp_path / str(scale))
        for scale in (2.0, 3.0)
    ]
    with nothing_left():
        others = [ob2i_tf.load(other.folder) for other in others]
        for _ in range(2):
            for one, size, reward in ((agent, 4, None), (others[0], 3, 2), (others[1], 3, 3)):
                assert one.environment.observation_shape == (size, size)
                env = one.make_environment(num_envs=2)
                observation, _ = env.reset()
                assert observation.shape == (2, size, size)
                _, rewards, *_ = env.step(one.act(observation))
                assert reward is None or rewards.tolist() == [reward] * 2
                assert one.bonus(observation).shape == (2, 2)


ERRORS = {
    'no file': ([], {}),
    'a missing file': (['ob2i_deepsea.gin'], {}),
    'a name': (FILES, {'Runner.sed': 3}),
    'a value': (FILES, {'Agent.epsilon': '@@linear'}),
    'a constructor': (
        FILES,
        {
            **BINDINGS,
            'LsviPosterior.horizon': 3,
            'LsviPosterior.method': 'ucb',
            'Runner.posterior': '@LsviPosterior',
        },
    ),
    'a folder': (FILES, {**BINDINGS, 'Runner.seed': 4}),
    'too few iterations': (FILES, {**BINDINGS, 'Runner.num_iterations': 1}),
}


@pytest.mark.parametrize('files, bindings', ERRORS.values(), ids=ERRORS)
def test_errors_are_those_of_the_command_line(files, bindings, run, capsys):
    flags = [f'--gin_bindings={flag}' for flag in config.as_flags(bindings)]
    flags += [f'--gin_files={file}' for file in files] + [f'--base_dir={run.folder}']
    status = main.main(['run_experiment.py', *flags])
    expected = capsys.readouterr().err.splitlines()[-1]
    with nothing_left(), pytest.raises(UserError) as error:
        ob2i_tf.train(files, bindings, run.folder)
    assert f'error: {error.value}' == expected
    assert isinstance(error.value, ConfigError) == (status == 2)
    # Its traceback keeps the run alive, but not its lock.
    assert len(ob2i_tf.train(FILES, BINDINGS, run.folder).train) == 2


def test_an_error_of_a_class_from_another_module(tmp_path):
    """EpisodeTooLongError."""
    bindings = {**BINDINGS, 'EpisodeReplay.capacity_transitions': 3}
    with nothing_left(), pytest.raises(UserError, match='an episode of 4 transitions'):
        ob2i_tf.train(FILES, bindings, tmp_path)


def test_a_folder_that_cannot_be_loaded(run, tmp_path):
    with nothing_left(), pytest.raises(UserError, match='is not a run folder: it has no config'):
        ob2i_tf.load(tmp_path)
    own = (run.folder / 'config.gin').read_text()
    for name, text, kind, says in (
        ('untrained', own, CheckpointError, 'no checkpoint in'),
        ('import', f'import here.there\n{own}', ConfigError, r"allow_imports=\['here.there'\]$"),
        (
            'other',
            own.replace('num_heads = 5', 'num_heads = 0'),
            ConfigError,
            'MultiHeadQNetwork.num_heads: expected at least 1, got 0$',
        ),
    ):
        (tmp_path / name).mkdir()
        (tmp_path / name / 'config.gin').write_text(text)
        with nothing_left(), pytest.raises(kind, match=says):
            ob2i_tf.load(tmp_path / name)


def test_bindings_of_python_values():
    bindings = {
        'a.b': 'text',
        'a.c': '@scope/name()',
        'horizon': (1, -2.5, None, True, {'k': ['%macro', b'x']}),
    }
    assert config.as_flags(bindings) == [
        "a.b = 'text'",
        'a.c = @scope/name()',
        "horizon = (1, -2.5, None, True, {'k': [%macro, b'x']})",
    ]
    for value in (float('nan'), object(), np.float32(1)):
        with pytest.raises(ConfigError, match='^a.b: gin cannot express'):
            config.as_flags({'a.b': value})


def test_an_interrupt_saves_and_the_same_call_resumes(run, tmp_path, monkeypatch):
    def train():
        return ob2i_tf.train(FILES, BINDINGS, tmp_path / 'run')

    observe = Agent.observe

    def observe_and_interrupt(self, *args):
        observe(self, *args)
        if self.agent_steps == 50:
            signal.raise_signal(signal.SIGINT)

    with monkeypatch.context() as patch, nothing_left():
        patch.setattr(Agent, 'observe', observe_and_interrupt)
        with pytest.raises(KeyboardInterrupt, match='saved') as interrupted:
            train()
    assert ob2i_tf.load(tmp_path / 'run').agent_steps == 50
    assert tables_of(train().folder) == tables_of(run.folder)
    assert interrupted.traceback  # Which keeps the first run alive, but not its lock.


def test_a_second_interrupt_is_one_of_python(monkeypatch):
    with StopRequest() as stop:
        signal.raise_signal(signal.SIGINT)
        assert stop.signal == signal.SIGINT
        with pytest.raises(KeyboardInterrupt):
            signal.raise_signal(signal.SIGINT)


def test_names_come_without_tensorflow():
    code = (
        'import sys, ob2i_tf; ob2i_tf.load, ob2i_tf.train, ob2i_tf.api.Run; '
        'print({"tensorflow", "pandas"} & sys.modules.keys())'
    )
    done = subprocess.run([sys.executable, '-c', code], cwd=ROOT, capture_output=True, text=True)
    assert done.stdout.strip() == 'set()', done.stderr


def test_it_is_quiet(tmp_path):
    """Neither TensorFlow's messages nor those of its GPU libraries."""
    code = "import ob2i_tf; ob2i_tf.load('ob2i_deep_sea')"
    done = subprocess.run([sys.executable, '-c', code], cwd=ROOT, capture_output=True, text=True)
    assert done.returncode == 0 and not done.stdout + done.stderr


@pytest.mark.parametrize(('name', 'most'), [('ob2i_deep_sea', 300_000), ('ob2i_breakout', 5e6)])
def test_an_agent_that_comes_along_is_small_and_names_no_path(name, most):
    files = [path for path in (ROOT / 'agents' / name).rglob('*') if path.is_file()]
    assert 0 < sum(path.stat().st_size for path in files) < most
    assert not [path for path in files if re.search(rb'/(home|root|tmp|work)/', path.read_bytes())]


def test_the_agent_of_breakout_plays():
    agent = ob2i_tf.load('ob2i_breakout')
    ((score, _),) = evaluate.play_games(agent, 1)
    assert agent.agent_steps == 200_000 and score > 5  # The random policy has 1.3.


def test_the_agent_of_deep_sea_plays(tmp_path, monkeypatch, capsys):
    folder = ROOT / 'agents' / 'ob2i_deep_sea'
    monkeypatch.chdir(tmp_path)
    agent = ob2i_tf.load('ob2i_deep_sea')
    assert agent.agent_steps == 5000
    assert [round(score, 6) for score, _ in evaluate.play_games(agent, 3, epsilon=0)] == [0.99] * 3
    assert episode.main(['ob2i_deep_sea', '--out', 'viewer']) == 0
    assert evaluate.main([str(folder), '--games=2', '--epsilon=0', '--out=games.csv']) == 0
    assert 'DeepSea, ob2i_deep_sea, 5,000' in Path('viewer', 'episode.html').read_text()
    assert Path('games.csv').read_text().count(',0.99') == 2


def run_code(cells, folder):
    """Runs cells of a page or a notebook one after another, in a process of their own."""
    done = processes.run_code('\n\n'.join(cells), folder, {'MPLBACKEND': 'agg'})
    assert done.returncode == 0, done.stderr[-2000:]
    return done.stdout


def test_the_page_on_python_and_the_readme(tmp_path):
    text = read('docs/python.md')
    cells = [*code_blocks('python', read('README.md')), *code_blocks('python', text)]
    shown = 'print(agent.environment.observation_shape, run.folder, len(run.train))'
    *_, error, last = run_code([*cells, shown], tmp_path).splitlines()
    assert error.endswith("EpisodicUpdate has no parameter 'bta' (did you mean 'beta'?)")
    assert last == '(5, 5) runs/small_sea 3'
    shown = [bound_by(words) for words in commands(text) if words[0] == 'run_experiment.py']
    for name, (files, bindings) in zip(('ob2i_deep_sea', 'ob2i_breakout'), shown, strict=True):
        config.load(files, bindings)
        shipped = ROOT / 'agents' / name / 'config.gin'
        assert config.resolved_config() == shipped.read_text()


SHOWN = {  # Printed after the last cell.
    'own_bonus': 'print(len(runs), (runs["spread"].train["bonus_mean"] > 0).all())',
    'train_and_look': 'print(path, round(float(score), 2))',
}


@pytest.mark.parametrize('name', SHOWN)
def test_a_notebook_runs(name, tmp_path):
    notebook = json.loads(read(f'docs/notebooks/{name}.ipynb'))
    cells = [cell for cell in notebook['cells'] if cell['cell_type'] == 'code']
    assert not any(cell['outputs'] or cell['execution_count'] for cell in cells)
    printed = run_code([''.join(cell['source']) for cell in cells] + [SHOWN[name]], tmp_path)
    expected = {'own_bonus': '2 True', 'train_and_look': '[0, 1, 2, 3, 4, 5] 0.99'}
    assert printed.splitlines()[-1] == expected[name]
    assert f'notebooks/{name}.ipynb' in read('docs/python.md')
