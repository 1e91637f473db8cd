"""What a GPU needs of the program, as far as a machine without one can tell."""

import collections
import functools
from pathlib import Path

import gin
import numpy as np
import pytest
import tensorflow as tf

import ob2i_tf
from benchmarks.timing import random_episode
from ob2i_tf import config, networks, tracing, types
from ob2i_tf.errors import UserError
from ob2i_tf.replay import EpisodeReplay
from ob2i_tf.training.failures import memory_errors
from ob2i_tf.training.run_folder import RunFolder
from ob2i_tf.training.runner import Runner
from tests import atari, kernels
from tests.golden import ROWS
from tests.processes import run_code, start

ROOT = Path(__file__).resolve().parents[1]
ACTING = np.zeros((1, 84, 84, 4), np.uint8), np.zeros(1, np.int32), np.zeros(2, np.int32)
CLIPPING = 'copy: Greater bool () to StatelessIf'
SEEDS = 'copy: Cast uint64 () to RngReadAndSkip'  # In TensorFlow's Generator.
GPU = tf.config.PhysicalDevice('/physical_device:GPU:0', 'GPU')


def _pretend_a_gpu():
    """TensorFlow lists a GPU; what is placed there runs on the CPU. Its context exists already."""
    tf.zeros(3) + 1
    listed = tf.config.list_physical_devices
    tf.config.list_physical_devices = lambda kind=None: (
        [GPU] if kind == 'GPU' else [*listed(kind), *([] if kind else [GPU])]
    )
    assert ob2i_tf.load('ob2i_deep_sea').agent_steps == 5000


def test_a_run_with_a_gpu_is_set_up_after_an_op(tmp_path):
    """Loads an agent, then trains deterministically."""
    output = tmp_path / 'stderr'
    settings = {
        'Runner.deterministic': True,
        'Runner.require_gpu': True,
        'Runner.num_iterations': 1,
        'Runner.training_steps': 200,
        'Runner.evaluation_steps': 20,
        'Agent.learning_starts': 50,
        'make_atari.max_episode_frames': 100,
        'MultiHeadQNetwork.hidden_units': 8,
        'MultiHeadQNetwork.conv_layers': '((4, 8, 8),)',
        'EpisodeReplay.capacity_transitions': 400,
    }
    bindings = (f'--gin_bindings={name} = {value}' for name, value in settings.items())
    flags = ('--gin_files=ob2i_atari.gin', f'--base_dir={tmp_path / "run"}', *bindings)
    process = start(['run', *flags], output, before=(_pretend_a_gpu,))
    process.join()
    assert process.exitcode == 0, output.read_text()[-3000:]
    assert 'Training on /physical_device:GPU:0' in output.read_text()
    (row,) = RunFolder(tmp_path / 'run').rows('train')
    assert int(row['learner_steps']) > 30 and float(row['loss']) > 0


@pytest.mark.parametrize('device, named', [('GPU:0', 'GPU memory'), ('CPU:0', 'in replay')])
def test_lack_of_gpu_memory_is_not_blamed_on_replay(tmp_path, device, named):
    message = f'OOM when allocating tensor on /job:localhost/replica:0/task:0/device:{device}'
    with (
        pytest.raises(UserError, match=f'^out of .*{named}') as error,
        memory_errors(RunFolder(tmp_path), EpisodeReplay((), 10)),
    ):
        raise tf.errors.ResourceExhaustedError(None, None, message)
    assert ('EpisodeReplay' in str(error.value)) == (device == 'CPU:0')


def test_a_gpu_without_bfloat16_is_reported_once(monkeypatch, caplog):
    details = {'device_name': 'T4', 'compute_capability': (8, 0)}
    monkeypatch.setattr(tf.config, 'list_physical_devices', lambda kind=None: [GPU])
    monkeypatch.setattr(tf.config.experimental, 'get_device_details', lambda gpu: details)
    networks.MultiHeadQNetwork(2, precision='bfloat16')
    assert not caplog.records
    details['compute_capability'] = (7, 5)
    networks.MultiHeadQNetwork(2)
    assert not caplog.records
    networks.MultiHeadQNetwork(2, precision='bfloat16')
    networks.MultiHeadQNetwork(2, precision='bfloat16')
    (record,) = caplog.records
    assert record.getMessage().endswith('T4 has 7.5.')


