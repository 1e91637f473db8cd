"""Selects Keras 2 before any test imports TensorFlow; fixtures that several files use."""

import gin
import pytest

import ob2i_tf  # noqa: F401


@pytest.fixture
def clean_gin():
    """Isolates the bindings of a test from other tests in the process."""
    gin.clear_config()
    yield
    gin.clear_config()
