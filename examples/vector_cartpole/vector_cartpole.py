"""Gymnasium's vector CartPole, all poles in one array, with the contract of this project."""

import gin
import gymnasium
import numpy as np


@gin.configurable(denylist=['num_envs', 'seed'])
def make_vector_cartpole(num_envs: int = 1, seed: int = 0, max_episode_steps: int = 500):
    """Poles that step together, see `ob2i_tf.environments`.

    Args:
      num_envs: Number of poles.
      seed: Seed of all starts.
      max_episode_steps: Agent steps after which an episode is truncated.
    """
    env = gymnasium.make_vec(
        'CartPole-v1',
        num_envs,
        vectorization_mode='vector_entry_point',
        max_episode_steps=max_episode_steps,
    )
    return VectorCartPole(env, seed, max_episode_steps)


class VectorCartPole(gymnasium.vector.VectorWrapper):
    """Resets a pole within the step that ends its episode, whereas Gymnasium does so in the next.

    Args:
      env: CartPoleVectorEnv, the poles.
      seed: Seed of the first reset.
      max_episode_steps: Agent steps of the longest episode.
    """

    def __init__(self, env: gymnasium.vector.VectorEnv, seed: int, max_episode_steps: int):
        super().__init__(env)
        self.metadata = {
            **env.metadata,
            'autoreset_mode': gymnasium.vector.AutoresetMode.SAME_STEP,
            'max_episode_steps': max_episode_steps,
            'action_names': ('left', 'right'),
        }
        self._seed = seed

    def reset(self, *, seed=None, options=None):
        seed, self._seed = self._seed if seed is None else seed, None
        return self.env.reset(seed=seed, options=options)

    def step_async(self, actions):
        self._actions = actions

    def step_wait(self):
        observations, rewards, terminated, truncated, _ = self.env.step(self._actions)
        over = terminated | truncated
        info = {'final_obs': observations, 'game_over': over, 'raw_rewards': rewards}
        if over.any():
            poles = self.env.unwrapped
            size = (len(poles.state), over.sum())
            poles.state[:, over] = poles.np_random.uniform(poles.low, poles.high, size)
            poles.steps[over] = 0
            poles.prev_done[:] = False  # Nothing is left to reset.
            observations = poles.state.T.astype(np.float32)
        return observations, rewards, terminated, truncated, info

    def step(self, actions):
        self.step_async(actions)
        return self.step_wait()
