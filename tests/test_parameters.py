"""Ranges in annotations: values at their borders and beyond."""

import inspect
from collections.abc import Callable, Mapping, Sequence
from typing import Annotated, Literal, Protocol

import gin
import numpy as np
import pytest
import tensorflow as tf

from ob2i_tf import parameters
from ob2i_tf.parameters import Above, AtLeast, AtMost, Below, Within

nan = float('nan')


class Bonus:
    pass


class Shape(Protocol):
    sides: int


COUNT = Annotated[int, AtLeast(1)]
SHARE = Annotated[float, Above(0), AtMost(1)]
FACTORS = Annotated[float, Within(0, 1)] | Sequence[Annotated[float, Within(0, 1)]]


@pytest.mark.parametrize(
    'hint, fits, others, expected',
    [
        (int, [0, -1, np.int64(3)], [1.0, True, np.True_, '1', None, np.float32(1)], 'int'),
        (float, [0, 1.5, np.float32(1), -3.4e38], [True, '1', None, 1j], 'float'),
        (float, [], [3.5e38, -1e300, 10**400, np.inf, nan], 'within +-3.4e+38'),
        (int, [2**64], [10**39, -(10**5000)], 'within +-3.4e+38'),
        (Annotated[float, AtLeast(0)], [3.4e38], [1e39, np.inf], 'within +-3.4e+38'),
        (Annotated[float, AtLeast(0)], [], [-1e39, nan], 'at least 0'),
        (bool, [True, False], [0, 'True', None], 'bool'),
        (str, ['', np.str_('a')], [b'a', 1, None], 'str'),
        (COUNT, [1, 2, np.int32(1)], [0, -1, np.int64(0)], 'at least 1'),
        (COUNT, [], [1.0, True, None], 'int'),
        (SHARE, [1, 1e-9, np.float64(0.5)], [0, 0.0, 1.0001, -1, nan], 'above 0 and at most 1'),
        (Annotated[float, AtLeast(0), Below(1)], [0, 0.999], [1, -1e-9], 'at least 0 and below 1'),
        (Annotated[float, Within(0, 1)], [0, 1, 0.5], [-1e-9, 1.1, nan], 'in 0..1'),
        (COUNT | None, [None, 1], [0], 'at least 1 or None'),
        (COUNT | None, [], ['1', True], 'int or None'),
        (Literal['a', 'b'], ['a', 'b'], ['c', ('a',), None, 1], "one of 'a', 'b'"),
        (Literal['a'] | None, ['a', None], ['', 0], "one of 'a' or None"),
        (Literal[1, 2], [1], [True, 1.0, '1'], 'one of 1, 2'),
        (FACTORS, [0, 1, (0, 1), [0.5], np.array([0.1, 1.0]), ()], [(), 2][1:],
         'in 0..1 or a sequence of float in 0..1'),
        (FACTORS, [], [(0.5, 2), 'a', [nan], np.array([2.0])],
         'float or a sequence of float in 0..1'),
        (Sequence[tuple[int, int]], [(), [(1, 2)]], [5, '12', [(1,)], [(1, 2.0)], {}],
         'a sequence of (int, int)'),
        (tuple[COUNT, ...], [(), (1, 2)], [(0,), 1], 'a sequence of int at least 1'),
        (Sequence, [(), [1, 'a']], ['a', 1, None], 'a sequence'),
        (Mapping[str, COUNT], [{}, {'a': 1}], [{'a': 0}, {1: 1}, (), None],
         'a mapping of str to int at least 1'),
        (dict, [{}, {1: 2}], [[]], 'a mapping'),
        (Callable, [len, Bonus], [1, None, 'len'], 'a function or class'),
        (Callable[[int], int] | None, [len, None], [1], 'a function or class or None'),
        (Bonus | None, [Bonus(), None], [Bonus, 1], 'Bonus or None'),
        (Shape, [1, Bonus()], [], ''),
        ('never defined', [1], [], ''),
    ],
)  # fmt: skip
def test_values_and_annotations(hint, fits, others, expected):
    for value in (*fits, parameters.ANY):
        assert parameters.misfit(value, hint) == '', value
    for value in others:
        assert parameters.misfit(value, hint) == expected, value


