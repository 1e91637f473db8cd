"""One run: python -m experiments.bsuite.run METHOD BSUITE_ID SEED EPISODES OUT [--until_solved]

METHOD is a <method>_deep_sea.gin of this project, or `bsuite`, whose bootstrapped DQN runs as in
bsuite/baselines/tf/boot_dqn/run.py with the defaults there; only the latter's packages are then
imported. The episodes go to OUT once the run is complete; an incomplete run leaves no file.
"""

import argparse
import csv
import os
import tempfile
import types
from pathlib import Path

from experiments.bsuite import recorded

HERE = Path(__file__).parent
LONGEST = 1001  # Agent steps of an episode: the swing-up's 10 s in steps of 0.01 s, rounded up.


def run_theirs(make, bsuite_id, seed, episodes):
    """Calls bsuite's script with a seeded and recorded environment in place of the unseeded one."""
    import numpy as np
    import tensorflow as tf
    from bsuite.baselines.tf.boot_dqn import run

    np.random.seed(seed)  # Seed of the replay's draws.
    tf.random.set_seed(seed)  # Seed of the initial weights, drawn before the script sets it.
    run.FLAGS(['run', f'--seed={seed}', f'--num_episodes={episodes}', '--noverbose'])
    run.bsuite = types.SimpleNamespace(load_and_record=lambda **_: make(seed))
    run.run(bsuite_id)
    raise recorded.Over


def run_ours(make, method, bsuite_id, seed, episodes):
    """Trains with the method's gin file, in one iteration, so that no episode is cut off."""
    import gymnasium

    import ob2i_tf
    from experiments.bsuite import environments

    gymnasium.register('recorded', entry_point=environments.BsuiteEnv, kwargs={'make': make})
    files = [f'{method}_deep_sea.gin']
    if bsuite_id.startswith('cartpole_swingup'):
        files.append(HERE / 'cartpole_swingup.gin')
    bindings = {
        'make_environment.name': 'recorded',
        'Runner.seed': seed,
        'Runner.num_iterations': 1,
        'Runner.training_steps': episodes * LONGEST + 1,
    }
    with tempfile.TemporaryDirectory() as folder:
        ob2i_tf.train(files, bindings, folder)


def main(argv=None):
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument('method')
    parser.add_argument('bsuite_id', choices=recorded.IDS, metavar='bsuite_id')
    parser.add_argument('seed', type=int)
    parser.add_argument('episodes', type=int)
    parser.add_argument('out', type=Path)
    parser.add_argument('--until_solved', action='store_true')
    arguments = parser.parse_args(argv)
    rows: list[recorded.Episode] = []

    def over(rows):
        full = len(rows) >= arguments.episodes
        return full or arguments.until_solved and recorded.solved(rows)

    def make(seed):
        return recorded.Recorded(recorded.make(arguments.bsuite_id, seed), rows, over)

    task = (arguments.bsuite_id, arguments.seed, arguments.episodes)
    try:
        if arguments.method == 'bsuite':
            run_theirs(make, *task)
        else:
            run_ours(make, arguments.method, *task)
    except recorded.Over:
        aside = arguments.out.with_suffix('.tmp')
        with open(aside, 'w', newline='') as file:
            table = csv.writer(file, lineterminator='\n')
            table.writerows([recorded.Episode._fields, *rows])
        os.replace(aside, arguments.out)


if __name__ == '__main__':
    main()