def traced(function, *arguments):
    return tf.function(function, autograph=False).get_concrete_function(*arguments)


def test_missing_kernels_and_copies_are_found():
    frames, values = tf.TensorSpec([2, 2], tf.uint8), tf.TensorSpec([None, 2])
    assert kernels.findings(traced(lambda x: tf.stack([x, x]), frames)) == {
        'no kernel: Pack of uint8, uint8'
    }
    assert not kernels.findings(traced(lambda x: tf.concat([x, x], axis=0), frames))
    best = functools.partial(tf.argmax, axis=1)
    assert kernels.findings(
        traced(lambda x: best(x, output_type=tf.int32) == tf.range(tf.shape(x)[0]), values)
    ) == {'copy: ArgMax int32 (None,) to Equal'}
    assert not kernels.findings(traced(lambda x: best(x) == best(2 * x), values))
    called = tf.function(lambda x: tf.cond(x[0, 0] > 0, lambda: x, lambda: 2 * x))
    assert kernels.findings(traced(lambda x: called(x), values)) == {
        'copy: Greater bool () to StatelessIf'
    }


@pytest.fixture(scope='module')
def parts_of(tmp_path_factory):
    """(row of the golden runs) -> Parts."""

    @functools.cache
    def made(row):
        gin.clear_config()
        gin_file, settings = ROWS[row]
        config.load([f'{gin_file}.gin'], [f'{name} = {value}' for name, value in settings.items()])
        return Runner(tmp_path_factory.mktemp(row) / 'run', dry_run=True).parts

    yield made
    gin.clear_config()


@pytest.mark.parametrize('row, copied', [('ob2i', {CLIPPING, SEEDS}), ('bootdqn_ids', {SEEDS})])
def test_a_gpu_has_all_kernels_and_waits_for_few_copies(parts_of, row, copied):
    parts = parts_of(row)
    stacks, actions = np.zeros((8, 84, 84, 4), np.uint8), np.zeros(8, np.int32)
    ones, of_heads = np.ones(8, np.float32), np.ones((8, 10), np.float32)
    batch = types.Batch(stacks, actions, of_heads, ones, of_heads)
    drawn = stacks, actions, ones, ones, stacks, of_heads
    computing = [parts.update.compiled_batch, parts.agent.learner_step._composed]
    if row == 'ob2i':  # An episode.
        drawn = np.zeros((12, 84, 84), np.uint8), actions, ones, ones, actions
        computing = [parts.update._compiled_targets]
    policies = parts.agent.policy, parts.evaluation_policy
    found = set()
    for function, arguments in (
        *((compiled.function, drawn) for compiled in computing),
        (parts.learner.compiled_step(batch).function, batch[:-1]),
        (parts.learner.update_target, ()),
        *((policy._compiled.function, ACTING) for policy in policies),
    ):
        concrete = function.get_concrete_function(*map(tf.constant, arguments))
        found |= kernels.findings(concrete)
    assert found == copied


@pytest.mark.parametrize('batching', ['pooled', 'episode'])
def test_a_gpu_gathers_the_batch_of_episodes(monkeypatch, batching):
    network, replay = PassSize(), EpisodeReplay((84, 84), 100, history=4)
    replay.add_episode(random_episode(40, np.random.default_rng(0)))
    on_cpu = atari.EpisodicUpdate(replay, network, network, beta=0.0, batching=batching)
    arrays, _ = on_cpu.draw()
    (expected, *_), _ = on_cpu.compiled_batch(*arrays)
    monkeypatch.setattr(tf.config, 'list_physical_devices', lambda kind=None: [GPU])
    update = atari.EpisodicUpdate(replay, network, network, beta=0.0, batching=batching)
    batch = update.compiled_batch.function
    assert kernels.findings(batch.get_concrete_function()) == {SEEDS}
    np.testing.assert_array_equal(batch(*arrays)[0][0], expected)


