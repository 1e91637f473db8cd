"""What a run needs: memory, disk and time."""

from ob2i_tf.cli import duration
from ob2i_tf.training import build, system
from ob2i_tf.training.run_folder import RunFolder

_COPIES = 4  # Of the parameters: two networks and, with Adam, two moments.
_PROGRAM_GB = 1  # TensorFlow and what it works with (docs/results/footprint/README.md).


def needs(
    folder: RunFolder, parts: build.Parts, agent_steps: int, checkpoints_kept: int
) -> list[str]:
    """Describes what a run needs, in lines.

    Args:
      folder: Run folder; if it holds the run, its speed is that of its last iteration.
      parts: Parts of the run.
      agent_steps: Agent steps of the complete run.
      checkpoints_kept: Number of checkpoints that stay on disk.
    """
    size = sum(v.dtype.size * v.shape.num_elements() for v in parts.learner.network.variables)
    replay, copies = parts.replay.capacity_bytes / 1e9, _COPIES * size / 1e9
    done, rate = measured(folder.rows('train'))
    time = 'unknown: a run says it after its first learner steps'
    if rate:
        left = duration(max(0, agent_steps - done) / rate)
        time = f'{left} for {agent_steps - done:,} agent steps at {rate:,.1f} per second as before'
    return [
        f'run folder: {folder}',
        f'agent steps: {agent_steps:,}, {agent_steps * parts.environment.frames_per_step:,} frames',
        f'memory: {replay + copies + _PROGRAM_GB:.1f} GB when the replay is full '
        f'({replay:.1f} GB replay, {copies:.1f} GB networks and optimizer, about {_PROGRAM_GB} GB '
        f'TensorFlow); the machine has {system.memory_bytes() / 1e9:.1f} GB',
        f'disk: {checkpoints_kept * copies:.2f} GB for {checkpoints_kept} checkpoints, and up to '
        f'{replay:.1f} GB for the replay, which is compressed (on Atari to 0.3 to 2 %)',
        f'time of training: {time}',
    ]


def measured(rows: list[dict[str, str]]) -> tuple[int, float]:
    """(agent steps taken, agent steps per second) of the last row of train.csv that learned.

    The rate is 0 if no row did, since random play says nothing about it.
    """
    try:
        last = rows[-1]
        learned = int(last['learner_steps']) > 0
        return int(last['agent_steps']), learned * float(last['agent_steps_per_second'])
    except (IndexError, KeyError, ValueError, TypeError):  # No row yet, or a damaged one.
        return 0, 0.0
