"""Atari through ALE's C++ vector environment, as DQN preprocesses it.

A frame is the maximum over the last two of an agent step's emulator frames, in grey, averaged down
to 84x84; a stack is the newest `history` of them. Two things are done here and not there: frame
stacks that continue through a life loss, and the limit on a game's length.
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
_NO_LIMIT = 2**31 - 1  # frames


class AtariVectorEnv(gymnasium.vector.VectorEnv):
    """N games of one ROM that step together; see `make_atari` for the keywords.

    Observations are uint8 [N, 84, 84, history], newest last ([N, 84, 84] if history is 1).

    `terminated` is set at game over, and at a life loss if terminal_on_life_loss: the game
    continues, and so does its frame stack unless restart_stack_on_life_loss. `truncated` is set at
    the limit on a game's length. At game over and at the limit, and only there,
    `info['game_over']` is set and the game has been reset. ALE does not show the screen at game
    over: there the newest frame of final_obs is one from before it.
    `info` also holds raw_rewards [N] float32 (unclipped), final_obs, and the lives [N] and emulator
    frames so far (episode_frames [N], what was played before the first action included) of the
    game in obs.
    """

    def __init__(
        self,
        rom: str,
        num_envs: int,
        seed: int,
        *,
        frame_skip: int,
        history: int,
        noop_max: int,
        max_episode_frames: int,
        terminal_on_life_loss: bool,
        clip_rewards: bool,
        sticky_action_probability: float,
        full_action_space: bool,
        num_threads: int,
        press_fire: bool,
        restart_stack_on_life_loss: bool,
    ):
        try:
            roms.get_rom_path(rom)
        except OSError as error:
            raise ValueError(
                f'the ROM of {rom!r}, which ale-py brings, cannot be read: {error}'
            ) from error
        ale_py.ALEInterface.setLoggerMode(ale_py.LoggerMode.Error)
        self._env = ale_py.AtariVectorEnv(
            rom,
            num_envs,
            num_threads=num_threads,
            max_num_frames_per_episode=_NO_LIMIT,
            repeat_action_probability=sticky_action_probability,
            full_action_space=full_action_space,
            autoreset_mode=AutoresetMode.SAME_STEP,
            img_height=_SIZE,
            img_width=_SIZE,
            grayscale=True,
            stack_num=1,
            frameskip=frame_skip,
            maxpool=True,
            noop_max=noop_max + 1,  # ALE draws 0 .. noop_max - 1
            episodic_life=False,
            life_loss_info=terminal_on_life_loss,
            reward_clipping=False,
            use_fire_reset=press_fire,
        )
        self.num_envs = num_envs
        self.metadata = {
            'autoreset_mode': AutoresetMode.SAME_STEP,
            'frames_per_step': frame_skip,
            'history': history,
        }
        shape = (_SIZE, _SIZE) + ((history,) if history > 1 else ())
        self.single_observation_space = spaces.Box(0, 255, shape, np.uint8)
        self.single_action_space = self._env.single_action_space
        self.observation_space = batch_space(self.single_observation_space, num_envs)
        self.action_space = batch_space(self.single_action_space, num_envs)

        self._seeds = np.random.SeedSequence(seed)
        self._used_seed = False
        self._history = history
        self._clip_rewards = clip_rewards
        self._restart_stack_on_life_loss = restart_stack_on_life_loss
        self._limit_agent_steps = -(-max_episode_frames // frame_skip)
        self.metadata['max_episode_steps'] = self._limit_agent_steps
        ale_actions = self._env.ale.get_action_set()
        self.metadata['action_names'] = tuple(action.name for action in ale_actions)
        self._stacks = None  # [N, 84, 84, history]

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None):
        """Starts all games afresh: from `seed`, else from make's seed and its later streams."""
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

    def step(self, actions):
        """Plays one agent step in every game; actions are [N] integers."""
        self.step_async(actions)
        return self.step_wait()

    def step_async(self, actions):
        """The first half of `step`: the emulators start to play, in threads of their own."""
        actions = self._checked(actions)
        self._env.send(actions)
        self._agent_steps += 1

    def step_wait(self):
        """The second half: waits for them, and returns what `step` does."""
        frames, raw_rewards, terminated, _, info = self._env.recv()
        frames = frames[:, 0]

        # The lives do not tell a game over (they are the next game's already); the frame of the
        # last reset does.
        resets_at = info['frame_number'] - info['episode_frame_number']
        ended = resets_at != self._resets_at
        truncated = (self._agent_steps >= self._limit_agent_steps) & ~ended
        last_frames = frames
        if ended.any():
            last_frames = np.where(ended[:, None, None], info['final_obs'][:, 0], frames)
        stacks = np.empty_like(self._stacks)
        stacks.ravel()[:-1] = self._stacks.ravel()[1:]  # one place along the last axis, as one copy
        stacks[..., -1] = last_frames
        final_obs = self._observations(stacks)

        if truncated.any():
            # Kept here because ALE's own limit cuts inside an agent step and shows a stale screen.
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

    def close_extras(self, **kwargs):
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
        if actions.min() < 0 or actions.max() >= self.single_action_space.n:
            raise ValueError(
                f'actions must be in 0..{self.single_action_space.n - 1}, got {actions.tolist()}'
            )
        return actions.astype(np.int32)


