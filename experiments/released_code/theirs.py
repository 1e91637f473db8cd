"""The authors' released code, imported from a clone that stays untouched.

Names of modules and functions that this package does not have are theirs:
github.com/Baichenjia/OB2I, which imports github.com/openai/baselines.
"""

import argparse
import ast
import contextlib
import inspect
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
      {name: module} as a namespace, with `defaults` of their command line.

    Raises:
      UserError: A folder is not such a work tree.
    """
    for folder, file in ((repo, 'deepq_learner.py'), (baselines, 'baselines/logger.py')):
        if not (folder / file).is_file():
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
        modules = {name: __import__(name) for name in _MODULES}
    finally:
        del sys.path[:2]
    return types.SimpleNamespace(**modules, defaults=defaults(repo))


def defaults(repo: Path) -> dict:
    """{option: default} of their run_atari.py, and the constants that it passes to `learn`."""
    parser, constants = argparse.ArgumentParser(), {}
    for node in ast.walk(ast.parse((repo / 'run_atari.py').read_text())):
        function = ast.unparse(node.func) if isinstance(node, ast.Call) else ''
        if function == 'parser.add_argument':
            eval(ast.unparse(node), {'parser': parser})
        elif function == 'learn':
            passed = {keyword.arg: keyword.value for keyword in node.keywords}
            constants = {n: v.value for n, v in passed.items() if isinstance(v, ast.Constant)}
    return {**vars(parser.parse_args([])), **constants}


def settings() -> dict:
    """{option of theirs: gin's number for ours}."""
    value = config.value
    return {
        'num_timesteps': value('Runner.num_iterations') * value('Runner.training_steps'),
        'checkpoint_freq': value('Runner.training_steps'),
        'buffer_size': value('EpisodeReplay.capacity_transitions'),
        'lr': value('adam.learning_rate'),
        'learning_starts': value('Agent.learning_starts'),
        'target_network_update_freq': value('Agent.target_period'),
        'train_freq': value('Agent.train_period'),
        'gamma': value('Agent.discount'),
        'exploration_fraction': value('linear.steps') / 5e6,
        'exploration_final_eps': value('linear.final'),
        'num_ensemble': value('MultiHeadQNetwork.num_heads'),
        'rew_immed_ratio_ebu': value('EpisodicUpdate.alpha_1'),
        'rew_nextq_ratio_ebu': value('EpisodicUpdate.alpha_2'),
        'beta': value('EpisodicUpdate.beta'),
    }


def learn(modules, env, **keywords):
    """Their `deepq.learn`, as run_atari.py --ebu --reward-type ucb calls it, with gin's numbers.

    Args:
      modules: See `load`.
      env: OldEnvironment; its limit ends the training.
      **keywords: Arguments of `deepq.learn` that override all others.

    Returns:
      Their model, agent and learner in one; None if `env` ended the training.
    """
    _resize(modules)
    options = {
        **modules.defaults,
        **settings(),
        'exploration_fraction': (config.value('linear.steps') + 0.5) / 5e6,  # Rounded down there.
        'batch_size': config.value('EpisodicUpdate.batch_size'),
        'env': env,
        'eval_env': None,
        'ebu': True,
        'reward_type': 'ucb',
        'total_timesteps': sys.maxsize,
        'print_freq': None,
        **keywords,
    }
    accepted = options.keys() & inspect.signature(modules.deepq.learn).parameters
    with warnings.catch_warnings(), contextlib.suppress(Finished):
        warnings.simplefilter('ignore')  # Means of no scores yet.
        return modules.deepq.learn(**{name: options[name] for name in accepted})


def make_model(modules):
    """Their model for 4 actions, as `learn` makes it."""
    env = types.SimpleNamespace(
        observation_space=types.SimpleNamespace(shape=(84, 84, 4)),
        action_space=types.SimpleNamespace(n=4),
        reset=lambda: 0,
    )
    return learn(modules, env, total_timesteps=0, buffer_size=1)


def _resize(modules):
    """Gives the networks that they make from now on the sizes that gin binds for ours."""
    conv_layers = config.value('MultiHeadQNetwork.conv_layers')
    hidden_units = config.value('MultiHeadQNetwork.hidden_units')

    class Network(modules.models.BootQNetwork):
        def __init__(self, *arguments, **keywords):
            super().__init__(*arguments, **keywords)  # Kernels are made at the first call.
            convolutions = self.conv1, self.conv2, self.conv3
            for layer, (filters, size, stride) in zip(convolutions, conv_layers, strict=True):
                layer.filters = filters
                layer.kernel_size, layer.strides = (size, size), (stride, stride)
            for head in self.boot_head:
                head.dense1.units = hidden_units

    modules.deepq_learner.BootQNetwork = Network


class Finished(Exception):
    """The environment has played all its agent steps."""


class OldEnvironment:
    """A vector environment with one copy, behind the old interface of gym that theirs calls.

    Args:
      env: Vector environment of this package, with one copy.
      agent_steps: Agent steps after which `step` raises Finished.

    Attributes:
      steps: Number of agent steps taken.
      was_real_done: Whether the last one ended a game, rather than only a life.
    """

    def __init__(self, env, agent_steps: int):
        self.observation_space = env.single_observation_space
        self.action_space = env.single_action_space
        self.steps = 0
        self._env, self._limit = env, agent_steps
        self._observations, _ = env.reset()

    def reset(self) -> np.ndarray:
        """The first stack of the next game or life, which the environment already shows."""
        return self._observations[0]

    def step(self, action: int) -> tuple:
        if self.steps == self._limit:
            raise Finished
        self.steps += 1
        results = self._env.step(np.array([action]))
        self._observations, rewards, terminated, truncated, info = results
        self.was_real_done = bool(info['game_over'][0])
        done = bool(terminated[0] or truncated[0])
        scores = {'episode': {'r': 0.0}}  # Only their log shows it, which is off.
        return info['final_obs'][0], rewards[0], done, scores
