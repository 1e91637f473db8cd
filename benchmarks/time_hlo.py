"""Checks and times the files of export_hlo on JAX's default device; needs only jax and numpy.

  python time_hlo.py gpu_check/*.hlo --save    # on a CPU: writes NAME.npz, the reference
  python time_hlo.py gpu_check/*.hlo           # on a GPU: times, and compares with a reference

Inputs are random, and equal on all machines: integers below 4, bytes over their range, floats
|N(0, 0.05)|. For each function the table has megabytes of inputs, seconds to compile, times
(median, 10th and 90th percentile), GFLOP as counted by XLA, TFLOP/s, and the relative difference
from the reference (in the norm, the largest over outputs), or without a reference whether all
outputs are finite.
"""

import argparse
import json
import time
from pathlib import Path

import jax
import numpy as np
from jaxlib import xla_client

jax.config.update('jax_enable_x64', True)  # So that 64-bit counters keep their width.
KINDS = {
    'f32': np.float32,
    'f64': np.float64,
    's32': np.int32,
    's64': np.int64,
    'u8': np.uint8,
    'u32': np.uint32,
    'u64': np.uint64,
    'pred': np.bool_,
}
REFERENCE_MEGABYTES = 4  # Larger outputs, such as all parameters, are left out of references.


def random_input(rng, kind, shape):
    dtype = np.dtype(KINDS[kind])
    if dtype == np.uint8:
        return rng.integers(0, 256, shape, dtype=np.uint8)
    if dtype.kind in 'iu':
        return rng.integers(0, 4, shape).astype(dtype)
    if dtype.kind == 'b':
        return np.zeros(shape, dtype)
    return np.abs(0.05 * rng.standard_normal(shape)).astype(dtype)  # Second moments are positive.


def compile_hlo(path, device):
    stablehlo = xla_client._xla.mlir.hlo_to_stablehlo(path.read_bytes())
    return device.client.compile_and_load(stablehlo, (device,))


def run(executable, host, device):
    """Outputs, and milliseconds without the transfer of the inputs, which may be donated."""
    placed = [jax.device_put(array, device) for array in host]
    for array in placed:
        array.block_until_ready()
    start = time.perf_counter()
    outputs = executable.execute(placed)
    for array in outputs:
        array.block_until_ready()
    return outputs, 1e3 * (time.perf_counter() - start)


def check(outputs, reference):
    """The verdict on the outputs, given a reference {index: array} or None."""
    floats = [x for x in outputs if x.dtype.kind == 'f']
    if not all(np.isfinite(x).all() for x in floats):
        return 'NOT FINITE'
    if reference is None:
        return 'finite'
    differences = [
        np.linalg.norm((outputs[int(i)] - x).ravel()) / (np.linalg.norm(x.ravel()) + 1e-12)
        for i, x in reference.items()
    ]
    return f'{max(differences, default=0):.1e}'


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument('files', nargs='+', type=Path)
    parser.add_argument('--repeat', type=int, default=50)
    parser.add_argument('--save', action='store_true', help='write references')
    arguments = parser.parse_args()
    device = jax.devices()[0]
    print(f'{device.device_kind}, JAX {jax.__version__}\n')
    print(
        '| function | inputs, MB | compiling, s | median, ms | p10 | p90 | GFLOP | TFLOP/s '
        '| difference |\n|---|---:|---:|---:|---:|---:|---:|---:|---|'
    )
    for path in arguments.files:
        inputs = json.loads(path.with_suffix('.json').read_text())['inputs']
        rng = np.random.default_rng(0)
        host = [random_input(rng, each['kind'], each['shape']) for each in inputs]
        start = time.perf_counter()
        executable = compile_hlo(path, device)
        seconds = time.perf_counter() - start
        outputs = [np.asarray(x) for x in run(executable, host, device)[0]]
        reference, saved = None, path.with_suffix('.npz')
        if arguments.save:
            small = {
                str(index): x
                for index, x in enumerate(outputs)
                if x.dtype.kind == 'f' and x.nbytes <= 1e6 * REFERENCE_MEGABYTES
            }
            np.savez(saved, **small)
        elif saved.exists():
            reference = dict(np.load(saved))
        times = [run(executable, host, device)[1] for _ in range(arguments.repeat)]
        p10, median, p90 = np.percentile(times, [10, 50, 90])
        try:
            gflop = executable.cost_analysis()['flops'] / 1e9
        except Exception:  # Some runtimes do not count.
            gflop = float('nan')
        megabytes = sum(x.nbytes for x in host) / 1e6
        print(
            f'| {path.stem} | {megabytes:.1f} | {seconds:.1f} | {median:.3f} | {p10:.3f} '
            f'| {p90:.3f} | {gflop:.2f} | {gflop / median:.2f} '
            f'| {check(outputs, reference)} |',
            flush=True,
        )


if __name__ == '__main__':
    main()
