"""Draws episodes from replay by their latest TD errors, as Schaul et al. (2016) do transitions."""

import gin
import numpy as np

from ob2i_tf.replay import EpisodeReplay

_LEAST_ERROR = 1e-6  # Keeps every episode's probability above 0.


@gin.configurable
class PrioritizedEpisodeReplay(EpisodeReplay):
    """Draws each episode with a probability proportional to its priority.

    The priority is e^alpha, where e is the mean absolute TD error over the transitions of the
    episode that were learned from since it was last drawn. A new episode gets the highest stored
    priority. Targets are not corrected for the sampling (no importance weights). A draw takes a
    cumulative sum over the stored episodes: O(n), vectorised.

    Args:
      alpha: Exponent of the errors; 0 draws uniformly.
      *args, **kwargs: See EpisodeReplay, under whose name gin binds them.

    Attributes:
      priorities: [num_episodes] float64, by index.

    Raises:
      ValueError: See EpisodeReplay; or alpha is negative.
    """

    def __init__(self, *args, alpha: float = 0.6, **kwargs):
        if alpha < 0:
            raise ValueError(f'PrioritizedEpisodeReplay.alpha must be at least 0, got {alpha}')
        super().__init__(*args, **kwargs)
        self.priorities = np.zeros(0)
        self._visits = np.zeros((0, 2))  # Since the last draw: sum and number of the TD errors.
        self._alpha = alpha

    def draw_episode(self, candidates):
        priorities = self.priorities[candidates.start : candidates.stop]
        index = candidates[self.rng.choice(len(candidates), p=priorities / priorities.sum())]
        self._visits[index] = 0
        return index

    def append(self, frames, steps):
        super().append(frames, steps)
        highest = self.priorities.max() if len(self.priorities) else 1.0
        self.priorities = np.append(self.priorities, highest)
        self._visits = np.append(self._visits, [[0, 0]], axis=0)

    def drop_oldest(self):
        super().drop_oldest()
        self.priorities, self._visits = self.priorities[1:], self._visits[1:]

    def learned(self, ids, errors):
        indices = self.indices_of(ids)
        stored = indices >= 0
        np.add.at(self._visits[:, 0], indices[stored], errors[stored])
        np.add.at(self._visits[:, 1], indices[stored], 1)
        changed = np.unique(indices[stored])
        total, count = self._visits[changed].T
        self.priorities[changed] = (total / count + _LEAST_ERROR) ** self._alpha

    def state(self):
        return {'priorities': self.priorities, 'visits': self._visits}

    def set_state(self, arrays):
        self.priorities, self._visits = arrays['priorities'].copy(), arrays['visits'].copy()
