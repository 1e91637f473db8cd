"""A learner step, from transitions drawn from replay to updated weights (paper, Algorithm 2)."""

import contextlib
import reprlib
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
import tensorflow as tf

from ob2i_tf import types
from ob2i_tf.errors import UserError, check_array
from ob2i_tf.learner import QLearner
from ob2i_tf.tracing import Compiled, errors_of
from ob2i_tf.updates import EnsembleUpdate, EpisodicUpdate, named_means


class LearnerStep:
    """Takes a Batch from the update and regresses the learner's network on it.

    Where each batch is drawn anew, `EnsembleUpdate.batch` and the gradient step are composed into
    one compiled call. With small networks this saves a third of the step, which otherwise passes
    between NumPy and TensorFlow twice. If one drawn episode makes several batches, or a user's
    class overrides `next_batch` or `step`, these two methods are called in turn.

    Args:
      update: Update that makes the batches.
      learner: QLearner that learns from them.
      timers: Makes the context in which 'learner step', or 'targets' and 'gradient step', run.
    """

    def __init__(self, update: Any, learner: Any, timers: Callable = contextlib.nullcontext):
        self._update = update
        self._learner = learner
        self._timers = timers
        self._composed: Compiled | None = None
        if (
            getattr(update, 'draws_each_batch', False)
            and type(update).next_batch in (EnsembleUpdate.next_batch, EpisodicUpdate.next_batch)
            and type(learner).step is QLearner.step
        ):
            self._composed = Compiled(self._compose, update.compiled_batch.signature)

    def __call__(self) -> tuple[dict[str, float], np.ndarray | None, np.ndarray]:
        """Takes one learner step.

        Returns:
          'loss', 'q_mean' and the report of `Update.next_batch`; the ids [n] of the transitions
          learned from, or None if they are unknown; and their errors [n], see `QLearner.step`.

        Raises:
          UserError: A part, perhaps user code, failed or returned something unsuitable.
          NotFiniteError: Targets or loss are NaN or infinite.
        """
        if self._composed is None:
            return self._separate_calls()
        return self._one_call(self._composed)

    def _separate_calls(self):
        with self._timers('targets'), errors_of(self._update, 'next_batch'):
            batch, report = _checked(self._update, self._update.next_batch())
        with self._timers('gradient step'), errors_of(self._learner, 'step'):
            learned, errors = self._learner.step(batch)
        is_real = batch.weights > 0
        ids = None if batch.ids is None else batch.ids[is_real]
        return {**learned, **report}, ids, errors[is_real]

    def _one_call(self, composed):
        update, learner = self._update, self._learner
        with self._timers('learner step'):
            with errors_of(update, 'next_batch'):
                arrays, ids = update.draw()
            try:
                numbers, errors, targets = composed(*arrays)
            except Exception:
                with errors_of(update, 'next_batch'):  # If the update failed, it fails again.
                    update.compiled_batch(*arrays)
                with errors_of(learner, 'step'):
                    raise
            loss, q_mean, *means = numbers.numpy().tolist()
            errors = errors.numpy()[: len(ids)]
            if not np.isfinite(errors).all():  # The loss may be finite nevertheless.
                y = targets.numpy()
                check_array(update, 'next_batch', 'targets', y, y.shape, np.float32)
            return {**learner.report(loss, q_mean, targets), **named_means(means)}, ids, errors

    def _compose(self, *arrays):
        columns, means = self._update.compiled_batch.function(*arrays)
        batch = types.Batch(*columns)
        heads = self._update.network.num_heads
        for name, shape in (
            ('targets', (None, heads)),
            ('weights', (None,)),
            ('masks', (None, heads)),
        ):
            column = getattr(batch, name)
            if not tf.TensorSpec(shape).is_compatible_with(column):
                raise UserError(
                    f'{self._update} returned {name} of {column.dtype.name} {column.shape} from '
                    f'batch, not float32 {shape}'
                )
        *learned, errors = self._learner.compiled_step(batch).function(*columns)
        return tf.concat([tf.stack(learned), means], axis=0), errors, batch.targets


def _checked(update, result):
    """Returns the result of `update.next_batch()` if it is valid; raises a UserError otherwise."""
    match result:
        case (types.Batch() as batch, Mapping() as report):
            pass
        case _:
            raise UserError(
                f'{update} returned {reprlib.repr(result)} from next_batch, not a Batch and a dict'
            )
    rows, heads = max(1, len(batch.actions)), update.network.num_heads
    for name, dtype, shape in (
        ('observations', np.number, (rows, *np.shape(batch.observations)[1:])),
        ('actions', np.integer, (rows,)),
        ('targets', np.float32, (rows, heads)),
        ('weights', np.float32, (rows,)),
        ('masks', np.float32, (rows, heads)),
        ('ids', np.integer, (rows,)),
    ):
        array = getattr(batch, name)
        if name != 'ids' or array is not None:
            check_array(update, 'next_batch', name, np.asarray(array), shape, dtype)
    for name, value in report.items():
        if np.asarray(value).dtype.kind not in 'biuf':
            raise UserError(f'{update} returned {value!r} as {name!r} in its report, not a number')
    return batch, report
