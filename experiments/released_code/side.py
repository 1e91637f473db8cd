"""One run of either side, for its speed or its learning curve; to be called in a new process.

Both sides play the same environment, `make_atari` as gin binds it.
"""

import contextlib
import csv
import itertools
import time
from pathlib import Path

import numpy as np
from absl import logging

from experiments.released_code import theirs
from ob2i_tf import config, seeds
from ob2i_tf.training import build, loop, system
from ob2i_tf.training import main as training
from ob2i_tf.training.runner import Runner

SPEED_COLUMNS = 'agent_steps', 'learner_steps', 'steps_per_second', 'cpu_ms_per_step'


def play(parts, env, agent_steps):
    """Our training loop, without logs and checkpoints; yields after each agent step."""
    agent = parts.agent
    observations, _ = env.reset()
    agent.begin(observations)
    steps = loop.play(env, observations, agent.act, meanwhile=agent.learn)
    for step, _ in itertools.islice(steps, agent_steps):
        agent.observe(step)
        yield


def speed(side, clones, gin_files, bindings, timed_steps=2000):
    """Times a training loop without evaluations, from 200 agent steps after the first learner step.

    Args:
      side: 'ours' or 'theirs'.
      clones: See `theirs.load`.
      gin_files, bindings: Configuration of both sides.
      timed_steps: Agent steps.

    Returns:
      A tuple of SPEED_COLUMNS.
    """
    logging.set_verbosity(logging.ERROR)
    config.load(gin_files, bindings)
    start = config.value('Agent.learning_starts') + 200  # Functions have been traced by then.
    end = start + timed_steps
    readings = []

    def read(learner_steps):
        readings.append((time.perf_counter(), time.process_time(), learner_steps))

    if side == 'ours':
        system.keep_freed_memory()  # As run_experiment.py does.
        parts = Runner('unused', dry_run=True).parts
        stream = seeds.stream(0, 'environment', 0)
        with build.open_environments(config.bound(Runner)['environment'], 1, stream) as env:
            read(0)
            for _ in play(parts, env, end):
                read(parts.learner.learner_steps)
    else:
        modules = theirs.load(*clones)

        class Model(modules.deepq.DEEPQ):
            learner_steps = 0

            def step(self, *arguments, **keywords):
                read(self.learner_steps)  # After all that belongs to the agent step before.
                return super().step(*arguments, **keywords)

            def train_bebu(self, *arguments, **keywords):
                self.learner_steps += 1
                return super().train_bebu(*arguments, **keywords)

        modules.deepq.DEEPQ = Model
        with contextlib.closing(config.bound(Runner)['environment'](num_envs=1, seed=0)) as env:
            theirs.learn(modules, theirs.OldEnvironment(env, end), seed=0)
    wall, cpu, learner_steps = np.subtract(readings[end], readings[start])
    return timed_steps, int(learner_steps), timed_steps / wall, 1e3 * cpu / timed_steps


def curve(side, clones, gin_files, bindings, folder: Path):
    """Trains, unless that is complete, and writes eval.csv; see `speed`.

    Theirs is evaluated over as many agent steps and with the same epsilon as ours.
    """
    table = folder / 'eval.csv'
    if side == 'ours':
        training.train(gin_files, bindings, folder)
        return
    if table.exists():
        return
    logging.set_verbosity(logging.ERROR)
    config.load(gin_files, bindings)
    modules, rows = theirs.load(*clones), []
    seed, make = config.value('Runner.seed'), config.bound(Runner)['environment']

    def evaluate(model, _):
        scores = _evaluation(model, make(num_envs=1, seed=1000 * seed + len(rows) + 1))
        mean, std = (np.mean(scores), np.std(scores)) if scores else (np.nan, np.nan)
        agent_steps = env.steps - 1  # Their evaluation at a step follows the next one.
        rows.append((4 * agent_steps, len(scores), mean, std))
        print(f'{agent_steps:,} agent steps: {mean:.4g}', flush=True)
        return mean, std, len(scores)

    modules.deepq.evaluate_max_steps = evaluate
    steps = config.value('Runner.num_iterations') * config.value('Runner.training_steps')
    folder.mkdir(parents=True, exist_ok=True)
    with contextlib.closing(make(num_envs=1, seed=1000 * seed)) as played:
        env = theirs.OldEnvironment(played, steps + 1)
        theirs.learn(modules, env, seed=seed, checkpoint_path=folder)
    with open(table, 'w', newline='') as file:
        columns = 'frames', 'episodes', 'score_mean', 'score_std'
        csv.writer(file).writerows([columns, *rows])


def _evaluation(model, env):
    """Scores of the games that end within an evaluation, by the vote of their model."""
    epsilon, count = (config.value(f'Runner.evaluation_{name}') for name in ('epsilon', 'steps'))

    def act(observations):
        return np.array([model.step(observations, update_eps=epsilon, action_selection='vote')])

    with contextlib.closing(env):
        steps = loop.play(env, env.reset()[0], act)
        return [game.score for _, games in itertools.islice(steps, count) for game in games]
