"""Atari through ALE's C++ vector environment, as DQN preprocesses it.

A frame is the maximum over the last two emulator frames of an agent step, in greyscale, averaged
down to 84x84; a stack holds the newest `history` frames. This module adds two things that ALE's
vector environment lacks: frame stacks that continue through a life loss, and an exact limit on a
game's length.
"""

from typing import Annotated, Any

import ale_py
import gin
import gymnasium
import numpy as np
from absl import logging
from ale_py import roms
from gymnasium import spaces
from gymnasium.vector import AutoresetMode
from gymnasium.vector.utils import batch_space

from ob2i_tf.environments import games
from ob2i_tf.parameters import AtLeast, Within, checked

_SIZE = 84  # pixels
_FRAMES_PER_SECOND = 60  # Of the console.
_NO_LIMIT = 2**31 - 1  # frames
_IN_ONE_CALL = 108_000  # Frames, 30 minutes of play; no signal interrupts a call of ALE.


class AtariVectorEnv(gymnasium.vector.VectorEnv):
    """The games of ALE's vector environment `env`; see `make_atari` for the keywords.

    Observations are uint8 [N, 84, 84, history], newest last ([N, 84, 84] if history is 1).

    `terminated` is set at game over and, if terminal_on_life_loss, at a life loss: the game then
    continues, and so does its frame stack unless restart_stack_on_life_loss. `truncated` is set at
    the limit on a game's length. `info['game_over']` is set only at game over and at the limit,
    where the game has been reset. ALE does not show the screen at game over: there the newest frame
    of final_obs is an earlier one.
    `info` also holds raw_rewards [N] float32 (unclipped), final_obs, and two facts about the games
    that the observations show: lives [N], and episode_frames [N], the emulator frames so far,
    including those before the first action.
    """

    def __init__(
        self,
        env: ale_py.AtariVectorEnv,
        seed: int,
        *,
        frame_skip: int,
        history: int,
        max_episode_frames: int,
        clip_rewards: bool,
        restart_stack_on_life_loss: bool,
    ):
        self._env: Any = env
        self.num_envs = env.num_envs
        self.metadata = {
            'autoreset_mode': AutoresetMode.SAME_STEP,
            'frames_per_step': frame_skip,
            'history': history,
            'render_fps': _FRAMES_PER_SECOND / frame_skip,
        }
        shape = (_SIZE, _SIZE) + ((history,) if history > 1 else ())
        self.single_observation_space = spaces.Box(0, 255, shape, np.uint8)
        self.single_action_space = self._env.single_action_space
        self.observation_space = batch_space(self.single_observation_space, self.num_envs)
        self.action_space = batch_space(self.single_action_space, self.num_envs)

        self._seeds = np.random.SeedSequence(seed)
        self._used_seed = False
        self._history = history
        self._clip_rewards = clip_rewards
        self._restart_stack_on_life_loss = restart_stack_on_life_loss
        self._limit_agent_steps = -(-max_episode_frames // frame_skip)
        self.metadata['max_episode_steps'] = self._limit_agent_steps
        ale_actions = self._env.ale.get_action_set()
        self.metadata['action_names'] = tuple(action.name for action in ale_actions)
        self._num_actions = len(ale_actions)
        self._stacks: Any = None  # [N, 84, 84, history]; None before `reset` and after `close`.

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[np.ndarray, dict[str, Any]]:
        """Restarts all games, from `seed` or else from a new stream of the constructor's seed."""
        if options:
            raise ValueError(f'reset takes no options, got {options}')
        if seed is not None:
            self._seeds = np.random.SeedSequence(seed)
            stream = self._seeds
        else:
            stream = self._seeds.spawn(1)[0] if self._used_seed else self._seeds
        self._used_seed = True
        seeds = (stream.generate_state(self.num_envs) >> 1).astype(np.int64)  # ALE takes 31 bits
        frames, info = self._env.reset(seed=seeds)
        self._stacks = np.repeat(frames[:, 0, :, :, None], self._history, axis=-1)
        self._agent_steps = np.zeros(self.num_envs, np.int64)
        self._resets_at = info['frame_number'] - info['episode_frame_number']
        return self._observations(self._stacks), {
            'lives': info['lives'],
            'episode_frames': info['episode_frame_number'],
        }

    def step(self, actions: np.ndarray) -> tuple:
        """Plays one agent step in every game; actions are [N] integers."""
        self.step_async(actions)
        return self.step_wait()

    def step_async(self, actions: np.ndarray) -> None:
        """First half of `step`: starts the emulators, which run in separate threads."""
        actions = self._checked(actions)
        self._env.send(actions)
        self._agent_steps += 1

    def step_wait(self) -> tuple:
        """Second half of `step`: waits for the emulators and returns the results."""
        frames, raw_rewards, terminated, _, info = self._env.recv()
        frames = frames[:, 0]

        # `lives` cannot reveal a game over, since it already belongs to the next game; the frame
        # number at the last reset can.
        resets_at = info['frame_number'] - info['episode_frame_number']
        ended = resets_at != self._resets_at
        truncated = (self._agent_steps >= self._limit_agent_steps) & ~ended
        last_frames = frames
        if ended.any():
            last_frames = np.where(ended[:, None, None], info['final_obs'][:, 0], frames)
        stacks = np.empty_like(self._stacks)
        stacks.ravel()[:-1] = self._stacks.ravel()[1:]  # Shifts the last axis in one copy.
        stacks[..., -1] = last_frames
        final_obs = self._observations(stacks)

        if truncated.any():
            # ALE's own limit would cut within an agent step and show a stale screen.
            frames, info = self._env.reset(options={'reset_mask': truncated})
            frames = frames[:, 0]
            resets_at = info['frame_number'] - info['episode_frame_number']
        game_over = ended | truncated
        restarted = game_over | (terminated & self._restart_stack_on_life_loss)
        if restarted.any():
            stacks = stacks.copy()
            stacks[restarted] = frames[restarted, :, :, None]
            self._agent_steps[game_over] = 0
        self._stacks = stacks
        self._resets_at = resets_at

        raw_rewards = raw_rewards.astype(np.float32)
        rewards = np.sign(raw_rewards) if self._clip_rewards else raw_rewards
        return (
            self._observations(stacks),
            rewards,
            terminated,
            truncated,
            {
                'raw_rewards': raw_rewards,
                'game_over': game_over,
                'final_obs': final_obs,
                'lives': info['lives'],
                'episode_frames': info['episode_frame_number'],
            },
        )

    def close_extras(self, **kwargs: Any) -> None:
        self._env = self._stacks = None

    def _observations(self, stacks: np.ndarray) -> np.ndarray:
        return stacks if self._history > 1 else stacks[..., 0]

    def _checked(self, actions) -> np.ndarray:
        if self._stacks is None:
            raise RuntimeError('step before reset, or after close')
        actions = np.asarray(actions)
        if actions.shape != (self.num_envs,) or not np.issubdtype(actions.dtype, np.integer):
            raise ValueError(
                f'actions must be integers of shape ({self.num_envs},), '
                f'got {actions.dtype} of shape {actions.shape}'
            )
        if actions.min() < 0 or actions.max() >= self._num_actions:
            raise ValueError(
                f'actions must be in 0..{self._num_actions - 1}, got {actions.tolist()}'
            )
        return actions.astype(np.int32)


@gin.configurable(denylist=['name', 'num_envs', 'seed'])
@checked
def make_atari(
    name: str,
    num_envs: int = 1,
    seed: int = 0,
    frame_skip: Annotated[int, Within(1, _IN_ONE_CALL)] = 4,
    history: Annotated[int, Within(1, 1000)] = 4,
    noop_max: Annotated[int, Within(0, _IN_ONE_CALL)] = 30,
    max_episode_frames: Annotated[int, AtLeast(1)] = 108000,
    max_episode_frames_by_game: dict[str, Annotated[int, AtLeast(1)]] | None = None,
    terminal_on_life_loss: bool = True,
    clip_rewards: bool = True,
    sticky_action_probability: Annotated[float, Within(0, 1)] = 0.0,
    full_action_space: bool = False,
    num_threads: Annotated[int, Within(0, 1024)] = 0,
    press_fire: bool = False,
    restart_stack_on_life_loss: bool = False,
) -> AtariVectorEnv:
    """Makes an Atari environment; the defaults are the paper's training protocol (DQN's).

    Args:
      name: Game, in any spelling that `games.resolve` knows.
      num_envs: Number of games that step together.
      seed: Seed of the games, each of which has an independent random stream.
      frame_skip: Emulator frames per agent step; the action is repeated (paper, hyperparameters).
      history: Frames per stack (paper, hyperparameters).
      noop_max: A game starts with 0..noop_max no-op frames, drawn uniformly, both ends included
        (paper).
      max_episode_frames: Frames after which a game is truncated, not counting no-ops, rounded up to
        full agent steps (108,000 = 30 minutes of play, van Hasselt et al. 2016).
      max_episode_frames_by_game: Limits of some games, {game in any spelling: frames}, instead of
        max_episode_frames (the released code: 18,000 for six games).
      terminal_on_life_loss: Whether a life loss sets `terminated`; the game itself continues (DQN;
        scores are those of complete games).
      clip_rewards: Whether rewards are reduced to their sign (DQN); scores use the raw rewards.
      sticky_action_probability: Probability that an emulator frame repeats the previous action: 0
        in the paper, 0.25 in ALE's v5 environments.
      full_action_space: Whether all 18 actions are available, or only the game's minimal set.
      num_threads: Number of emulator threads; 0 lets ALE choose.
      press_fire: Whether FIRE, if the game has it, is pressed for one frame before the no-ops. This
        is ALE's default; the released code presses it differently.
      restart_stack_on_life_loss: Whether the first stack of a life repeats its first frame, like
        the first stack of a game (the released code). Needs terminal_on_life_loss, since replay
        rebuilds stacks from the frames of an episode.

    Raises:
      ValueError: The game is unknown, or values contradict each other.
    """
    rom = games.resolve(name)
    frames_by_game = {}
    for game, frames in (max_episode_frames_by_game or {}).items():
        try:
            frames_by_game[games.resolve(game)] = frames
        except ValueError as error:
            raise ValueError(f'make_atari.max_episode_frames_by_game: {error}') from None
    if restart_stack_on_life_loss and not terminal_on_life_loss:
        raise ValueError(
            'make_atari.restart_stack_on_life_loss needs terminal_on_life_loss = True: replay '
            'rebuilds stacks from the frames of an episode'
        )
    if rom in frames_by_game:
        max_episode_frames = frames_by_game[rom]
        logging.log_first_n(
            logging.INFO,
            'make_atari.max_episode_frames_by_game: games of %s have at most %s frames.',
            1,
            name,
            f'{max_episode_frames:,}',
        )
    try:
        roms.get_rom_path(rom)
    except OSError as error:
        raise ValueError(f"cannot read ale-py's ROM for {rom!r}: {error}") from error
    ale_py.ALEInterface.setLoggerMode(ale_py.LoggerMode.Error)
    env = ale_py.AtariVectorEnv(
        rom,
        int(num_envs),
        num_threads=int(num_threads),
        max_num_frames_per_episode=_NO_LIMIT,
        repeat_action_probability=sticky_action_probability,
        full_action_space=full_action_space,
        autoreset_mode=AutoresetMode.SAME_STEP,
        img_height=_SIZE,
        img_width=_SIZE,
        grayscale=True,
        stack_num=1,
        frameskip=int(frame_skip),
        maxpool=True,
        noop_max=int(noop_max) + 1,  # ALE draws 0 .. noop_max - 1
        episodic_life=False,
        life_loss_info=terminal_on_life_loss,
        reward_clipping=False,
        use_fire_reset=press_fire,
    )
    return AtariVectorEnv(
        env,
        seed,
        frame_skip=int(frame_skip),
        history=int(history),
        max_episode_frames=int(max_episode_frames),
        clip_rewards=clip_rewards,
        restart_stack_on_life_loss=restart_stack_on_life_loss,
    )
