"""The Q-network: a convolutional trunk and K heads, each with a separate hidden layer.

`QNetwork` is the interface that the rest of the package relies on, with defaults. D is the number
of trunk features, H of hidden units per head, K of heads, A of actions.
"""

import functools
import inspect
import re
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Annotated, Any, Literal

import gin
import numpy as np
import tensorflow as tf
from absl import logging

from ob2i_tf.parameters import Above, AtLeast, checked
from ob2i_tf.seeds import split_draws, split_seed

_Count = Annotated[int, AtLeast(1)]
_BFLOAT16_CAPABILITY = (8, 0)  # Of NVIDIA's GPUs; older ones emulate it.
# With fewer, rounding a large kernel takes longer than its product. A number that is unknown when
# TensorFlow traces, as in a gradient step, counts as many.
_BFLOAT16_ROWS = 32
ConvLayers = Sequence[tuple[_Count, _Count, _Count]]  # Filters, kernel size and stride of each.


def factorised_noise(shape: tuple[int, ...], seed: Any) -> tuple[tf.Tensor, tf.Tensor]:
    """f(e_out) f(e_in)^T with f(x) = sign(x) sqrt|x| (Fortunato et al. 2018, eq. 10 and 11).

    Args:
      shape: (K, units, D), the shape of the kernels of K heads, which draw separately.
      seed: Seed of the draws, [2] int.

    Returns:
      The noise of the kernels, [K, units, D], and of the biases, [K, units, 1].
    """
    heads, units, fan_in = shape
    draws = tf.random.stateless_normal((heads, units + fan_in), seed)
    draws = tf.sign(draws) * tf.sqrt(tf.abs(draws))
    rows, columns = draws[:, :units, None], draws[:, None, units:]
    return rows * columns, rows


def independent_noise(shape: tuple[int, ...], seed: Any) -> tuple[tf.Tensor, tf.Tensor]:
    """A normal draw for each weight; arguments and results like `factorised_noise`."""
    heads, units, fan_in = shape
    draws = tf.random.stateless_normal((heads, units, fan_in + 1), seed)
    return draws[..., :-1], draws[..., -1:]


class HeadLayer(tf.keras.layers.Layer):
    """The kernels [K, units, D] and biases [K, units, 1] of one linear layer in each of K heads.

    Without noise, kernels are Glorot-uniform and biases 0. With noise, each weight is mu + sigma e
    (Fortunato et al. 2018, eq. 9). Initially, mu is uniform in +-1/sqrt(D) and sigma 0.5/sqrt(D)
    for 'factorised' noise; +-sqrt(3/D) and 0.017 for 'independent' noise (their section 3.2).
    """

    def __init__(
        self,
        num_heads: int,
        units: int,
        noise: str | None,
        trainable: bool,
        seed: int,
        name: str,
    ):
        super().__init__(name=name, trainable=trainable)
        self._shape = (num_heads, units)
        self._noise = noise
        self._seed = seed

    def build(self, input_shape: Any) -> None:
        fan_in = int(input_shape[-1])
        num_heads, units = self._shape
        kernel, bias = (num_heads, units, fan_in), (num_heads, units, 1)
        if self._noise is None:
            limit = np.sqrt(6 / (fan_in + units))
            initializers = _uniform(limit, self._seed), 'zeros'
        elif self._noise == 'factorised':
            initializers, sigma = (
                _uniform_pair(np.sqrt(1 / fan_in), self._seed),
                0.5 / np.sqrt(fan_in),
            )
        else:
            initializers, sigma = _uniform_pair(np.sqrt(3 / fan_in), self._seed), 0.017
        self.kernel = self.add_weight(f'{self.name}_kernel', kernel, initializer=initializers[0])
        self.bias = self.add_weight(f'{self.name}_bias', bias, initializer=initializers[1])
        if self._noise is not None:
            constant = tf.keras.initializers.Constant(sigma)
            self.kernel_sigma = self.add_weight(
                f'{self.name}_kernel_sigma', kernel, initializer=constant
            )
            self.bias_sigma = self.add_weight(f'{self.name}_bias_sigma', bias, initializer=constant)

    def head_weights(self, head: Any, seed: Any) -> tuple[tf.Tensor, tf.Tensor]:
        """Kernels and biases of one head, or of all (head None); with noise if `seed` is given."""

        def at_head(x):  # Slicing out all heads would cost the gradient a copy.
            return x if head is None else x[head : head + 1]

        kernel, bias = at_head(self.kernel), at_head(self.bias)
        if self._noise is None or seed is None:
            return kernel, bias
        draw = factorised_noise if self._noise == 'factorised' else independent_noise
        kernel_noise, bias_noise = draw(self.kernel.shape, seed)
        return (
            kernel + at_head(self.kernel_sigma) * at_head(kernel_noise),
            bias + at_head(self.bias_sigma) * at_head(bias_noise),
        )