def test_choices():
    assert parameters.choices(Sequence[Literal['a', 'b']] | None) == ['a', 'b']
    assert parameters.choices(int) == []


@parameters.checked
def rate(step, start: SHARE = 1.0, *, steps: COUNT = 3, note: str = None):
    """A rate."""
    return start * step / steps


@gin.configurable(module='parameters_test', denylist=['seed'])
@parameters.checked
class Part(tf.Module):
    """A part."""

    def __init__(self, network, size: COUNT = 1, seed: int = 0):
        super().__init__(name='part')
        self.size = size


@gin.configurable(module='parameters_test')
class LargePart(Part):
    def __init__(self, size: int = 5):
        super().__init__(None, size)


@gin.configurable(module='parameters_test')
@parameters.checked
class Layers(tf.keras.Model):
    def __init__(self, units: COUNT = 2, activation: Literal['relu', 'tanh'] = 'relu'):
        super().__init__()
        self.dense = tf.keras.layers.Dense(units, activation)

    def call(self, x):
        return self.dense(x)


def test_functions_are_checked_on_each_call():
    assert rate(3, 1, steps=1) == 3
    assert rate(3) == 1
    assert rate(4, steps=np.int64(2), note=None) == 2  # A default always fits.
    for wrong, message in (
        ({'start': 0}, 'rate.start must be above 0 and at most 1, got 0'),
        ({'start': nan}, 'rate.start must be above 0 and at most 1, got nan'),
        ({'steps': 0}, 'rate.steps must be at least 1, got 0'),
        ({'steps': 1.0}, 'rate.steps must be int, got 1.0'),
        ({'steps': True}, 'rate.steps must be int, got True'),
        ({'steps': None}, 'rate.steps must be int, got None'),
        ({'note': 3}, 'rate.note must be str'),
    ):
        with pytest.raises(ValueError) as error:
            rate(1, **wrong)
        assert str(error.value).startswith(message)
    with pytest.raises(ValueError, match='rate.start must be above 0'):
        rate(1, -1)
    with pytest.raises(TypeError, match='unexpected keyword'):
        rate(1, end=1)
    with pytest.raises(TypeError, match='positional'):
        rate(1, 1, 1)
    assert rate.__doc__ == 'A rate.' and list(inspect.signature(rate).parameters)[1] == 'start'


def test_constructors_are_checked_below_gin():
    assert Part(None).size == 1 and Part(None, np.int64(2)).size == 2
    with pytest.raises(ValueError, match=r'^Part\.size must be at least 1, got 0'):
        Part(None, 0)
    with pytest.raises(ValueError, match=r'^LargePart\.size must be at least 1, got -1'):
        LargePart(-1)
    with gin.unlock_config():
        gin.bind_parameter('Part.size', 0)
    try:
        with pytest.raises(ValueError, match=r'^Part\.size must be at least 1, got 0'):
            Part(None)
        assert Part(None, size=4).size == Part(None, 4).size == 4  # A caller's value wins.
    finally:
        gin.clear_config()
    with pytest.raises(ValueError, match='cannot be bound|denylist'):
        gin.bind_parameter('Part.seed', 1)
    assert Part.__doc__ == 'A part.'
    assert list(inspect.signature(Part).parameters) == ['network', 'size', 'seed']


def test_keras_models_are_checked():
    assert Layers(units=3)(tf.zeros((1, 2))).shape == (1, 3)
    with pytest.raises(ValueError, match=r"^Layers\.activation must be one of 'relu', 'tanh', got"):
        Layers(activation='sigmoid')
