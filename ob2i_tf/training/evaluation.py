"""The evaluation that ends each iteration."""

import itertools
import math
from collections.abc import Callable

import numpy as np

from ob2i_tf import frames, seeds
from ob2i_tf.training import build, loop, progress, tensorboard


class Evaluation:
    """Plays games by the evaluated agent; nothing in training depends on it.

    Args:
      parts: Parts of the run.
      environment: Factory, see `build.build`.
      num_envs: Number of environments that play in lockstep.
      agent_steps: Agent steps per evaluation, shared by the environments; 0: no evaluation.
      epsilon: Probability of a random action.
      seed: Seed of the run.

    Attributes:
      steps: Agent steps per environment and evaluation.
    """

    def __init__(
        self,
        parts: build.Parts,
        environment: Callable,
        num_envs: int,
        agent_steps: int,
        epsilon: float,
        seed: int,
    ):
        self._parts = parts
        self._environment = environment
        self._num_envs = num_envs
        self.steps = math.ceil(agent_steps / num_envs)
        self._epsilon = epsilon
        self._seed = seed

    def play(
        self, iteration: int, meanwhile: Callable[[], None]
    ) -> tuple[list[loop.Game] | None, tensorboard.GameRecording | None]:
        """Plays the evaluation of an iteration.

        Args:
          iteration: Number of the iteration.
          meanwhile: Called between steps.

        Returns:
          The games that ended within these steps, and a recording of the first; None and None
          without an evaluation.
        """
        if not self.steps:
            return None, None
        parts, games, recording = self._parts, [], tensorboard.GameRecording()
        rng = np.random.default_rng(seeds.stream(self._seed, 'evaluation', iteration))
        stream = seeds.stream(self._seed, 'evaluation_environment', iteration)
        with build.open_environments(self._environment, self._num_envs, stream) as env:
            meanwhile()
            observations, _ = env.reset()
            meanwhile()
            played = loop.play_policy(
                env, observations, parts.evaluation_policy, parts.posterior, self._epsilon, rng
            )
            played = itertools.islice(played, self.steps)
            for step, finished in progress.progress_bar(played, self.steps, 'evaluating'):
                games += finished
                newest = frames.newest(step.acted_on, parts.environment.history)
                recording.add(newest, step.info['game_over'])
                meanwhile()
        return games, recording