@gin.configurable(denylist=['name', 'num_envs', 'seed'])
@checked
def make_atari(
    name: str,
    num_envs: int = 1,
    seed: int = 0,
    frame_skip: Annotated[int, AtLeast(1)] = 4,
    history: Annotated[int, AtLeast(1)] = 4,
    noop_max: Annotated[int, AtLeast(0)] = 30,
    max_episode_frames: Annotated[int, AtLeast(1)] = 108000,
    max_episode_frames_by_game: dict[str, Annotated[int, AtLeast(1)]] | None = None,
    terminal_on_life_loss: bool = True,
    clip_rewards: bool = True,
    sticky_action_probability: Annotated[float, Within(0, 1)] = 0.0,
    full_action_space: bool = False,
    num_threads: Annotated[int, AtLeast(0)] = 0,
    press_fire: bool = False,
    restart_stack_on_life_loss: bool = False,
) -> AtariVectorEnv:
    """Makes an Atari environment; the defaults are the paper's training protocol (DQN's).

    Args:
      name: the game, in any spelling that `games.resolve` knows.
      num_envs: games that step together.
      seed: of the random streams, one for each game.
      frame_skip: emulator frames of an agent step, the action repeated (paper, hyperparameters).
      history: frames of a stack (paper, hyperparameters).
      noop_max: at a game's start 0..noop_max no-op frames, uniformly, noop_max included (paper).
      max_episode_frames: a game is truncated after so many frames, no-ops aside, rounded up to
        whole agent steps (108,000 = 30 minutes of play, van Hasselt et al. 2016).
      max_episode_frames_by_game: {game, in any spelling: frames} in place of max_episode_frames
        (the released code: 18,000 for six games).
      terminal_on_life_loss: terminated is set at a life loss too; the game plays on (DQN;
        evaluation counts whole games).
      clip_rewards: rewards are the sign of the game's own (DQN; scores are sums of the game's).
      sticky_action_probability: with which an emulator frame repeats the action before; the
        paper has none, ALE's v5 environments 0.25.
      full_action_space: all 18 actions in place of those that have an effect in the game.
      num_threads: of the emulators; 0 lets ALE choose.
      press_fire: where the game has FIRE, it is pressed for a frame before the no-ops, as ALE does
        by default and the released code in its own way.
      restart_stack_on_life_loss: The first stack of a life repeats its first frame, as that of a
        game does (the released code). Needs terminal_on_life_loss, since replay rebuilds stacks
        from the frames of an episode.

    Raises:
      ValueError: an unknown game, or values that contradict each other.
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
    return AtariVectorEnv(
        rom,
        int(num_envs),
        seed,
        frame_skip=int(frame_skip),
        history=int(history),
        noop_max=int(noop_max),
        max_episode_frames=int(max_episode_frames),
        terminal_on_life_loss=terminal_on_life_loss,
        clip_rewards=clip_rewards,
        sticky_action_probability=sticky_action_probability,
        full_action_space=full_action_space,
        num_threads=int(num_threads),
        press_fire=press_fire,
        restart_stack_on_life_loss=restart_stack_on_life_loss,
    )