class Heads(tf.keras.layers.Layer):
    """K heads of one ReLU layer and one linear layer, computed as one product.

    Hidden kernels are multiplied by the features from the right, `kernel @ features^T`, with the
    kernels of all heads stacked vertically. All heads are then one wide product, one head is a
    contiguous slice that is read without touching the others, and no gradient multiplies by a large
    transposed array. Compared with the usual [D, K H] layout (D = 3136, K H = 5120, batch 32, 2 CPU
    cores), the gradient of the features takes 14 instead of 61 ms, and one head 0.7 instead of 2
    ms. The hidden product is computed in `precision`, the small last one in float32.
    """

    def __init__(
        self,
        num_outputs: int,
        num_heads: int,
        hidden_units: int,
        noise: str | None,
        train_output: bool,
        precision: str,
        seed: int,
        name: str,
    ):
        super().__init__(name=name)
        self.hidden_units = hidden_units
        self._precision = precision
        seeds = split_seed(seed, 2)
        self.hidden_layer = HeadLayer(num_heads, hidden_units, noise, True, seeds[0], 'hidden')
        self.output_layer = HeadLayer(
            num_heads, num_outputs, noise, train_output, seeds[1], 'output'
        )

    def build(self, input_shape: Any) -> None:
        self.hidden_layer.build(input_shape)
        self.output_layer.build((None, self.hidden_units))

    def call(self, features: tf.Tensor, head: Any = None, seed: Any = None) -> tf.Tensor:
        """[B, D] -> [B, K, A]; with `head`, only that head is computed: [B, 1, A]."""
        hidden_seed, output_seed = split_draws(seed)
        hidden = self._hidden(features, head, hidden_seed)
        kernel, bias = self.output_layer.head_weights(head, output_seed)
        return tf.transpose(tf.matmul(kernel, hidden) + bias, (2, 0, 1))

    def hidden(self, features: tf.Tensor) -> tf.Tensor:
        """The ReLU units, [B, D] -> [B, K, H]."""
        return tf.transpose(self._hidden(features, None, None), (2, 0, 1))

    def _hidden(self, features, head, seed):
        kernel, bias = self.hidden_layer.head_weights(head, seed)
        kernel = tf.reshape(kernel, (-1, features.shape[-1]))
        if (
            self._precision == 'bfloat16'
            and (features.shape[0] or _BFLOAT16_ROWS) >= _BFLOAT16_ROWS
        ):
            hidden = _bfloat16_product(kernel, features)
        else:
            hidden = tf.matmul(kernel, features, transpose_b=True)
        hidden += tf.reshape(bias, (-1, 1))
        return tf.nn.relu(tf.reshape(hidden, (-1, self.hidden_units, tf.shape(features)[0])))


class QNetwork(tf.keras.Model):
    """Interface of networks; a subclass sets `num_heads` and `num_actions` and defines `call`.

    `call(observations, seed=None)` maps [B, *stack] to the values [B, K, A] of all heads, float32.
    `seed`, [2] int, is for the stateless draws of a stochastic network; others ignore it. The
    constructor takes the number of actions, `seed` and `prior_seed`, see `training/build.py`.

    Attributes:
      num_heads: Number of heads, K.
      num_actions: Number of actions, A.
      trains_output: Whether gradients reach the last layer; if not, a posterior sets it.
    """

    num_heads: int
    num_actions: int
    trains_output = True

    def followed_head(
        self, observations: Any, heads: Any, seed: Any = None
    ) -> tuple[tf.Tensor, tf.Tensor]:
        """The values of the followed heads; a network may leave out the other heads.

        Args:
          observations: Observations, [B, *stack].
          heads: Head of each observation, [B] int32.
          seed: Seed of a stochastic network, see `call`.

        Returns:
          q_values [B, k, A] and heads [B], such that q_values[b, heads[b]] belongs to the followed
          head.
        """
        return self(observations, seed), heads

    @property
    def variable_groups(self) -> list[list[tf.Variable]]:
        """Lists of variables that are trained separately, each with its own gradient norm."""
        return [self.trainable_variables]


