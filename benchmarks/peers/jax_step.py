"""OB2I's gradient step in JAX: the same network, loss and optimizer, jitted, buffers donated."""

import sys
import time

import jax
import jax.numpy as jnp
import numpy as np

HEADS, ACTIONS, UNITS, BATCH = 10, 4, 512, 32
CONVS = ((32, 8, 4, 4), (64, 4, 2, 32), (64, 3, 1, 64))  # filters, kernel size, stride, inputs
RATE, BETA_1, BETA_2, EPSILON, MAX_NORM = 2.5e-4, 0.9, 0.999, 1e-7, 10.0


@jax.custom_vjp
def shrink_gradient(x):
    return x


shrink_gradient.defvjp(lambda x: (x, None), lambda _, gradient: (gradient / HEADS,))


def q_values(parameters, observations):
    x = observations.astype(jnp.float32) / 255
    for (kernel, bias), (_, _, stride, _) in zip(parameters['convs'], CONVS):
        x = jax.lax.conv_general_dilated(
            x, kernel, (stride, stride), 'VALID', dimension_numbers=('NHWC', 'HWIO', 'NHWC')
        )
        x = jax.nn.relu(x + bias)
    x = shrink_gradient(x.reshape(len(x), -1))
    kernel, bias = parameters['hidden']
    hidden = jax.nn.relu(x @ kernel + bias).reshape(-1, HEADS, UNITS)
    kernel, bias = parameters['output']
    return jnp.einsum('bkh,kha->bka', hidden, kernel) + bias


def loss_of(parameters, observations, actions, targets):
    taken = jnp.take_along_axis(
        q_values(parameters, observations), actions[:, None, None], axis=-1
    )[..., 0]
    return jnp.mean((targets - taken) ** 2)


def step(state, observations, actions, targets):
    parameters, first, second, count = state
    loss, gradients = jax.value_and_grad(loss_of)(parameters, observations, actions, targets)
    norm = jnp.sqrt(sum(jnp.sum(g * g) for g in jax.tree.leaves(gradients)))
    scale = jnp.minimum(1.0, MAX_NORM / norm)
    count += 1
    rate = RATE * jnp.sqrt(1 - BETA_2**count) / (1 - BETA_1**count)
    first = jax.tree.map(lambda m, g: BETA_1 * m + (1 - BETA_1) * scale * g, first, gradients)
    second = jax.tree.map(
        lambda v, g: BETA_2 * v + (1 - BETA_2) * (scale * g) ** 2, second, gradients
    )
    parameters = jax.tree.map(
        lambda p, m, v: p - rate * m / (jnp.sqrt(v) + EPSILON), parameters, first, second
    )
    return (parameters, first, second, count), loss


def main():
    rng = np.random.default_rng(0)

    def layer(*shape, bias):
        limit = np.sqrt(6 / (np.prod(shape[:-1]) + shape[-1]))
        return jnp.array(rng.uniform(-limit, limit, shape), jnp.float32), jnp.zeros(bias)

    parameters = {
        'convs': [
            layer(size, size, inputs, filters, bias=filters) for filters, size, _, inputs in CONVS
        ],
        'hidden': layer(3136, HEADS * UNITS, bias=HEADS * UNITS),
        'output': layer(HEADS, UNITS, ACTIONS, bias=(HEADS, ACTIONS)),
    }
    zeros = jax.tree.map(jnp.zeros_like, parameters)
    state = (parameters, zeros, jax.tree.map(jnp.zeros_like, parameters), jnp.zeros(()))
    batch = (
        rng.integers(0, 256, (BATCH, 84, 84, 4), dtype=np.uint8),
        rng.integers(ACTIONS, size=BATCH, dtype=np.int32),
        rng.normal(size=(BATCH, HEADS)).astype(np.float32),
    )
    compiled = jax.jit(step, donate_argnums=0)
    times, end = [], time.perf_counter() + float(sys.argv[1])
    while time.perf_counter() < end or len(times) < 8:
        start = time.perf_counter()
        state, loss = compiled(state, *batch)
        assert np.isfinite(float(loss))
        times.append(1e3 * (time.perf_counter() - start))
    print(f'JAX {jax.__version__} {np.median(times[3:])}')


if __name__ == '__main__':
    main()