@pytest.fixture
def transfers(monkeypatch):
    """Counts tensors whose values Python reads, and bytes of the arrays that calls are given."""
    counts = collections.Counter()
    tensor, call = type(tf.zeros(1)).__base__, tracing.Compiled.__call__
    read = tensor._numpy

    def reading(self):
        counts['read'] += 1
        return read(self)

    def calling(self, *arguments):
        counts['bytes'] += sum(x.nbytes for x in arguments if isinstance(x, np.ndarray))
        return call(self, *arguments)

    monkeypatch.setattr(tensor, '_numpy', reading)
    monkeypatch.setattr(tracing.Compiled, '__call__', calling)

    def taken():
        taken = dict(counts)
        counts.clear()
        return taken

    return taken


def test_a_step_transfers_little(parts_of, transfers):
    """Each tensor that is read waits for the GPU."""
    parts, length, frame, stack = parts_of('ob2i'), 40, 84 * 84, 4 * 84 * 84
    parts.replay.add_episode(random_episode(length, np.random.default_rng(0)))
    parts.agent.policy.actions(*ACTING[:2], 0.0, np.random.default_rng(0))
    assert transfers() == {'read': 1, 'bytes': stack + 4 * (1 + 2)}
    batch, _ = parts.update.next_batch()
    assert transfers() == {'read': 2, 'bytes': (length + 4) * frame + 4 * 4 * length}
    parts.learner.step(batch)
    assert transfers() == {'read': 3, 'bytes': 32 * (stack + 4 * (1 + 1 + 2 * 10))}
    parts.update.next_batch()
    assert transfers() == {}


def test_a_composed_learner_step_transfers_its_transitions_once(parts_of, transfers):
    parts, stack = parts_of('bootdqn_ids'), 4 * 84 * 84
    assert parts.agent.learner_step._composed
    parts.replay.add_episode(random_episode(40, np.random.default_rng(0)))
    parts.agent.learner_step()
    assert transfers() == {'read': 2, 'bytes': 32 * (2 * stack + 4 * (3 + 10))}


class PassSize(networks.QNetwork):
    """All values are the number of observations that are computed together."""

    num_heads, num_actions = 2, 3

    def call(self, observations, seed=None):
        count = tf.shape(observations)[0]
        return tf.fill([count, self.num_heads, self.num_actions], tf.cast(count, tf.float32))


@pytest.mark.parametrize('gpus, most', [([GPU], 4), ([], 256)])
def test_a_gpu_computes_targets_in_few_shapes(monkeypatch, gpus, most):
    monkeypatch.setattr(tf.config, 'list_physical_devices', lambda kind=None: gpus)
    network = PassSize()
    update = atari.EpisodicUpdate(EpisodeReplay((), 10), network, network, beta=0.0)
    compute = update._compiled_targets.function
    sizes = set()
    for length in range(1, 301):
        zeros, none = np.zeros(length, np.float32), np.zeros(length, np.int32)
        frames = np.zeros(length + 1, np.uint8)
        sizes |= {*compute(frames, none, zeros, zeros + 1, none)[0].numpy().ravel()}
    assert len(sizes) == most and max(sizes) == 256


ON_ANOTHER_DEVICE = """
import ob2i_tf
from ob2i_tf import cli, config
cli.import_tensorflow()
import tensorflow as tf
from ob2i_tf.training.runner import Runner

(cpu,) = tf.config.list_physical_devices('CPU')
tf.config.set_visible_devices(cpu)
tf.config.set_logical_device_configuration(cpu, 2 * [tf.config.LogicalDeviceConfiguration()])
tf.config.set_soft_device_placement(False)
config.load(['ob2i_deep_sea.gin'], [
    'Runner.num_iterations = 2', 'Runner.training_steps = 60', 'Agent.learning_starts = 40',
    'Runner.checkpoint_steps = 50',
])
with tf.device('CPU:1'):
    run = Runner('run')
    run.run()
agent = ob2i_tf.load('run')
for parts, device in ((run.parts, 'CPU:1'), (agent, 'CPU:0')):
    (kind,) = {x.device[-5:] for x in parts.posterior.network.variables}
    assert kind == device, kind
print(run.parts.learner.learner_steps, agent.agent_steps)
"""


def test_replay_stays_on_the_first_cpu_and_a_run_loads_on_another_device(tmp_path):
    done = run_code(ON_ANOTHER_DEVICE, tmp_path)
    assert done.returncode == 0, done.stderr[-3000:]
    learner_steps, agent_steps = map(int, done.stdout.split())
    assert learner_steps > 0 and agent_steps == 120
