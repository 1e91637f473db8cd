"""Against bare emulators that play the same games beside the environment."""

import faulthandler
import functools
import itertools
import time
import warnings

import ale_py
import gin
import numpy as np
import pytest
from ale_py import roms
from gymnasium.vector import AutoresetMode

from ob2i_tf import environments


@pytest.fixture(autouse=True)
def deadline():
    """A reset that hangs, as ALE's did in some releases, ends the run with a traceback."""
    faulthandler.dump_traceback_later(240, exit=True)
    yield
    faulthandler.cancel_dump_traceback_later()


@pytest.fixture
def clean_gin():
    gin.clear_config()
    yield
    gin.clear_config()


def ale_seeds(seed, num_envs):
    return np.random.SeedSequence(seed).generate_state(num_envs) >> 1


@functools.lru_cache
def averaging(size):
    """[84, size], by way of the grid that 84 and size both divide."""
    grid = np.lcm(size, 84)
    return np.repeat(np.eye(size), grid // size, axis=0).reshape(84, grid // 84, size).mean(axis=1)


def shrink(screen):
    return averaging(screen.shape[0]) @ screen @ averaging(screen.shape[1]).T


class Mirror:
    """A bare emulator that plays the same game as one environment."""

    def __init__(self, game, seed, press_fire=False):
        self.ale = ale_py.ALEInterface()
        self.ale.setInt('random_seed', int(seed))
        self.ale.setFloat('repeat_action_probability', 0.0)
        self.ale.loadROM(roms.get_rom_path(environments.games.resolve(game)))
        self.actions = self.ale.getMinimalActionSet()
        self.press_fire = press_fire

    def begin(self, episode_frames):
        self.ale.reset_game()
        noops = episode_frames - self.ale.getEpisodeFrameNumber() - self.press_fire
        for action in [1] * self.press_fire + [0] * noops:
            self.ale.act(action)

    def step(self, action):
        """(raw reward, the last two screens' maximum, emulator frames played)."""
        reward, screens = 0, []
        while len(screens) < 4 and not self.ale.game_over():
            reward += self.ale.act(self.actions[action])
            screens.append(self.ale.getScreenGrayscale())
        return reward, np.max(screens[-2:], axis=0), len(screens)


def assert_shows(frame, screen):
    """Within the rounding of OpenCV's resize, which is one grey level in rare pixels."""
    difference = np.abs(frame - shrink(screen))
    assert difference.max() <= 1.01
    assert (difference > 0.51).mean() < 0.01


def play_beside_mirrors(game, num_envs, seed, num_games, **kw):
    """Plays random actions; checks each step against bare emulators, screens at every tenth.

    Returns:
      The emulator frames played in the last step of each game, and each game's raw score.
    """
    env = environments.make(game, num_envs, seed, **kw)
    mirrors = [Mirror(game, s, kw.get('press_fire', False)) for s in ale_seeds(seed, num_envs)]
    obs, info = env.reset()
    for i, mirror in enumerate(mirrors):
        mirror.begin(int(info['episode_frames'][i]))
    rng = np.random.default_rng(seed)
    scores, expected_scores = np.zeros(num_envs), np.zeros(num_envs)
    last_steps, finished, lives = [], [], info['lives']
    while len(finished) < num_games:
        actions = rng.integers(env.single_action_space.n, size=num_envs)
        before = obs
        obs, rewards, terminated, truncated, info = env.step(actions)
        scores += info['raw_rewards']
        assert np.array_equal(rewards, np.sign(info['raw_rewards']))
        assert np.array_equal(info['final_obs'][..., :3], before[..., 1:])
        assert not truncated.any()
        for i, mirror in enumerate(mirrors):
            reward, screen, frames = mirror.step(int(actions[i]))
            expected_scores[i] += reward
            over = mirror.ale.game_over()
            if not over and (terminated[i] or rng.random() < 0.1):
                assert_shows(info['final_obs'][i, ..., -1], screen)
            assert info['game_over'][i] == over
            assert terminated[i] == (over or mirror.ale.lives() < lives[i])
            if over:
                assert (obs[i] == obs[i, ..., :1]).all()  # The first frame repeated.
                finished.append((scores[i], expected_scores[i]))
                scores[i] = expected_scores[i] = 0
                last_steps.append(frames)
                mirror.begin(int(info['episode_frames'][i]))
                assert info['lives'][i] == mirror.ale.lives()
            else:
                assert np.array_equal(obs[i], info['final_obs'][i])
        lives = info['lives']
    env.close()
    for score, expected in finished:
        assert score == expected
    return last_steps, [score for score, _ in finished]


def test_every_step_is_the_emulators():
    """Raw scores over complete games, life losses, ends within agent steps."""
    last_steps = []
    with warnings.catch_warnings():
        warnings.simplefilter('error')
        for game, num_envs, num_games in (
            ('Breakout', 3, 3),
            ('Seaquest', 1, 2),
            ('Q*Bert', 1, 1),
            ('Space Invaders', 1, 1),
            ('Asterix', 2, 3),
            ('Amidar', 1, 1),
            ('Up and Down', 1, 1),
            ('Gravitar', 1, 1),
            ('Pong', 1, 1),
        ):
            frames, scores = play_beside_mirrors(game, num_envs, seed=3, num_games=num_games)
            last_steps += frames
            if game == 'Q*Bert':
                assert max(scores) >= 25  # Of an event that pays 25, 1 to the learner.
    assert set(last_steps) == {1, 2, 3, 4}


def test_fire_is_pressed_only_on_demand():
    """Breakout waits for FIRE, so with NOOPs nothing ever happens."""
    for press_fire in (False, True):
        env = environments.make('Breakout', seed=1, press_fire=press_fire)
        obs, info = env.reset()
        mirror = Mirror('Breakout', ale_seeds(1, 1)[0], press_fire)
        mirror.begin(int(info['episode_frames'][0]))
        lost = False
        for _ in range(100):
            obs, _, terminated, _, info = env.step(np.zeros(1, int))
            _, screen, _ = mirror.step(0)
            assert_shows(obs[0, ..., -1], screen)
            lost |= terminated[0]
        assert lost == press_fire
        env.close()
    with warnings.catch_warnings():
        warnings.simplefilter('error')
        play_beside_mirrors('Breakout', 1, seed=2, num_games=1, press_fire=True)


def test_1000_agent_steps_are_4000_frames():
    env = environments.make('Breakout', 2)
    _, info = env.reset()
    opening = info['episode_frames'].copy()
    for _ in range(1000):
        _, _, _, _, info = env.step(np.zeros(2, int))
    np.testing.assert_array_equal(info['episode_frames'] - opening, 4000)
    assert env.metadata['frames_per_step'] == 4 and env.metadata['render_fps'] == 15


def test_a_game_in_which_nothing_happens_is_cut_at_27000_agent_steps():
    env = environments.make('Bowling', seed=5)
    obs, _ = env.reset()
    for step in range(1, 27001):
        before = obs
        obs, _, terminated, truncated, info = env.step(np.zeros(1, int))
        assert not terminated[0] and truncated[0] == info['game_over'][0] == (step == 27000)
    np.testing.assert_array_equal(info['final_obs'][0, ..., :3], before[0, ..., 1:])
    _, _, _, truncated, _ = env.step(np.zeros(1, int))
    assert not truncated[0]


@pytest.mark.parametrize('limit, agent_steps', [(400, 100), (401, 101), (4, 1), (1, 1)])
def test_limit_counts_frames_after_the_noops_in_whole_agent_steps(limit, agent_steps):
    """The limit leaves the last observation and the other environments as they are without it."""
    limited = environments.make('Pong', 2, 4, max_episode_frames=limit)
    free = environments.make('Pong', 2, 4)
    limited.reset()
    free.reset()
    rng = np.random.default_rng(0)
    for step in range(1, agent_steps + 1):
        actions = rng.integers(6, size=2)
        obs, _, terminated, truncated, info = limited.step(actions)
        free_obs, *_ = free.step(actions)
        np.testing.assert_array_equal(info['final_obs'], free_obs)
        assert not terminated.any() and (truncated == (step == agent_steps)).all()
    assert info['game_over'].all() and (info['episode_frames'] <= 30).all()
    assert (obs == obs[..., :1]).all()


def test_truncation_resets_only_its_own_game_and_ends_in_the_real_observation():
    """Games of different lengths, so that limits and game overs fall at different steps."""
    num_envs, limit = 3, 680  # frames
    env = environments.make('Breakout', num_envs, 6, max_episode_frames=limit)
    mirrors = [Mirror('Breakout', s) for s in ale_seeds(6, num_envs)]
    _, info = env.reset()
    lengths, kinds = np.zeros(num_envs, int), []
    for i, mirror in enumerate(mirrors):
        mirror.begin(int(info['episode_frames'][i]))
    rng = np.random.default_rng(1)
    for step in range(650):
        actions = rng.integers(4, size=num_envs)
        actions[step % num_envs] = 0
        _, _, _, truncated, info = env.step(actions)
        lengths += 1
        for i, mirror in enumerate(mirrors):
            _, screen, _ = mirror.step(int(actions[i]))
            over, cut = mirror.ale.game_over(), lengths[i] == limit // 4
            assert info['game_over'][i] == (over or cut) and truncated[i] == (cut and not over)
            if truncated[i]:
                assert_shows(info['final_obs'][i, ..., -1], screen)
            if info['game_over'][i]:
                kinds.append('over' if over else 'cut')
                lengths[i] = 0
                mirror.begin(int(info['episode_frames'][i]))
    assert kinds.count('over') >= 2 and kinds.count('cut') >= 2


def test_limits_by_game_take_any_spelling():
    by_game = {'Q*Bert': 40, 'up_n_down': 8}
    for name, steps in (('qbert', 10), ('Up and Down', 2)):
        env = environments.make(name, max_episode_frames_by_game=by_game)
        env.reset()
        assert [bool(env.step([0])[3][0]) for _ in range(steps)] == [False] * (steps - 1) + [True]
    with pytest.raises(ValueError, match='Frostbite'):
        environments.make('Pong', max_episode_frames_by_game={'Frostbyte': 8})
    for keywords, message in (
        ({'max_episode_frames_by_game': {'Frostbyte': 8}}, 'make_atari.max_episode_frames_by_game'),
        (
            {'max_episode_frames_by_game': {'Seaquest': 'x'}},
            'max_episode_frames_by_game must be a mapping of str to int at least 1 or None, got',
        ),
        ({'max_episode_frames_by_game': {'Seaquest': 0}}, 'int at least 1 or None, got'),
        ({'frame_skip': 0}, 'make_atari.frame_skip must be in 1..108000, got 0'),
    ):
        with pytest.raises(ValueError, match=message):
            environments.make('Pong', **keywords)


def test_life_loss_neither_resets_the_game_nor_the_stack():
    env = environments.make('Breakout', seed=8)
    obs, info = env.reset()
    lives, losses, steps = info['lives'][0], 0, 0
    while losses < 4:
        before = obs
        obs, _, terminated, truncated, info = env.step([1 + steps % 3])
        steps += 1
        np.testing.assert_array_equal(obs[..., :3], before[..., 1:])
        assert terminated[0] == (info['lives'][0] < lives)
        assert not truncated[0] and not info['game_over'][0]
        losses += terminated[0]
        lives = info['lives'][0]
    env.close()


def test_a_life_starts_a_stack_of_copies_of_its_first_frame_on_demand():
    """Against stacks made of the frames of each life, in two games, one of which is cut off."""
    keywords = {'num_envs': 2, 'seed': 8, 'max_episode_frames': 1000}
    env = environments.make('Breakout', restart_stack_on_life_loss=True, **keywords)
    plain = environments.make('Breakout', **keywords)
    obs, _ = env.reset()
    plain.reset()
    lives = [[stack[..., -1]] for stack in obs]  # The frames of the life in progress.

    def stack(frames):
        return np.stack([frames[max(i, 0)] for i in range(len(frames) - 4, len(frames))], axis=-1)

    losses = game_overs = 0
    rng = np.random.default_rng(0)
    while losses < 12 or game_overs < 3:
        actions = rng.integers(4, size=2)
        obs, _, terminated, truncated, info = env.step(actions)
        _, _, plain_terminated, _, plain_info = plain.step(actions)
        np.testing.assert_array_equal(terminated, plain_terminated)
        np.testing.assert_array_equal(info['final_obs'][..., -1], plain_info['final_obs'][..., -1])
        for i in range(2):
            lives[i].append(info['final_obs'][i, ..., -1])
            np.testing.assert_array_equal(info['final_obs'][i], stack(lives[i]))
            if terminated[i] or truncated[i]:
                if not info['game_over'][i]:
                    np.testing.assert_array_equal(obs[i, ..., -1], lives[i][-1])
                lives[i] = [obs[i, ..., -1]]
            np.testing.assert_array_equal(obs[i], stack(lives[i]))
        losses += (terminated & ~info['game_over']).sum()
        game_overs += info['game_over'].sum()
    with pytest.raises(ValueError, match='restart_stack_on_life_loss needs terminal_on_life_loss'):
        environments.make('Breakout', restart_stack_on_life_loss=True, terminal_on_life_loss=False)


def test_evaluation_keywords_leave_rewards_and_lives_alone():
    env = environments.make('Q*Bert', seed=8, terminal_on_life_loss=False, clip_rewards=False)
    _, info = env.reset()
    lives, rng, rewards = [info['lives'][0]], np.random.default_rng(0), []
    while not info.get('game_over', [False])[0]:
        _, reward, terminated, _, info = env.step(rng.integers(6, size=1))
        assert terminated[0] == info['game_over'][0]
        np.testing.assert_array_equal(reward, info['raw_rewards'])
        lives.append(info['lives'][0])
        rewards.append(reward[0])
    assert set(lives) == {1, 2, 3, 4} and max(rewards) >= 25 and reward.dtype == np.float32


def openings(seed, num_envs, games, **kw):
    """[games, N] frames played before the first action of consecutive games of 4 frames."""
    env = environments.make('Breakout', num_envs, seed, max_episode_frames=4, **kw)
    frames = [env.reset()[1]['episode_frames'].copy()]
    for _ in range(games - 1):
        frames.append(env.step(np.zeros(num_envs, int))[4]['episode_frames'].copy())
    env.close()
    return np.array(frames)


def test_noops_reach_their_maximum_and_never_exceed_it():
    assert set(openings(0, 4, 20, noop_max=2).flat) == {0, 1, 2}
    assert set(openings(0, 2, 4, noop_max=0).flat) == {0}
    counts = openings(0, 8, 25)
    assert counts.min() == 0 and counts.max() == 30


def test_neighbouring_seeds_and_environments_share_nothing():
    sequences = np.concatenate([openings(seed, 3, 12) for seed in range(3)], axis=1).T
    for a, b in itertools.combinations(sequences, 2):
        assert (a == b).mean() < 0.5 and (a[1:] == b[:-1]).mean() < 0.5


def test_same_seed_and_actions_give_the_same_bytes():
    def play(reset_seed=None, seed=9, **kw):
        env = environments.make('Seaquest', 2, seed, **kw)
        digest = [env.reset(seed=reset_seed)[0].tobytes()]
        rng = np.random.default_rng(0)
        for _ in range(450):
            obs, rewards, terminated, _, info = env.step(rng.integers(18, size=2))
            digest += [
                obs.tobytes(),
                rewards.tobytes(),
                terminated.tobytes(),
                info['final_obs'].tobytes(),
            ]
        return digest

    first = play()
    assert play(num_threads=1) == first
    assert play(seed=0, reset_seed=9) == first
    assert play(seed=10) != first


def test_later_resets_go_on_to_new_streams_and_a_seed_returns_to_old_ones():
    env = environments.make('Breakout', 4, seed=1)
    first, second, again = (
        env.reset(seed=s)[1]['episode_frames'].tolist() for s in (None, None, 1)
    )
    assert first == again != second


def test_follows_gymnasium():
    env = environments.make('Pong', 3)
    assert env.num_envs == 3 and env.single_action_space.n == 6
    assert environments.make('Breakout').single_action_space.n == 4
    assert environments.make('Breakout', full_action_space=True).single_action_space.n == 18
    assert env.metadata['autoreset_mode'] == AutoresetMode.SAME_STEP
    assert env.metadata['history'] == 4
    first, _ = env.reset()
    kept = first.copy()
    obs, rewards, terminated, truncated, _ = env.step(env.action_space.sample())
    assert obs in env.observation_space and obs[0] in env.single_observation_space
    assert rewards.dtype == np.float32 and terminated.dtype == truncated.dtype == bool
    env.step(env.action_space.sample())
    np.testing.assert_array_equal(first, kept)
    env.close()
    env.close()
    with pytest.raises(RuntimeError, match='close'):
        env.step([0, 0, 0])


def test_history_of_one_is_the_frame_itself():
    env, four = (environments.make('Pong', 2, 1, history=h) for h in (1, 4))
    obs, stacks = env.reset()[0], four.reset()[0]
    assert obs.shape == (2, 84, 84) and obs in env.observation_space
    for _ in range(3):
        obs, stacks = (e.step([2, 3])[0] for e in (env, four))
        np.testing.assert_array_equal(obs, stacks[..., -1])


@pytest.mark.parametrize(
    'actions', [[0], [0, 4], [-1, 0], [0.0, 1.0], [True, False], [[0, 1]], 0], ids=str
)
def test_wrong_actions_are_refused(actions):
    env = environments.make('Breakout', 2)
    with pytest.raises(RuntimeError, match='reset'):
        env.step([0, 0])
    env.reset()
    with pytest.raises(ValueError, match='actions must be'):
        env.step(actions)


@pytest.mark.parametrize(
    'name, rom',
    [
        ('Q*Bert', 'qbert'),
        ('H.E.R.O', 'hero'),
        ('Kung-Fu Master', 'kung_fu_master'),
        ('Ms. Pacman', 'ms_pacman'),
        ('MsPacman', 'ms_pacman'),
        ('ms_pacman', 'ms_pacman'),
        ("Montezuma's Revenge", 'montezuma_revenge'),
        ('MontezumaRevenge', 'montezuma_revenge'),
        ('Up and Down', 'up_n_down'),
        ('UpNDown', 'up_n_down'),
        ('BeamRider', 'beam_rider'),
        ('River Raid', 'riverraid'),
        ('Jamesbond', 'jamesbond'),
        ('JamesBond', 'jamesbond'),
        ('Pitfall', 'pitfall'),
        ('TicTacToe3D', 'tic_tac_toe_3d'),
    ],
)
def test_spellings(name, rom):
    assert environments.games.resolve(name) == rom


def test_the_papers_49_games_are_49_roms():
    found = [environments.games.resolve(name) for name in environments.games.ATARI_49]
    assert len(set(found)) == 49
    for rom in found:
        assert roms.get_rom_path(rom).is_file()
    for rom in roms.get_all_rom_ids():
        assert environments.games.resolve(rom) == rom


@pytest.mark.parametrize(
    'name, near',
    [
        ('Brekout', 'Breakout'),
        ('Ms Pakman', 'Ms. Pacman'),
        ('Montezuma', "Montezuma's Revenge"),
        ('Pong\n', None),
        ('zzz', ''),
        (None, ''),
        (3, ''),
    ],
)
def test_a_wrong_name_is_one_line_with_near_names(name, near):
    if near is None:  # Blanks and punctuation do not matter.
        assert environments.builder_of(name) is environments.make_atari
        return
    for attempt in (environments.builder_of, environments.make):
        start = time.perf_counter()
        with pytest.raises(ValueError) as error:
            attempt(name)
        assert time.perf_counter() - start < 0.5
        message, *gins = str(error.value).splitlines()
        assert repr(name) in message and near in message
        assert all('In call to configurable' in line for line in gins)


def test_wrong_keywords_and_values_are_refused():
    with pytest.raises(TypeError, match="^make_atari.* unexpected keyword argument 'frame_skp'"):
        environments.make('Breakout', frame_skp=4)
    for wrong in (
        {'frame_skip': 0},
        {'history': 0},
        {'noop_max': 1e1},
        {'num_envs': 0},
        {'max_episode_frames': 0},
        {'sticky_action_probability': 1.5},
        {'num_threads': -1},
    ):
        with pytest.raises(ValueError, match=next(iter(wrong))):
            environments.make('Breakout', **wrong)
    with pytest.raises(ValueError, match='options'):
        environments.make('Breakout').reset(options={'reset_mask': np.ones(1, bool)})


def test_sticky_actions_play_to_game_over():
    env = environments.make('Breakout', sticky_action_probability=0.25)
    env.reset()
    assert any(env.step([1])[4]['game_over'][0] for _ in range(300))


def test_gin_binds_the_environment_and_records_its_defaults(clean_gin):
    gin.parse_config("""
        make_environment.name = 'Q*Bert'
        make_atari.frame_skip = 2
        make_atari.noop_max = 0
    """)
    env = environments.make(num_envs=2)
    assert env.metadata['frames_per_step'] == 2 and env.num_envs == 2
    assert not env.reset()[1]['episode_frames'].any()
    saved = gin.operative_config_str()
    assert 'make_atari.sticky_action_probability = 0.0' in saved
    assert 'make_atari.full_action_space = False' in saved
    with pytest.raises(TypeError, match="'frame_skp'"):
        environments.make(frame_skp=2)


def test_the_halves_of_a_step_are_the_step():
    envs = [environments.make('Breakout', num_envs=2, seed=4) for _ in range(2)]
    rng = np.random.default_rng(0)
    for env in envs:
        env.reset()
    for _ in range(30):
        actions = rng.integers(4, size=2)
        envs[1].step_async(actions)
        for one, other in zip(envs[0].step(actions)[:4], envs[1].step_wait()[:4]):
            np.testing.assert_array_equal(one, other)
    for env in envs:
        env.close()
