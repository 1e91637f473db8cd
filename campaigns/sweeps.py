"""A sweep of 12 small mazes on 2 cores: the sweep is killed twice, and one of its workers once.

  python -m campaigns.sweeps
  python -m campaigns.sweeps --gin_file=lsvi_epsilon_linear_mdp.gin   # quicker trials
  python -m campaigns.sweeps --nodes=2

At the end each trial must be complete, each of its iterations must be in train.csv once, and no
trial may have been started again after it was complete. With --nodes, linear MDPs run on a Ray
cluster of that many nodes on this machine; one worker is killed and one node removed, and the rows
of each trial must be those of an undisturbed run. Exit status: 0 if all this holds.
"""

import contextlib
import json
import os
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import psutil

from campaigns import runs
from ob2i_tf import cli, sweep

ITERATIONS = 12
MAZE = (
    'Runner.training_steps = 60',
    'Runner.evaluation_steps = 0',
    'Agent.learning_starts = 1000',
    'MultiHeadQNetwork.num_heads = 2',
    'MultiHeadQNetwork.hidden_units = 8',
    'MultiHeadQNetwork.conv_layers = ()',
    'make_mnist_maze.max_episode_steps = 30',
    'EpisodeReplay.capacity_transitions = 1000',
)
LINEAR = ('Runner.training_steps = 60', 'horizon = 10')


def workers_of(trials):
    """{trial: (its process, its worker)} of the running trials."""
    folders = {f'--base_dir={os.path.abspath(trial.base_dir)}': trial for trial in trials}
    found = {}
    for process in psutil.process_iter(['cmdline']):
        for argument in process.info['cmdline'] or ():
            if argument in folders and process.parent():
                found[folders[argument]] = process, process.parent()
    return found


def starts(trial):
    path = trial.folder.environment
    return 1 + len(json.loads(path.read_text())['earlier']) if path.exists() else 0


def command(gin_file, base_dir, seeds, bindings, *arguments):
    """The command line of a sweep."""
    return [
        *(sys.executable, '-m', 'ob2i_tf.sweep'),
        *(f'--gin_files={gin_file}', f'--base_dir={base_dir}', f'--seeds={seeds}', *arguments),
        *(f'--gin_bindings={binding}' for binding in bindings),
    ]


def wait(process, condition, *arguments):
    while process.poll() is None and not condition(*arguments):
        time.sleep(0.1)


def halfway(process, trials):
    """A trial that has a checkpoint and is not complete, with its process and worker."""
    while process.poll() is None:
        for trial, processes in workers_of(trials).items():
            if trial.folder.newest_checkpoint() and not trial.complete():
                return trial, processes
    raise SystemExit('the sweep ended too early')


@contextlib.contextmanager
def cluster(count):
    """A Ray cluster on this machine: a head without cores, and `count` nodes of one core."""
    os.environ['RAY_USAGE_STATS_ENABLED'] = '0'
    from ray.cluster_utils import Cluster

    made = Cluster()
    try:
        made.add_node(num_cpus=0, include_dashboard=False)
        nodes = [made.add_node(num_cpus=1) for _ in range(count)]
        yield made, nodes
    finally:
        made.shutdown()


