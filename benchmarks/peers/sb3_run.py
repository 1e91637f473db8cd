"""A run of Stable-Baselines3's DQN with the schedule of runs.py."""

import sys

import ale_py  # noqa: F401  It registers the games.
from stable_baselines3 import DQN
from stable_baselines3.common.env_util import make_atari_env
from stable_baselines3.common.vec_env import VecFrameStack


def main():
    warmup, agent_steps = map(int, sys.argv[1:])
    env = VecFrameStack(make_atari_env('BreakoutNoFrameskip-v4', n_envs=1, seed=0), n_stack=4)
    model = DQN(
        'CnnPolicy',
        env,
        learning_rate=1e-4,
        buffer_size=10_000,
        learning_starts=warmup,
        batch_size=32,
        train_freq=4,
        target_update_interval=10_000,
        exploration_initial_eps=0.1,
        exploration_final_eps=0.1,
        optimize_memory_usage=False,
        seed=0,
        device='cpu',
    )
    model.learn(agent_steps)


if __name__ == '__main__':
    main()
