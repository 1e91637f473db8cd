"""Selects Keras 2 before any test imports TensorFlow; fixtures that several files use."""

import gc

import gin
import pytest

import ob2i_tf  # noqa: F401

gc.disable()  # Until all is imported.


@pytest.fixture
def clean_gin():
    """Isolates the bindings of a test from other tests in the process."""
    gin.clear_config()
    yield
    gin.clear_config()


def pytest_collection_finish():
    """Importing leaves no garbage behind; looking for it again and again takes a tenth longer."""
    gc.freeze()
    gc.enable()
