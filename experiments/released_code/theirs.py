"""The authors' released code, imported from a clone that stays untouched.

Module and function names beyond those of this package are theirs: github.com/Baichenjia/OB2I, which
imports github.com/openai/baselines.
"""

import ast
import contextlib
import sys
import types
import warnings
from pathlib import Path

import numpy as np

from ob2i_tf import cli, config
from ob2i_tf.errors import UserError

cli.import_tensorflow()

import tensorflow as tf  # noqa: E402

_MODULES = ('models', 'replay_buffer', 'deepq_learner', 'deepq')


def load(repo: Path, baselines: Path) -> types.SimpleNamespace:
    """Imports their modules, with stand-ins for what TensorFlow and NumPy no longer have.

    Args:
      repo: Work tree of a clone of Baichenjia/OB2I.
      baselines: Work tree of a clone of openai/baselines.

    Returns:
      {name: module} as a namespace.

    Raises:
      UserError: A folder is not such a work tree.
    """
    for folder, file in ((repo, 'deepq_learner.py'), (baselines, 'baselines/logger.py')):
        if not (Path(folder) / file).is_file():
            raise UserError(f'{folder} holds no {file}: it must be the work tree of a clone')
    tf.ConfigProto = tf.compat.v1.ConfigProto  # Each module configures a session.
    tf.enable_eager_execution = lambda config=None: None  # TensorFlow 2 is eager already.
    tf.set_random_seed = tf.random.set_seed  # baselines.common.set_global_seeds calls it.
    tf.log = tf.math.log  # Acting by IDS calls it.
    tf.train.AdamOptimizer = tf.compat.v1.train.AdamOptimizer  # The optimizer of deepq.learn.
    if 'bool' not in vars(np):
        np.bool = bool  # The type of an array of their replay; NumPy 1.24 dropped it.
    sys.path[:0] = [str(repo), str(baselines)]
    try:
        return types.SimpleNamespace(**{name: __import__(name) for name in _MODULES})
    finally:
        del sys.path[:2]


def defaults(repo: Path) -> dict:
    """{option: default} of their run_atari.py, and the constants that it passes to `learn`."""
    found = {}
    for call in ast.walk(ast.parse((Path(repo) / 'run_atari.py').read_text())):
        if not isinstance(call, ast.Call):
            continue
        keywords = {keyword.arg: keyword.value for keyword in call.keywords}
        if getattr(call.func, 'attr', '') == 'add_argument' and 'default' in keywords:
            name = call.args[0].value.removeprefix('--').replace('-', '_')
            expression = compile(ast.Expression(keywords['default']), 'run_atari.py', 'eval')
            found[name] = eval(expression, {'int': int})
        elif getattr(call.func, 'id', '') == 'learn':
            constants = {n: v.value for n, v in keywords.items() if isinstance(v, ast.Constant)}
            found.update(constants)
    return found


def resize(modules: types.SimpleNamespace) -> None:
    """Gives networks that they make the sizes that gin binds for ours."""
    conv_layers = config.value('MultiHeadQNetwork.conv_layers')
    hidden_units = config.value('MultiHeadQNetwork.hidden_units')

    class Network(modules.models.BootQNetwork):
        def __init__(self, *arguments, **keywords):
            super().__init__(*arguments, **keywords)
            convolutions = self.conv1, self.conv2, self.conv3
            for layer, (filters, *shape) in zip(convolutions, conv_layers, strict=True):
                assert [layer.kernel_size[0], layer.strides[0]] == shape
                layer.filters = filters  # Kernels are made at the first call.
            for head in self.boot_head:
                head.dense1.units = hidden_units

    modules.deepq_learner.BootQNetwork = Network


def make_model(modules: types.SimpleNamespace, num_actions: int):
    """Their agent and learner as run_atari.py makes it with --ebu, with gin's numbers."""
    return modules.deepq_learner.DEEPQ(
        ebu=True,
        beta=config.value('EpisodicUpdate.beta'),
        observation_shape=(84, 84, 4),
        num_actions=num_actions,
        grad_norm_clipping=10,  # The constant of deepq.learn.
        gamma=config.value('Agent.discount'),
        optimizer=tf.train.AdamOptimizer(config.value('adam.learning_rate')),
        num_ensemble=config.value('MultiHeadQNetwork.num_heads'),
        gradient_norm=True,
        batch_size=config.value('EpisodicUpdate.batch_size'),
        **_SWITCHES,
    )


