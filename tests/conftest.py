"""Selects Keras 2 before any test imports TensorFlow; fixtures of several files."""

import gin
import pytest

import ob2i_tf  # noqa: F401


@pytest.fixture
def clean_gin():
    """For tests that bind: others in the process must not see it."""
    gin.clear_config()
    yield
    gin.clear_config()