def on_nodes(base_dir, count, seeds, iterations):
    """Describes what is wrong with the trials of a sweep that loses a worker and a node."""
    bindings = (f'Runner.num_iterations = {iterations}', *LINEAR)

    def trials(name):
        return sweep.trials([runs.GIN_FILE], base_dir / name, (), (), seeds, bindings)

    undisturbed, disturbed = trials('undisturbed'), trials('disturbed')
    for trial in undisturbed:
        trial.base_dir.parent.mkdir(parents=True, exist_ok=True)
        runs.run(trial.base_dir, trial.bindings)
    with cluster(count) as (made, nodes):
        address = f'--address={made.address}'
        process = subprocess.Popen(
            command(runs.GIN_FILE, base_dir / 'disturbed', seeds, bindings, address)
        )
        killed, (_, worker) = halfway(process, disturbed)
        worker.kill()
        print(f'killed the worker of {killed.base_dir.name}', flush=True)
        wait(process, lambda: starts(killed) == 2)
        removed, (_, worker) = halfway(process, disturbed)
        above = {parent.pid for parent in worker.parents()}
        (node,) = (n for n in nodes if n.all_processes['raylet'][0].process.pid in above)
        made.remove_node(node)
        print(f'removed the node of {removed.base_dir.name}', flush=True)
        status = process.wait()
    wrong = [f'status {status}'] if status else []
    for trial, other in zip(disturbed, undisturbed):
        name, log = trial.base_dir.name, trial.log.read_text()
        print(f'{name}: {log.count("Resuming in")} times resumed')
        if log.count('Starting in') != 1:
            wrong.append(f'{name} started over')
        if trial in (killed, removed) and 'Resuming in' not in log:
            wrong.append(f'{name} was not resumed')
        if runs.rows(trial.base_dir) != runs.rows(other.base_dir):
            wrong.append(f'the rows of {name} differ')
    return wrong


@cli.command()
def main():
    parser = cli.parser('campaigns.sweeps', __doc__)
    parser.add_argument('--gin_file', default='ob2i_mnist_maze.gin')
    parser.add_argument('--address', help='see ob2i_tf.sweep; by default no Ray')
    parser.add_argument(
        '--nodes', type=cli.count, help='number of nodes of a Ray cluster on this machine'
    )
    arguments = parser.parse_args()
    base_dir = Path(tempfile.mkdtemp(prefix='sweep-'))
    if arguments.nodes:
        wrong = on_nodes(base_dir, arguments.nodes, seeds=12, iterations=100)
        print(f'wrong: {wrong}')
        return int(bool(wrong))
    maze = 'maze' in arguments.gin_file
    bindings = (f'Runner.num_iterations = {ITERATIONS}', *(MAZE if maze else LINEAR))
    trials = sweep.trials([arguments.gin_file], base_dir, (), (), 12, bindings)
    address = [f'--address={arguments.address}'] if arguments.address else []
    sweep_command = command(
        arguments.gin_file, base_dir, 12, bindings, '--processes=2', '--cpus=1', *address
    )

    def complete():
        return [trial for trial in trials if trial.complete()]

    def enough(count):
        return len(complete()) >= count

    finished = {}  # Trial -> number of starts when it was first seen complete.
    for number, until in enumerate((3, 7)):
        process = subprocess.Popen(sweep_command)
        wait(process, enough, until)
        if number:  # A worker is killed too, while the sweep keeps running.
            trial, (program, worker) = halfway(process, trials)
            (worker if arguments.address else program).send_signal(signal.SIGKILL)
            print(f'killed the worker of {trial.base_dir.name}', flush=True)
            wait(process, trial.complete)
            print(f'{trial.base_dir.name} complete: {trial.complete()}', flush=True)
        halfway(process, trials)
        process.kill()
        process.wait()
        print(f'killed the sweep with {len(complete())} of 12 complete', flush=True)
        finished.update({trial: starts(trial) for trial in complete() if trial not in finished})
    status = subprocess.run(sweep_command).returncode

    again = [trial.base_dir.name for trial, before in finished.items() if starts(trial) > before]
    wrong = []
    for trial in trials:
        iterations = [int(row['iteration']) for row in trial.folder.rows('train')]
        if iterations != list(range(ITERATIONS)):
            wrong.append((trial.base_dir.name, iterations))
    print(
        f'status {status}, {len(complete())} of 12 complete, started again when complete: '
        f'{again}, not done exactly once: {wrong}'
    )
    print('processes per trial:', [starts(trial) for trial in trials])
    return int(bool(status or again or wrong or len(complete()) != 12))


if __name__ == '__main__':
    sys.exit(main())
