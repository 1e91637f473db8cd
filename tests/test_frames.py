import numpy as np
import pytest
import tensorflow as tf

from ob2i_tf import frames

FRAME = (2, 3)
FRAMES = np.arange(5 * 6).reshape(5, *FRAME)


def test_a_stack_has_the_newest_frame_last():
    starts = np.array([2, 0, 1])
    stacked = frames.stack(FRAMES, starts, 3)
    assert stacked.shape == (3, *FRAME, 3)
    for row, start in zip(stacked, starts):
        for age in range(3):
            np.testing.assert_array_equal(row[..., -1 - age], FRAMES[start + 2 - age])
    np.testing.assert_array_equal(frames.stack(FRAMES, starts, 1), FRAMES[starts])


@pytest.mark.parametrize('history', [1, 2, 4])
def test_windows_and_tensors_are_stacked_alike(history):
    starts = np.arange(len(FRAMES) - history + 1)
    expected = frames.stack(FRAMES, starts, history)
    windows = [FRAMES[start : start + history] for start in starts]
    np.testing.assert_array_equal(frames.stack_windows(windows), expected)
    for dtype in (np.int64, np.float32, np.uint8):
        stacked = frames.stack_all(tf.constant(FRAMES.astype(dtype)), history)
        assert stacked.dtype == dtype
        np.testing.assert_array_equal(stacked, expected)


def test_all_bytes_are_stacked():
    rng = np.random.default_rng(0)
    some = rng.integers(0, 256, (40, 5, 7), dtype=np.uint8)
    some[:8], some[8:12] = 255, 0
    expected = frames.stack(some, np.arange(37), 4)
    np.testing.assert_array_equal(frames.stack_all(tf.constant(some), 4), expected)


@pytest.mark.parametrize('history', [1, 2, 4])
def test_a_stack_comes_apart_into_its_frames(history):
    (stacked,) = frames.stack(FRAMES, np.array([0]), history)
    np.testing.assert_array_equal(frames.newest(stacked, history), FRAMES[history - 1])
    np.testing.assert_array_equal(frames.older(stacked, history), FRAMES[: history - 1])
    assert frames.older(stacked, history).shape == (history - 1, *FRAME)
