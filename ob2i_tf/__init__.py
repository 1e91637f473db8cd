"""OB2I: principled exploration via optimistic bootstrapping and backward induction (ICML 2021).

Importing the package selects Keras 2 (tf-keras), which TF-Agents needs. TensorFlow reads that
choice once, when it is imported, so this package must be imported first. On a GPU, TensorFlow then
allocates memory as it needs it, unless TF_FORCE_GPU_ALLOW_GROWTH says otherwise.
"""

import importlib.util
import os
import sys
from typing import TYPE_CHECKING, Any

import gymnasium

if TYPE_CHECKING:
    from ob2i_tf.api import load, train  # noqa: F401

__version__ = '1.0.0'

_LEGACY_KERAS = 'TF_USE_LEGACY_KERAS'


def _select_keras_2():
    chosen = os.environ.get(_LEGACY_KERAS, '').lower() in ('1', 'true')
    if 'tensorflow' in sys.modules and not chosen:
        raise ImportError(
            'ob2i_tf needs Keras 2, but TensorFlow was imported before it with Keras 3: import '
            f'ob2i_tf first, or set {_LEGACY_KERAS}=1 before importing TensorFlow.'
        )
    os.environ[_LEGACY_KERAS] = '1'


_select_keras_2()
os.environ.setdefault('TF_FORCE_GPU_ALLOW_GROWTH', 'true')  # Read when the first op runs.

gymnasium.register('ob2i/MnistMaze-v0', entry_point='ob2i_tf.environments.mnist_maze:MnistMaze')


def __getattr__(name: str) -> Any:
    """Imports a module such as `ob2i_tf.targets`, or `load` and `train`, when first used."""
    if name in ('load', 'train'):
        return getattr(importlib.import_module(f'{__name__}.api'), name)
    if not name.startswith('_') and importlib.util.find_spec(f'{__name__}.{name}'):
        return importlib.import_module(f'{__name__}.{name}')
    raise AttributeError(f'module {__name__!r} has no attribute {name!r}')
