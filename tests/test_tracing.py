import numpy as np
import pytest
import tensorflow as tf

from ob2i_tf.errors import UserError
from ob2i_tf.tracing import Compiled, errors_of


def arrays(*lengths):
    return [np.arange(length, dtype=np.float32) for length in lengths]


def test_arrays_and_tensors_go_in():
    variable = tf.Variable(10.0)
    double = Compiled(lambda x, y: (variable * x, y + 1))
    for x, y in (arrays(3, 2), map(tf.constant, arrays(3, 2))):
        product, total = double(x, y)
        np.testing.assert_array_equal(product, [0, 10, 20])
        np.testing.assert_array_equal(total, [1, 2])


def test_variables_are_read_at_each_call():
    variable = tf.Variable(1.0)
    product = Compiled(lambda x: variable * x)
    assert float(product(np.float32(2))) == 2
    variable.assign(5.0)
    assert float(product(np.float32(2))) == 10


def test_a_trace_belongs_to_shapes_and_types_or_to_a_signature():
    shapes = []

    def plus_one(x):
        shapes.append(tuple(x.shape))
        return x + 1

    by_shape = Compiled(plus_one)
    for length in (1, 3, 1, 3):
        assert by_shape(*arrays(length)).shape == (length,)
    assert by_shape(np.zeros(1, np.int32)).dtype == tf.int32
    assert shapes == [(1,), (3,), (1,)]
    assert by_shape.function.experimental_get_tracing_count() == 3

    shapes.clear()
    any_length = Compiled(plus_one, [tf.TensorSpec([None], tf.float32)])
    for length in (1, 3, 8):
        assert any_length(*arrays(length)).shape == (length,)
    assert shapes == [(None,)]


def test_arguments_must_have_the_sizes_of_the_signature():
    count = Compiled(lambda x: tf.range(tf.shape(x)[0]), [tf.TensorSpec([3], tf.float32)])
    np.testing.assert_array_equal(count(*arrays(3)), [0, 1, 2])
    with pytest.raises(ValueError, match=r'expected 3 at axis 0 of argument 0, got \(4,\)'):
        count(*arrays(4))


def test_functions_can_be_run_eagerly():
    seen = []
    double = Compiled(lambda x: (seen.append(x), 2 * x)[1])
    double(*arrays(2))
    tf.config.run_functions_eagerly(True)
    try:
        np.testing.assert_array_equal(double(*arrays(3)), [0, 2, 4])
    finally:
        tf.config.run_functions_eagerly(False)
    np.testing.assert_array_equal(seen[-1], [0, 1, 2])


def test_xla_compiles_it():
    double = Compiled(lambda x: 2 * x, xla=True)
    np.testing.assert_array_equal(double(*arrays(3)), [0, 2, 4])
    assert 'HloModule' in double.function.experimental_get_compiler_ir(*arrays(3))(stage='hlo')


@pytest.mark.parametrize(
    'error', [UserError('a'), MemoryError('b'), tf.errors.ResourceExhaustedError(None, None, 'c')]
)
def test_errors_that_need_no_name_pass(error, capfd):
    with pytest.raises(type(error)) as raised, errors_of('part', 'call'):
        raise error
    assert raised.value is error and not capfd.readouterr().err
