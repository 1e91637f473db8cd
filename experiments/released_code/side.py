"""One run of one side in a separate process, for the speed or a learning curve.

  python -m experiments.released_code.side speed theirs OB2I baselines --gin_files F --agent_steps N
  python -m experiments.released_code.side curve ours OB2I baselines --gin_files F --base_dir DIR

`experiments.released_code` runs it. Both sides play the same environment, `make_atari` as gin
binds it. `speed` prints JSON; `curve` trains, and writes eval.csv into DIR.
"""

import contextlib
import csv
import json
import sys
import time
from pathlib import Path

import numpy as np
from absl import logging

from experiments.released_code import theirs
from ob2i_tf import cli, config, seeds
from ob2i_tf.training import build, loop, system
from ob2i_tf.training import main as training
from ob2i_tf.training.runner import Runner

COLUMNS = 'frames', 'episodes', 'score_mean', 'score_std'


class Clock:
    """Times the agent steps after the first `start` ones, up to `end`."""

    def __init__(self, start, end, learner_steps):
        self._at, self._learner_steps, self._readings = (start, end), learner_steps, []

    def __call__(self, agent_steps):
        """To be called when so many agent steps have been taken."""
        if agent_steps in self._at:
            self._readings.append([time.perf_counter(), time.process_time(), self._learner_steps()])

    def report(self):
        start, end = np.array(self._readings)
        wall, cpu, learner_steps = end - start
        steps = self._at[1] - self._at[0]
        return {
            'agent_steps': steps,
            'learner_steps': int(learner_steps),
            'steps_per_second': steps / wall,
            'cpu_ms_per_step': 1e3 * cpu / steps,
        }


def speed_of_ours(start, end, folder):
    """Agent steps/s of our training loop, without logs and checkpoints."""
    system.keep_freed_memory()  # As run_experiment.py does.
    parts = Runner(folder, dry_run=True).parts
    agent = parts.agent
    clock = Clock(start, end, lambda: parts.learner.learner_steps)
    stream = seeds.stream(0, 'environment', 0)
    with build.open_environments(config.bound(Runner)['environment'], 1, stream) as env:
        observations, _ = env.reset()
        agent.begin(observations)
        for step, _ in loop.play(env, observations, agent.act, meanwhile=agent.learn):
            agent.observe(step)
            clock(agent.agent_steps)
            if agent.agent_steps == end:
                break
    return clock.report()


def speed_of_theirs(modules, start, end):
    """Agent steps/s of their `learn`, without evaluations."""
    learner_steps = 0

    class Counted(modules.deepq.DEEPQ):
        def train_bebu(self, *arguments, **keywords):
            nonlocal learner_steps
            learner_steps += 1
            return super().train_bebu(*arguments, **keywords)

    modules.deepq.DEEPQ = Counted
    clock = Clock(start, end, lambda: learner_steps)
    with contextlib.closing(config.bound(Runner)['environment'](num_envs=1, seed=0)) as env:
        # The last action is chosen, but not played.
        limited = theirs.OldEnvironment(env, end + 1, lambda step: clock(step - 1))
        theirs.learn(modules, limited, seed=0)
    return clock.report()


def curve_of_theirs(modules, folder):
    """Trains their agent, with evaluations of as many steps and the same epsilon as ours."""
    seed, period = config.value('Runner.seed'), config.value('Runner.training_steps')
    make = config.bound(Runner)['environment']
    folder.mkdir(parents=True, exist_ok=True)
    table = folder / 'eval.csv'
    if table.exists():
        return
    evaluations = 0
    with open(folder / 'eval.part.csv', 'w', newline='') as file:
        writer = csv.writer(file)
        writer.writerow(COLUMNS)

        def evaluate(model, _):
            nonlocal evaluations
            evaluations += 1
            scores = _evaluation(model, make(num_envs=1, seed=1000 * seed + evaluations))
            mean, std = (np.mean(scores), np.std(scores)) if scores else (np.nan, np.nan)
            agent_steps = env.steps - 1
            writer.writerow([4 * agent_steps, len(scores), mean, std])
            file.flush()
            print(f'{agent_steps:,} agent steps: {mean:.4g}', flush=True)
            return mean, std, len(scores)

        modules.deepq.evaluate_max_steps = evaluate
        steps = config.value('Runner.num_iterations') * period
        with contextlib.closing(make(num_envs=1, seed=1000 * seed)) as played:
            # Their evaluation at a step follows the next one.
            env = theirs.OldEnvironment(played, steps + 1)
            theirs.learn(modules, env, seed=seed, folder=str(folder), checkpoint_freq=period)
    (folder / 'eval.part.csv').rename(table)


def _evaluation(model, env):
    """Scores of the games that end within an evaluation, by the vote of their model."""
    scores = []
    with contextlib.closing(env):
        played = theirs.OldEnvironment(env, on_game=scores.append)
        obs, epsilon = played.reset(), config.value('Runner.evaluation_epsilon')
        for _ in range(config.value('Runner.evaluation_steps')):
            action = model.step(obs[None], update_eps=epsilon, action_selection='vote')
            obs, _, done, _ = played.step(action)
            obs = played.reset() if done else obs
    return scores


@cli.command()
def main(argv=None):
    """Runs the command line; returns the exit status."""
    parser = cli.parser('experiments.released_code.side', __doc__)
    parser.add_argument('what', choices=['speed', 'curve'])
    parser.add_argument('side', choices=['ours', 'theirs'])
    parser.add_argument('repo', type=Path)
    parser.add_argument('baselines', type=Path)
    parser.add_argument('--gin_files', nargs='+', required=True)
    parser.add_argument('--gin_bindings', nargs='*', default=[])
    parser.add_argument('--agent_steps', type=cli.count, default=2000, help='timed ones')
    parser.add_argument('--base_dir', type=Path, default=Path('unused'))
    arguments = parser.parse_args(argv)
    if arguments.what == 'curve' and arguments.side == 'ours':
        training.train(arguments.gin_files, arguments.gin_bindings, arguments.base_dir)
        return 0
    logging.set_verbosity(logging.ERROR)
    config.load(arguments.gin_files, arguments.gin_bindings)
    start = config.value('Agent.learning_starts') + 200  # Functions have been traced by then.
    end = start + arguments.agent_steps
    if arguments.side == 'ours':
        print(json.dumps(speed_of_ours(start, end, arguments.base_dir)))
        return 0
    modules = theirs.load(arguments.repo, arguments.baselines)
    theirs.resize(modules)
    if arguments.what == 'speed':
        print(json.dumps(speed_of_theirs(modules, start, end)))
    else:
        curve_of_theirs(modules, arguments.base_dir)
    return 0


if __name__ == '__main__':
    sys.exit(main())
