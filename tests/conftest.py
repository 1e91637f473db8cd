"""Selects Keras 2 before any test imports TensorFlow."""

import ob2i_tf  # noqa: F401
