"""Episodes in which every value identifies its place, and queries of those that replay holds."""

import numpy as np

from ob2i_tf.replay import EpisodeReplay
from ob2i_tf.types import Episode

FRAME = (2, 3)


def make_replay(capacity=1000, history=1, seed=0, frame=FRAME, dtype=np.int32, **kwargs):
    return EpisodeReplay(frame, capacity, history, seed, dtype, **kwargs)


def make_episode(number, length, history=1):
    """Every value encodes its episode and time; so does the context, with times below 0."""
    ids = 1000 * number + np.arange(-(history - 1), length + 1)
    frames = np.broadcast_to(ids[:, None, None], (len(ids), *FRAME)).astype(np.int32)
    steps = ids[history - 1 : -1]
    return Episode(
        frames[history - 1 :], steps, steps / 8, np.full(length, 0.9), frames[: history - 1]
    )


def number_of(episode):
    return episode.observations.flat[0] // 1000


def numbers_in(replay, draws=400):
    """The episodes that are stored."""
    return {number_of(replay.sample_episode()) for _ in range(draws)}


def first_ids(replay, draws=60):
    """{number of a stored episode: id of its first transition}."""
    episodes = [replay.sample_episode() for _ in range(draws)]
    return {number_of(episode): episode.first_id for episode in episodes}


def equal(a, b):
    return all(np.array_equal(x, y) for x, y in zip(a, b, strict=True))


def same_future(a, b, draws=30):
    return all(
        equal(a.sample_episode(), b.sample_episode())
        and equal(a.sample_transitions(7), b.sample_transitions(7))
        for _ in range(draws)
    )
