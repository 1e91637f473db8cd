"""Where TensorFlow would place the operations of a traced function on a GPU.

The installed TensorFlow registers its GPU kernels whether or not there is a GPU. A kernel names the
inputs and outputs that it keeps in the main memory; a tensor that a GPU computes and that such an
input takes is copied, for which the host waits.
"""

import functools

import tensorflow as tf
from tensorflow.python.framework import kernels
from tensorflow.python.framework.function_def_to_graph import function_def_to_graph

# They call functions, whose arguments of these types are in the main memory.
_CALLS = ('PartitionedCall', 'StatefulPartitionedCall', 'While', 'StatelessWhile', 'If')
_HOST_TYPES = (tf.int32, tf.resource, tf.variant, tf.string)
_HANDLES = (tf.resource, tf.variant, tf.string)


def findings(concrete):
    """Strings on a concrete function and all functions that it calls.

    Returns:
      'no kernel: OP of TYPES' for operations that a GPU does not have, and 'copy: INPUT from OP
      TYPE [rank] to OP' for copies that the host waits for.
    """
    found = set()
    for graph in _graphs(concrete):
        for operation in _needed(graph):
            found |= _findings_of(operation)
    return found


def _graphs(concrete):
    library = concrete.graph.as_graph_def().library
    yield concrete.graph
    with tf.Graph().as_default():
        tf.import_graph_def(tf.compat.v1.GraphDef(library=library))
        for function in library.function:
            yield function_def_to_graph(function)


def _needed(graph):
    """The operations that the outputs and side effects of a function depend on."""
    waiting = [x.op for x in graph.outputs] + list(graph.control_outputs)
    seen = set()
    while waiting:
        operation = waiting.pop()
        if operation not in seen:
            seen.add(operation)
            waiting += [x.op for x in operation.inputs] + list(operation.control_inputs)
    return seen


def _findings_of(operation):
    types = [x.dtype for x in operation.inputs]
    if operation.type == 'Const' and operation.outputs[0].dtype == tf.string:
        return set()  # Of an assertion.
    if operation.type in ('Placeholder', 'NoOp', *_CALLS):
        on_host = [dtype in _HOST_TYPES for dtype in types]
        if operation.type == 'If':
            on_host[0] = True
    elif _kernel(operation) is None:
        return {f'no kernel: {operation.type} of {", ".join(x.name for x in types)}'}
    else:
        on_host = [
            name in _kernel(operation).host_memory_arg for name in _names(operation, 'input_arg')
        ]
    return {
        f'copy: {x.op.type} {x.dtype.name} {x.shape} to {operation.type}'
        for x, host in zip(operation.inputs, on_host)
        if host and x.dtype not in _HANDLES and not _is_on_host(x)
    }


def _is_on_host(tensor):
    operation = tensor.op
    if operation.type in ('Placeholder', *_CALLS):
        return tensor.dtype in _HOST_TYPES
    if operation.type == 'Const':  # Copied once.
        return True
    kernel = _kernel(operation)
    names = _names(operation, 'output_arg')
    return kernel is None or names[tensor.value_index] in kernel.host_memory_arg


def _kernel(operation):
    """The kernel of a GPU for these types; None if there is none."""
    fitting = [
        kernel
        for kernel in _registered(operation.type)
        if kernel.device_type in ('GPU', 'DEFAULT') and not kernel.label
        if all(_fits(operation.get_attr(c.name), c.allowed_values) for c in kernel.constraint)
    ]
    return min(fitting, key=lambda kernel: kernel.device_type == 'DEFAULT', default=None)


@functools.cache
def _registered(kind):
    return kernels.get_registered_kernels_for_op(kind).kernel


def _fits(value, allowed):
    if allowed.list.s:
        return value in allowed.list.s
    values = value if isinstance(value, (list, tuple)) else [value]
    return all(tf.as_dtype(x).as_datatype_enum in allowed.list.type for x in values)


def _names(operation, which):
    """The name of each input, or output, as `host_memory_arg` has it."""
    names = []
    for arg in getattr(operation.op_def, which):
        count = 1
        if arg.number_attr:
            count = operation.get_attr(arg.number_attr)
        elif arg.type_list_attr:
            count = len(operation.get_attr(arg.type_list_attr))
        names += [arg.name] * count
    return names