_SWITCHES = {  # Of --ebu --reward-type ucb; those without `ebu` in their name are then unused.
    'normrew': False,
    'normnxq': True,
    'normrew_ebu': False,
    'normnxq_ebu': True,
    'prior': False,
    'prior_scale': 3.0,
}


class Finished(Exception):
    """The environment has played all its agent steps."""


class OldEnvironment:
    """One copy of an environment of this package, by the interface of gym that theirs calls.

    Args:
      env: Vector environment with one copy.
      agent_steps: Agent steps after which `step` raises Finished; 0: never.
      on_step: Called with the number of each agent step, from 1, before it is played.
      on_game: Called with the score of each finished game.

    Attributes:
      steps: Number of agent steps taken.
    """

    def __init__(self, env, agent_steps=0, on_step=lambda _: None, on_game=lambda _: None):
        self.observation_space = env.single_observation_space
        self.action_space = env.single_action_space
        self.was_real_done = True
        self.unwrapped = self
        self._env, self._limit = env, agent_steps
        self._on_step, self._on_game = on_step, on_game
        self.steps, self._score = 0, 0.0
        self._first = env.reset()[0][0]

    def reset(self) -> np.ndarray:
        """The first stack of the game or life that follows; it has been reached already."""
        return self._first

    def step(self, action: int) -> tuple:
        if self._limit and self.steps == self._limit:
            raise Finished
        self.steps += 1
        self._on_step(self.steps)
        observations, rewards, terminated, truncated, info = self._env.step(np.array([action]))
        self._first, self.was_real_done = observations[0], bool(info['game_over'][0])
        self._score += float(info['raw_rewards'][0])
        report = {}
        if self.was_real_done:
            report = {'episode': {'r': self._score}}
            self._on_game(self._score)
            self._score = 0.0
        done = bool(terminated[0] or truncated[0])
        return info['final_obs'][0], rewards[0], done, report


def learn(modules, env: OldEnvironment, eval_env=None, seed=None, folder='', **keywords) -> None:
    """Their `deepq.learn` with gin's numbers, until `env` is finished.

    Args:
      modules: See `load`.
      env: Environment with a limit.
      eval_env: Passed to their evaluation.
      seed: Seed of NumPy and TensorFlow.
      folder: Folder of their results.
      **keywords: Passed on.
    """
    value = config.value
    with warnings.catch_warnings(), contextlib.suppress(Finished):
        warnings.simplefilter('ignore')  # Means of no scores yet.
        modules.deepq.learn(
            env,
            eval_env,
            ebu=True,
            beta=value('EpisodicUpdate.beta'),
            action_selection='sample',
            reward_type='ucb',
            rew_immed_ratio=0.0,  # Without --ebu only, like the next.
            rew_nextq_ratio=0.0,
            rew_immed_ratio_ebu=value('EpisodicUpdate.alpha_1'),
            rew_nextq_ratio_ebu=value('EpisodicUpdate.alpha_2'),
            num_ensemble=value('MultiHeadQNetwork.num_heads'),
            seed=seed,
            lr=value('adam.learning_rate'),
            total_timesteps=sys.maxsize,  # The environment ends it.
            buffer_size=value('EpisodeReplay.capacity_transitions'),
            exploration_fraction=(value('linear.steps') + 0.5) / 5e6,  # Rounded down there.
            exploration_final_eps=value('linear.final'),
            train_freq=value('Agent.train_period'),
            batch_size=value('EpisodicUpdate.batch_size'),
            print_freq=None,
            checkpoint_path=folder,
            learning_starts=value('Agent.learning_starts'),
            gamma=value('Agent.discount'),
            target_network_update_freq=value('Agent.target_period'),
            **_SWITCHES,
            **{'checkpoint_freq': None, **keywords},
        )
