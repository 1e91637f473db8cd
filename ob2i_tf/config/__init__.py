"""The gin layer: a wrong configuration is an error before anything is built.

values <- reading (files and flags -> bindings) <- checking (bindings -> gin's state) <- resolved
(queries of gin's state). `state` exchanges gin's state.
"""

from ob2i_tf.config.checking import apply, load, uses
from ob2i_tf.config.reading import as_flags, available, read
from ob2i_tf.config.resolved import bound, construction_errors, resolved_config, value
from ob2i_tf.config.state import GinState

__all__ = [
    'GinState',
    'apply',
    'as_flags',
    'available',
    'bound',
    'construction_errors',
    'load',
    'read',
    'resolved_config',
    'uses',
    'value',
]