@gin.configurable(denylist=['seed', 'prior_seed'])
@checked
class MultiHeadQNetwork(QNetwork):
    """K bootstrapped Q-functions over one trunk (Osband et al. 2016; paper, table 4).

    `network(observations, seed, head)` maps [B, *stack] to [B, K, A] float32; if `head`, a scalar
    int, is given, to [B, 1, A] of that head alone. uint8 observations are scaled to [0, 1]. Weights
    are Glorot-uniform, by the fans of one layer of one head, and biases 0. `seed`, [2] int, draws
    the noise of noisy heads; without it they act by their means.

    Args:
      num_actions: Number of actions, A.
      num_heads: Number of heads, K.
      hidden_units: ReLU units of each head.
      conv_layers: (filters, kernel size, stride) of each convolution of the trunk; empty: the
        flattened observation itself.
      conv_padding: 'valid' (Mnih et al. 2015; 3136 features) or 'same' (the released code; 7744).
      trunk_gradient_scale: Factor on the gradient that the heads send into the trunk; None: 1/K
        (paper, table 4, "normalize by 1/K for each head by following bootstrapped DQN").
      dueling: Whether each head is a value and its advantages, Q = V + A - mean A, with a hidden
        layer each (Wang et al. 2016, eq. 9).
      noise: Noise of the heads' layers, 'factorised' or 'independent', see HeadLayer; None: none.
      prior_scale: s > 0 adds s p_k to head k, where p is a network of the same shape that is never
        trained (Osband et al. 2018). The released code has 3, but disables it.
      value_scale: Factor on the values, not on the prior's. With it, weights and optimizer steps of
        the usual size represent values of this size; those of the maze are in the hundreds.
      train_output: Whether gradients reach the last layer; if not, a posterior sets it.
      precision: 'float32', or 'bfloat16' for the convolutions and, except when acting in fewer than
        32 environments, for the heads' hidden product; weights and their gradients, the last layer,
        the values and all later results stay float32. A CPU without instructions for bfloat16
        computes in float32.
      seed: Seed of the initial weights.
      prior_seed: Seed of the prior's weights; the same for the online and the target network.
    """

    def __init__(
        self,
        num_actions: int,
        num_heads: _Count = 10,
        hidden_units: _Count = 512,
        conv_layers: ConvLayers = ((32, 8, 4), (64, 4, 2), (64, 3, 1)),
        conv_padding: Literal['valid', 'same'] = 'valid',
        trunk_gradient_scale: Annotated[float, AtLeast(0)] | None = None,
        dueling: bool = False,
        noise: Literal['factorised', 'independent'] | None = None,
        prior_scale: Annotated[float, AtLeast(0)] = 0.0,
        value_scale: Annotated[float, Above(0)] = 1.0,
        train_output: bool = True,
        precision: Literal['float32', 'bfloat16'] = 'float32',
        seed: int = 0,
        prior_seed: int = 0,
    ):
        super().__init__(name='q_network')
        if precision == 'bfloat16':
            precision = _supported_precision()
        self.num_actions = num_actions
        self.num_heads = num_heads
        self.noise = noise
        self.trains_output = train_output
        self.trunk_gradient_scale = (
            1 / num_heads if trunk_gradient_scale is None else trunk_gradient_scale
        )
        *conv_seeds, heads_seed, value_seed = split_seed(seed, len(conv_layers) + 2)
        self.trunk = [
            tf.keras.layers.Conv2D(
                filters,
                kernel_size,
                stride,
                padding=conv_padding,
                activation='relu',
                kernel_initializer=tf.keras.initializers.GlorotUniform(seed),
                dtype='float32' if precision == 'float32' else f'mixed_{precision}',
                name=f'conv_{index}',
            )
            for index, ((filters, kernel_size, stride), seed) in enumerate(
                zip(conv_layers, conv_seeds)
            )
        ]
        shape = (num_heads, hidden_units, noise, train_output, precision)
        self.heads = Heads(num_actions, *shape, heads_seed, 'heads')
        self.value_heads = Heads(1, *shape, value_seed, 'value_heads') if dueling else None
        self.prior_scale = prior_scale
        self.value_scale = value_scale
        self.prior = None
        if prior_scale:
            self.prior = MultiHeadQNetwork(
                num_actions,
                num_heads,
                hidden_units,
                conv_layers,
                conv_padding,
                trunk_gradient_scale=1.0,
                dueling=dueling,
                noise=None,
                prior_scale=0.0,
                value_scale=1.0,
                train_output=True,
                precision=precision,
                seed=prior_seed,
                prior_seed=0,
            )
            self.prior.trainable = False

    def call(self, observations: Any, seed: Any = None, head: Any = None) -> tf.Tensor:
        features = self.features(observations)
        advantage_seed, value_seed = split_draws(seed)
        q_values = self.heads(features, head, advantage_seed)
        if self.value_heads is not None:
            values = self.value_heads(features, head, value_seed)
            q_values += values - tf.reduce_mean(q_values, axis=-1, keepdims=True)
        if self.value_scale != 1:
            q_values *= self.value_scale
        if self.prior is not None:
            q_values += self.prior_scale * tf.stop_gradient(self.prior(observations, head=head))
        return q_values

    def features(self, observations: Any) -> tf.Tensor:
        """The trunk: [B, *stack] -> [B, D]."""
        observations = tf.convert_to_tensor(observations)
        # bfloat16 represents all bytes, and halves the arrays of frames.
        features = tf.cast(observations, self.trunk[0].compute_dtype if self.trunk else tf.float32)
        if observations.dtype == tf.uint8:
            features *= 1 / 255
        if self.trunk and features.shape.rank == 3:  # Single frames without channels.
            features = features[..., None]
        for layer in self.trunk:
            features = layer(features)
        size = np.prod(features.shape[1:])
        features = tf.cast(tf.reshape(features, (-1, size)), tf.float32)
        return _scale_gradient(features, self.trunk_gradient_scale)

    @property
    def trunk_features(self) -> int:
        """Number of features of the trunk, D."""
        return self.heads.hidden_layer.kernel.shape[-1]

    def hidden(self, observations: Any) -> tf.Tensor:
        """Inputs of the last layer, the advantages' if dueling: [B, *stack] -> [B, K, H]."""
        return self.heads.hidden(self.features(observations))

    def followed_head(
        self, observations: Any, heads: Any, seed: Any = None
    ) -> tuple[tf.Tensor, tf.Tensor]:
        """For a single observation only the followed head is computed, [1, 1, A]."""
        if observations.shape[0] == 1:
            return self(observations, seed, heads[0]), tf.zeros_like(heads)
        return super().followed_head(observations, heads, seed)


