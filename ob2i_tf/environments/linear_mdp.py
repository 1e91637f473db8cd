"""Small episodic MDPs that are linear in known features, with a known optimum (paper, section 2).

P(s' | s, a) = phi(s, a)^T mu(s') and r(s, a) = phi(s, a)^T theta. An observation holds the features
of all actions at step h: phi fills block h of H blocks, so that one linear function of the
observation is a separate function per step, as LSVI needs.
"""

import dataclasses
from typing import Annotated, Any, Literal

import gin
import gymnasium
import numpy as np
from gymnasium import spaces

from ob2i_tf.environments.vector import DenseVectorEnv
from ob2i_tf.parameters import AtLeast, Within, checked

Kind = Literal['river_swim', 'tabular', 'linear']
_Count = Annotated[int, Within(1, 10_000)]  # Arrays have products of them as sizes.
_Seed = Annotated[int, AtLeast(0)]


@dataclasses.dataclass(frozen=True)
class Mdp:
    """An episodic MDP with S states, A actions, H steps and d features; episodes start in state 0.

    Attributes:
      features: Phi, [S, A, d].
      transitions: Probabilities of the next state, [S, A, S].
      rewards: Expected rewards in 0..1, [S, A].
      horizon: H.
    """

    features: np.ndarray
    transitions: np.ndarray
    rewards: np.ndarray
    horizon: int

    def optimal_values(self) -> np.ndarray:
        """Q* [H, S, A] by backward induction."""
        q_values = np.zeros((self.horizon + 1, *self.rewards.shape))
        for h in reversed(range(self.horizon)):
            q_values[h] = self.rewards + self.transitions @ q_values[h + 1].max(axis=1)
        return q_values[:-1]

    def gaps(self, observations: np.ndarray, actions: np.ndarray) -> np.ndarray:
        """Suboptimality V*_h(s_h) - Q*_h(s_h, a_h) at each step of an episode, [T].

        Args:
          observations: Observations of LinearMdp from the first step, [T, A, H d] or
            [T + 1, A, H d].
          actions: Actions, [T].
        """
        steps = np.arange(len(actions))
        blocks = observations.reshape(*observations.shape[:2], self.horizon, -1)
        features = blocks[steps, :, steps]  # [T, A, d]
        distances = np.abs(features[:, None] - self.features).sum(axis=(2, 3))
        values = self.optimal_values()[steps, distances.argmin(axis=1)]  # [T, A]
        return values.max(axis=1) - values[steps, actions]


@checked
def draw_mdp(
    kind: Kind,
    num_states: _Count,
    num_actions: _Count,
    horizon: _Count,
    num_features: _Count,
    mdp_seed: _Seed,
) -> Mdp:
    """Draws an MDP.

    Args:
      kind: 'river_swim' for a chain with 2 actions, where swimming towards the large reward at the
        far end often fails (Strehl and Littman 2008); 'tabular' for random transitions and rewards;
        'linear' for random features on the simplex, mu and theta.
      num_states, num_actions, horizon: S, A, H.
      num_features: Feature dimension d of 'linear'; other kinds have S A features, one per pair.
      mdp_seed: Seed of the random transitions, rewards and features.

    Raises:
      ValueError: The kind does not have this number of actions.
    """
    rng = np.random.default_rng(mdp_seed)
    shape = (num_states, num_actions)
    one_hot = np.eye(num_states * num_actions).reshape(*shape, -1)
    if kind == 'tabular':
        transitions = rng.dirichlet(np.full(num_states, 0.3), size=shape)
        return Mdp(one_hot, transitions, rng.random(shape) ** 4, horizon)
    if kind == 'linear':
        features = rng.dirichlet(np.full(num_features, 0.3), size=shape)
        measures = rng.dirichlet(np.full(num_states, 0.3), size=num_features)
        return Mdp(features, features @ measures, features @ rng.random(num_features), horizon)
    if num_actions != 2:
        raise ValueError(f'river_swim has 2 actions, got num_actions = {num_actions}')
    transitions, rewards = np.zeros((*shape, num_states)), np.zeros(shape)
    last = num_states - 1
    for state in range(num_states):
        transitions[state, 0, max(state - 1, 0)] = 1
        stay, forward, back = (0.4, 0.6, 0) if state == 0 else (0.6, 0.35, 0.05)
        if state == last:
            stay, forward, back = 0.6, 0, 0.4
        transitions[state, 1, state] = stay
        transitions[state, 1, min(state + 1, last)] += forward
        transitions[state, 1, max(state - 1, 0)] += back
    rewards[0, 0], rewards[last, 1] = 0.005, 1.0
    return Mdp(one_hot, transitions, rewards, horizon)


class LinearMdp(gymnasium.Env):
    """Plays an Mdp: observations are float32 [A, H d], rewards Bernoulli with the Mdp's mean."""

    metadata = {'render_modes': []}

    def __init__(self, mdp: Mdp):
        self.mdp = mdp
        num_states, num_actions, num_features = mdp.features.shape
        shape = (num_actions, mdp.horizon * num_features)
        self.observation_space = spaces.Box(0, 1, shape, np.float32)
        self.action_space = spaces.Discrete(num_actions)
        self._state = self._step = 0

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[np.ndarray, dict[str, Any]]:
        super().reset(seed=seed)
        self._state = self._step = 0
        return self._observe(), {}

    def step(self, action: int) -> tuple:
        reward = float(self.np_random.random() < self.mdp.rewards[self._state, action])
        transitions = self.mdp.transitions[self._state, action]
        self._state = int(self.np_random.choice(len(transitions), p=transitions))
        self._step += 1
        return self._observe(), reward, self._step == self.mdp.horizon, False, {}

    def _observe(self):
        """Features at this step; zeros after the last one."""
        _, num_actions, num_features = self.mdp.features.shape
        observation = np.zeros((num_actions, self.mdp.horizon * num_features), np.float32)
        if self._step < self.mdp.horizon:
            block = slice(self._step * num_features, (self._step + 1) * num_features)
            observation[:, block] = self.mdp.features[self._state]
        return observation


@gin.configurable(denylist=['name', 'num_envs', 'seed'])
@checked
def make_linear_mdp(
    name: str,
    num_envs: int = 1,
    seed: int = 0,
    kind: Kind = 'river_swim',
    num_states: _Count = 6,
    num_actions: _Count = 2,
    horizon: _Count = 20,
    num_features: _Count = 5,
    mdp_seed: _Seed = 0,
) -> gymnasium.vector.VectorEnv:
    """Makes copies of one MDP.

    Args:
      name: 'LinearMDP'.
      num_envs, seed: See `environments.make`; `seed` determines sampled transitions and rewards.
      kind, num_states, num_actions, horizon, num_features, mdp_seed: See `draw_mdp`.
    """
    del name
    mdp = draw_mdp(kind, num_states, num_actions, horizon, num_features, mdp_seed)
    return DenseVectorEnv(lambda: LinearMdp(mdp), num_envs, seed, max_episode_steps=mdp.horizon)
