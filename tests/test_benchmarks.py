"""The counts and the exports of the benchmarks; their timings are not tested."""

import collections
import json
import tempfile
import time

import gin
import numpy as np
import pytest
import tensorflow as tf
from tensorflow.compiler.xla.service.hlo_pb2 import HloModuleProto

from benchmarks import export_hlo, growth, operations, timing
from ob2i_tf import config, networks
from ob2i_tf.training import system
from ob2i_tf.training.runner import Runner


def test_operations_of_a_state():
    network = networks.build(networks.MultiHeadQNetwork(4), (84, 84, 4), tf.uint8)
    convs = 20**2 * 32 * 8**2 * 4 + 9**2 * 64 * 4**2 * 32 + 7**2 * 64 * 3**2 * 64
    heads = 10 * (3136 * 512 + 512 * 4)
    assert timing.flops_per_state(network, (84, 84, 4)) == 2 * (convs + heads)
    one_head = timing.flops_per_state(network, (84, 84, 4), 1)
    assert one_head == pytest.approx(2 * (convs + heads / 10))
    assert timing.parameter_bytes(network) / 4 == pytest.approx(16.16e6, rel=1e-3)


def test_devices_are_idle_before_and_after_each_timed_call(monkeypatch):
    """On a GPU, a call returns before its result is computed."""
    order = []
    monkeypatch.setattr(tf.test.experimental, 'sync_devices', lambda: order.append('wait'))
    timing.median_ms(lambda: order.append('call'), seconds=0, least=2)
    assert order == ['call', 'call', *('wait', 'call', 'wait') * 2]


def test_an_exponent_is_that_of_the_larger_half():
    sizes = [1, 10, 100, 1000, 10_000]
    values = [7, 7, *(3.0 * size**1.5 for size in sizes[2:])]
    assert growth.exponent(sizes, values) == pytest.approx(1.5)


@pytest.mark.parametrize('variable, size', [('K', 2), ('games', 2), ('replay', 1000)])
def test_every_part_of_a_table_of_growth_is_measured(clean_gin, variable, size):
    row = growth.measure(variable, size, seconds=0, clock=time.process_time)
    assert [*row] == [*growth.EXPECTED[variable]]
    assert np.all(np.array([*row.values()]) > 0)
    doubled = {name: 2 * value for name, value in row.items()}
    lines = growth.table(variable, {size: row, 2 * size: row, 4 * size: doubled}).splitlines()
    cells = [[cell.strip() for cell in line.strip('|').split('|')] for line in lines]
    assert {len(line) for line in cells} == {1 + len(row)}
    assert cells[0][1:] == [*row]
    assert cells[-2][1:] == ['1.00'] * len(row)


def test_the_compiled_core_is_exported(tmp_path):
    small = {'hidden_units': 8, 'num_heads': 3, 'conv_layers': ((4, 8, 8),)}
    with system.tensor_float_32(True):  # As TensorFlow starts.
        paths = list(export_hlo.write(tmp_path / 'out', lengths=(70,), env_counts=(1, 2), **small))
    assert [path.stem for path in paths] == [
        'acting_1',
        'acting_2',
        'gradient_step',
        'targets_70',
        'backward_induction_scan_70',
        'backward_induction_loop_70',
    ]
    inputs = {
        path.stem: [
            (each['kind'], each['shape'])
            for each in json.loads(path.with_suffix('.json').read_text())['inputs']
        ]
        for path in paths
    }
    assert all(path.stat().st_size > 1000 for path in paths)
    products = [
        each
        for path in paths
        for computation in HloModuleProto.FromString(path.read_bytes()).computations
        for each in computation.instructions
        if each.opcode in ('dot', 'convolution')
    ]
    assert len(products) > 10
    assert {(*each.precision_config.operand_precision,) for each in products} == {
        (2, 2)
    }  # Highest.
    assert inputs['acting_2'][0] == ('u8', [2, 84, 84, 4])
    assert inputs['gradient_step'][:3] == [('u8', [32, 84, 84, 4]), ('s32', [32]), ('f32', [32, 3])]
    weights = 2 + 4  # Of the convolution and the heads, each with two moments in the optimizer.
    assert sum(kind == 'f32' for kind, _ in inputs['gradient_step']) >= 3 * weights
    assert inputs['targets_70'][:4] == [
        ('u8', [74, 84, 84]),
        ('s32', [70]),
        ('f32', [70]),
        ('f32', [70]),
    ]
    assert inputs['backward_induction_scan_70'] == inputs['backward_induction_loop_70']


@pytest.mark.parametrize('gin_file, passes', [('ob2i_atari.gin', 2), ('dqn_atari.gin', 1)])
def test_the_operations_of_a_learner_step_are_those_of_its_parts(gin_file, passes):
    """Here by their second convolution: a pass has it once, and its gradient twice."""
    heads = [] if gin_file.startswith('dqn') else ['MultiHeadQNetwork.num_heads = 3']
    config.load([gin_file], ['MultiHeadQNetwork.hidden_units = 16', *heads])
    with tempfile.TemporaryDirectory() as folder:
        parts = Runner(base_dir=folder, dry_run=True).parts
    counts = collections.Counter()
    for purpose, name, count, call in operations.operations(parts, env=None):
        if purpose != 'emulator':
            call()
        if 'convolution 2' in name:
            counts[purpose] += count
    rows = 256 if passes == 2 else 32  # Per pass of the targets.
    assert counts == {'targets': passes * 32 / rows, 'gradient step': 3, 'acting': 4}
    gin.clear_config()