@gin.configurable(denylist=['seed', 'prior_seed'])
@checked
class IndependentQNetworks(QNetwork):
    """Several networks that share nothing.

    The heads are those of the first network, then those of the second, and so on.

    Args:
      num_actions: Number of actions, A.
      num_networks: Number of networks.
      network: Builds each of them, a QNetwork: network(num_actions, seed=, prior_seed=).
      seed, prior_seed: Seeds, split among the networks.
    """

    def __init__(
        self,
        num_actions: int,
        num_networks: _Count = gin.REQUIRED,
        network: Callable = MultiHeadQNetwork,
        seed: int = 0,
        prior_seed: int = 0,
    ):
        super().__init__(name='q_networks')
        self.networks = [
            network(num_actions, seed=seed, prior_seed=prior_seed)
            for seed, prior_seed in zip(
                split_seed(seed, num_networks), split_seed(prior_seed, num_networks)
            )
        ]
        self.num_actions = num_actions
        self.num_heads = sum(network.num_heads for network in self.networks)
        self.trains_output = self.networks[0].trains_output

    def call(self, observations: Any, seed: Any = None) -> tf.Tensor:
        seeds = split_draws(seed, len(self.networks))
        return tf.concat(
            [network(observations, seed) for network, seed in zip(self.networks, seeds)], axis=1
        )

    def followed_head(
        self, observations: Any, heads: Any, seed: Any = None
    ) -> tuple[tf.Tensor, tf.Tensor]:
        """A single observation passes through one network only."""
        if observations.shape[0] != 1:
            return super().followed_head(observations, heads, seed)
        heads_per_network = self.networks[0].num_heads
        branches = [
            functools.partial(network.followed_head, observations, heads % heads_per_network, seed)
            for network, seed in zip(self.networks, split_draws(seed, len(self.networks)))
        ]
        return tf.switch_case(heads[0] // heads_per_network, branches)

    def copy_from(self, head: int) -> None:
        """Makes all networks equal to the one that has this head."""
        source = self.networks[head // self.networks[0].num_heads]
        for network in self.networks:
            if network is not source:
                copy_variables(source, network)

    @property
    def variable_groups(self) -> list[list[tf.Variable]]:
        return [network.trainable_variables for network in self.networks]


def build(network: Any, observation_shape: Sequence[int], dtype: Any) -> Any:
    """Creates the variables of `network` for stacks of this shape; returns the network.

    Raises:
      ValueError: It is not a QNetwork, it cannot take stacks of this shape, or its values do not
        have the shape and type of a QNetwork's.
    """
    name = type(network).__name__
    if not isinstance(network, QNetwork):
        raise ValueError(f'{name} is not a QNetwork; a network must be a subclass of it')
    returns = 'observations [B, ...] and a seed to float32 [B, num_heads, num_actions]'
    try:
        q_values = network(tf.zeros((1, *observation_shape), dtype), tf.constant([0, 0]))
        expected = tf.TensorSpec((1, network.num_heads, network.num_actions))
    except (TypeError, AttributeError) as error:
        reason = f'{type(error).__name__}: {_keras_message(error)}'
        raise ValueError(f'{name} must map {returns}, but fails with {reason}') from error
    except (ValueError, tf.errors.InvalidArgumentError) as error:
        part = type(getattr(network, 'networks', [network])[0])
        bindable = 'conv_layers' in inspect.signature(part.__init__).parameters
        layers = f'{part.__name__}.conv_layers' if bindable else ''
        raise shape_error(name, observation_shape, error, layers) from error
    given = tf.TensorSpec.from_tensor(q_values) if tf.is_tensor(q_values) else type(q_values)
    if given != expected:
        raise ValueError(f'{name} must map {returns}, here {expected}, but gives {given}')
    return network


def _keras_message(error):
    """Keras' message, without the line on where it was raised."""
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    first, *others = lines or [type(error).__name__]
    return others[0] if others and first.startswith('Exception encountered') else first


def shape_error(
    name: str, observation_shape: Sequence[int], error: Exception, layers: str = ''
) -> ValueError:
    """The ValueError for a network that Keras cannot build for a shape of observations.

    Args:
      name: Name of the network.
      observation_shape: Shape that the network cannot take.
      error: Error of Keras.
      layers: Binding that decides which shapes fit; '' if there is none.
    """
    why = f' with {layers} as bound (for none, bind ())' if layers else ''
    return ValueError(
        f'{name} cannot take observations of shape {tuple(observation_shape)}{why}: '
        f'{_keras_message(error)}'
    )


def copy_variables(source: Any, destination: Any) -> None:
    """Makes `destination` equal to `source`, variable by variable."""
    for from_variable, to_variable in zip(source.variables, destination.variables):
        to_variable.assign(from_variable)


def _scale_gradient(x, scale):
    if scale == 1:
        return x

    @tf.custom_gradient
    def identity(x):
        return tf.identity(x), lambda gradient: scale * gradient

    return identity(x)


@tf.custom_gradient
def _bfloat16_product(kernel, features):
    """kernel [m, D] @ features^T [D, n] of inputs rounded to bfloat16, as float32.

    The gradient of the kernel is a float32 product: rounding it, and casting it back for the
    optimizer, would take longer.
    """
    low_kernel, low_features = (tf.cast(x, tf.bfloat16) for x in (kernel, features))

    def gradient(product_gradient):
        low_gradient = tf.cast(product_gradient, tf.bfloat16)
        return (
            tf.matmul(product_gradient, features),
            tf.cast(tf.matmul(low_gradient, low_kernel, transpose_a=True), tf.float32),
        )

    product = tf.matmul(low_kernel, low_features, transpose_b=True)
    return tf.cast(product, tf.float32), gradient


def _supported_precision():
    """'bfloat16', or 'float32' on a CPU that would emulate it; warns of that and of old GPUs."""
    gpus = tf.config.list_physical_devices('GPU')
    if not gpus and not _cpu_has_bfloat16():
        logging.log_first_n(
            logging.WARNING,
            "MultiHeadQNetwork.precision = 'bfloat16': computing in float32, since this CPU lacks "
            'instructions for bfloat16 (AVX-512 BF16 or AMX).',
            1,
        )
        return 'float32'
    for gpu in gpus:
        details = tf.config.experimental.get_device_details(gpu)
        if details.get('compute_capability', _BFLOAT16_CAPABILITY) < _BFLOAT16_CAPABILITY:
            logging.log_first_n(
                logging.WARNING,
                "MultiHeadQNetwork.precision = 'bfloat16' is for GPUs of compute capability 8.0 or "
                'more; %s has %d.%d.',
                1,
                details.get('device_name', gpu.name),
                *details['compute_capability'],
            )
    return 'bfloat16'


def _cpu_has_bfloat16(cpuinfo='/proc/cpuinfo'):
    try:
        flags = Path(cpuinfo).read_text()
    except OSError:  # Not Linux.
        return False
    return re.search(r'\b(avx512_bf16|amx_bf16|bf16)\b', flags) is not None


def _uniform(limit, seed):
    return tf.keras.initializers.RandomUniform(-limit, limit, seed)


def _uniform_pair(limit, seed):
    return [_uniform(limit, seed) for seed in split_seed(seed, 2)]
