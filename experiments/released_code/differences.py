"""The released code and this package on equal inputs: what differs, and by how much.

Networks of both sides have equal weights, replays hold equal episodes, and draws are prescribed.
"""

import collections
import contextlib
import math
import tempfile
from types import SimpleNamespace
from unittest import mock

import numpy as np
import tensorflow as tf

from experiments.released_code import theirs
from ob2i_tf import acting, config
from ob2i_tf.agent import Agent
from ob2i_tf.training import build, loop
from ob2i_tf.training.runner import Runner
from ob2i_tf.types import Batch, Episode

GIN_FILE = 'ob2i_atari_released.gin'
LARGE_BONUS = ('EpisodicUpdate.alpha_1 = 0.5', 'EpisodicUpdate.alpha_2 = 0.5')
NO_BONUS = (
    'EpisodicUpdate.alpha_1 = 0.0',
    'EpisodicUpdate.alpha_2 = 0.0',
    'EpisodicUpdate.bonus = None',
)
EQUAL, BY_DESIGN, DIFFERS = 'equal to rounding', 'differs by design', 'DIFFERS'
Difference = collections.namedtuple(
    'Difference', 'quantity inputs absolute relative unexplained bound verdict reason'
)


def verdict(unexplained: float, bound: float, reason: str) -> str:
    """DIFFERS above the bound (or for NaN); otherwise whether there is a reason."""
    if not unexplained <= bound:
        return DIFFERS
    return BY_DESIGN if reason else EQUAL


def compare(quantity, inputs, other, own, bound=0.0, explained=None, reason='') -> Difference:
    """Compares an array of theirs with ours.

    Args:
      quantity, inputs: Texts.
      other, own: Arrays, theirs and ours; if their shapes differ, the difference is infinite.
      bound: Largest allowed difference that is not explained, relative like the next.
      explained: Ours after the known difference has been applied to it; None: ours.
      reason: The known difference.

    Returns:
      A Difference. `absolute` is the largest difference; `relative` and `unexplained` are divided
      by the largest magnitude in `other`, and `unexplained` is between `other` and `explained`.
    """
    other, own = (np.asarray(x, np.float64) for x in (other, own))
    explained = own if explained is None else np.asarray(explained, np.float64)
    absolute, rest = (
        np.abs(other - x).max() if other.shape == x.shape else math.inf for x in (own, explained)
    )
    size = np.abs(other).max() or 1.0
    return Difference(
        quantity,
        inputs,
        absolute,
        absolute / size,
        rest / size,
        bound,
        verdict(rest / size, bound, reason),
        reason,
    )


# Equal inputs.


def copy_weights(network, own) -> None:
    """Copies the variables of their network into a MultiHeadQNetwork."""
    for variable, value in _pairs(network, own, lambda v: v.numpy()):
        variable.assign(value)


def _pairs(network, own, of_theirs):
    """(variable of ours, `of_theirs` of theirs in its shape) for all variables."""
    for layer, conv in zip(own.trunk, (network.conv1, network.conv2, network.conv3)):
        yield layer.kernel, of_theirs(conv.kernel)
        yield layer.bias, of_theirs(conv.bias)
    heads = own.heads
    for layer, name in ((heads.hidden_layer, 'dense1'), (heads.output_layer, 'dense2')):
        dense = [getattr(head, name) for head in network.boot_head]
        yield layer.kernel, np.stack([of_theirs(d.kernel).T for d in dense])
        yield layer.bias, np.stack([of_theirs(d.bias)[:, None] for d in dense])


def make_networks(modules, rng, scale, newest_only=False):
    """Their DEEPQ, and our online and target network with the weights of its two.

    Args:
      modules: See `theirs.load`.
      rng: Generator of the biases.
      scale: Factor on the initial kernels.
      newest_only: Whether values depend on the newest frame of a stack alone.
    """
    theirs.resize(modules)
    model = theirs.make_model(modules, 4)
    facts = build.inspect_environment(_part('environment'))
    own = build.build_networks(_part('network'), facts, 0)
    for network, copy in zip((model.q_network, model.target_q_network), own):
        network(np.zeros((1, 84, 84, 4), np.uint8))
        weights = [
            w * scale if w.ndim > 1 else 0.05 * rng.normal(size=w.shape)
            for w in network.get_weights()
        ]
        if newest_only:
            weights[0][:, :, :3] = 0
        network.set_weights(weights)
        copy_weights(network, copy)
    return model, *own


def random_frames(rng, count):
    """Frames of 12 x 12 random squares, [count, 84, 84]."""
    squares = rng.integers(0, 256, (count, 12, 12), dtype=np.uint8)
    return squares.repeat(7, axis=1).repeat(7, axis=2)


class Replays:
    """The same random episodes in their replay and in ours, which draw as prescribed.

    Args:
      modules: See `theirs.load`.
      lengths: Transitions of each episode.
      rng: Generator of the episodes.
      last_is_first: Whether the frame after a terminal repeats the first of its episode, to which
        theirs refers in an episode that fills its minibatches.
    """

    def __init__(self, modules, lengths, rng, last_is_first=False):
        self.lengths = lengths
        self.theirs = modules.replay_buffer.ReplayBufferEBU(sum(lengths) + 1)
        self.ours = _part('replay')((84, 84), history=4)
        self._draws = collections.deque()
        self.ours.draw_episode = lambda candidates: self._draws.popleft()
        for length in lengths:
            frames = random_frames(rng, length + 1)
            if last_is_first:
                frames[-1] = frames[0]
            actions = rng.integers(4, size=length).astype(np.int32)
            rewards = rng.integers(-1, 2, length).astype(np.float32)
            for t in range(length):
                self.theirs.add(frames[t, ..., None], actions[t], rewards[t], t == length - 1)
            discounts = np.full(length, config.value('Agent.discount'), np.float32)
            discounts[-1] = 0
            self.ours.add_episode(Episode(frames, actions, rewards, discounts))

    def train(self, model, draw, alpha):
        """Makes their learner compute the targets of a drawn pair of episodes; newest first."""
        model.batch_count = model.batchnum
        with mock.patch('numpy.random.choice', lambda *_, **__: np.array(draw)):
            model.train_bebu(self.theirs, 'ucb' if alpha else 'none', alpha, alpha)
        return model.y_

    def batch(self, update, draw):
        """Our batches of the same pair, joined; newest first, without padding."""
        self._draws.extend(draw)
        batches = [update.next_batch()[0] for _ in range(math.ceil(self.lengths[draw[0]] / 32))]
        self._draws.clear()
        return [
            np.concatenate([getattr(b, name)[b.weights > 0][::-1] for b in batches])
            for name in ('observations', 'actions', 'targets')
        ]


@contextlib.contextmanager
def configured(*bindings):
    """Context in which gin has GIN_FILE and `bindings`."""
    with config.GinState().entered():
        config.load([GIN_FILE], bindings)
        yield


def _part(name):
    """The factory that gin binds for a parameter of Runner."""
    return config.bound(Runner)[name]


# Quantities.


def of_settings(modules, repo):
    """Defaults of their command line beside the numbers in our gin file."""
    found, value = theirs.defaults(repo), config.value
    own = {
        'num_timesteps': value('Runner.num_iterations') * value('Runner.training_steps'),
        'checkpoint_freq': value('Runner.training_steps'),
        'buffer_size': value('EpisodeReplay.capacity_transitions'),
        'lr': value('adam.learning_rate'),
        'learning_starts': value('Agent.learning_starts'),
        'target_network_update_freq': value('Agent.target_period'),
        'train_freq': value('Agent.train_period'),
        'gamma': value('Agent.discount'),
        'exploration_fraction': value('linear.steps') / 5e6,
        'exploration_final_eps': value('linear.final'),
        'num_ensemble': value('MultiHeadQNetwork.num_heads'),
        'rew_immed_ratio_ebu': value('EpisodicUpdate.alpha_1'),
        'rew_nextq_ratio_ebu': value('EpisodicUpdate.alpha_2'),
        'beta': value('EpisodicUpdate.beta'),
    }
    for name, number in own.items():
        yield compare(f'setting {name}', 'default of run_atari.py', [found[name]], [number])
    steps, epsilon = np.arange(0, 300_000, 7), config.bound(Agent)['epsilon']
    schedule = modules.deepq.LinearSchedule(
        int(found['exploration_fraction'] * 5e6), found['exploration_final_eps']
    )
    yield compare(
        'schedule of epsilon',
        f'{len(steps):,} agent steps up to 300,000',
        [schedule.value(step) for step in steps],
        [epsilon(step) for step in steps],
        1e-12,
    )


def of_targets(modules):
    """Draws, stacks, targets and moments of the bonuses."""
    rng = np.random.default_rng(1)
    with configured(*NO_BONUS):
        replays = Replays(modules, rng.integers(33, 100, 12).tolist(), rng)
        model, *own = make_networks(modules, rng, 1.5)
        drawn = set()
        for _ in range(100):
            with mock.patch('numpy.random.choice', wraps=np.random.choice) as choice:
                replays.theirs.sample()
            drawn |= set(choice.call_args.args[0])
        candidates = list(replays.ours.candidates)
        yield compare('episodes that can be drawn', '12 stored', sorted(drawn), candidates)
        object.__setattr__(model, 'train_bebu_step', lambda *_: 0.0)
        update, rows = _part('update')(replays.ours, *own), []
        for draw in [(5, 6), (8, 7), (6, 5)]:
            y = replays.train(model, draw, 0)
            rows.append((model.epi_state, model.epi_actions, y, *replays.batch(update, draw)))
        states, actions, y, *ours = map(np.concatenate, zip(*rows))
        inputs = f'3 draws of random episodes, {len(y)} transitions with the fill'
        yield compare('stacks of a drawn episode', inputs, states, ours[0])
        yield compare('actions of a drawn episode', inputs, actions, ours[1])
        yield compare('targets without a bonus', inputs, y, ours[2], 2e-6)
        q_values = model.q_network(states[:64]), own[0](states[:64])
        yield compare('Q-values', '64 stacks, all heads', *q_values, 1e-5)
        one = model.q_network(states[:1], k=3), own[0](states[:1], head=3)[:, 0]
        yield compare('Q-values of one head', '1 stack', *one, 1e-5)
        replays = Replays(modules, [5] * 12, rng)
        y = replays.train(model, (6, 7), 0)
        own_rows = len(replays.batch(_part('update')(replays.ours, *own), (6, 7))[2])
        yield compare(
            'transitions of a minibatch',
            'episodes of 5 transitions',
            [len(y)],
            [own_rows],
            explained=[own_rows + 32 - 2 * 5],
            reason='theirs also fills from the episodes before the other one',
        )
    yield from _of_bonuses(modules)


def _of_bonuses(modules):
    rng = np.random.default_rng(2)
    lengths = (32 * rng.integers(1, 4, 14)).tolist()
    with configured(*LARGE_BONUS):
        replays = Replays(modules, lengths, np.random.default_rng(3), last_is_first=True)
        as_played = Replays(modules, lengths, np.random.default_rng(3))
        model, online, target = make_networks(modules, rng, 1.5, newest_only=True)
        object.__setattr__(model, 'train_bebu_step', lambda *_: 0.0)
        update, other_update = (
            _part('update')(r.ours, online, target) for r in (replays, as_played)
        )
        alpha, discount = update.alpha_2, config.value('Agent.discount')
        rows, oldest, stds, counts = [], [], [], []
        for draw in [(i, i + 1) for i in (5, 9, 7, 6, 8)]:
            y = replays.train(model, draw, alpha)
            states, actions, ours = replays.batch(update, draw)
            as_played.batch(other_update, draw)
            next_q = target(states[-2:-1]).numpy()[0]
            next_actions = next_q.argmax(axis=-1)
            bonus = next_q.std(axis=0)[next_actions] * (next_actions != actions[-2])
            lacking = discount * alpha * bonus / float(update.bonus.next_bonus_std.std)
            rows.append((y[:-1], ours[:-1]))
            oldest.append((y[-1], ours[-1], ours[-1] - lacking))
            pairs = (
                (model.rff_rms, update.bonus.reward_bonus_std),
                (model.rff_rms_q, update.bonus.next_bonus_std),
                (model.rff_rms_q, other_update.bonus.next_bonus_std),
            )
            stds.append([(np.sqrt(other.var), float(own.std)) for other, own in pairs])
            counts.append([(other.count, float(own.count)) for other, own in pairs])
    rows, oldest = ([np.concatenate(x) for x in zip(*pairs)] for pairs in (rows, oldest))
    inputs = '5 draws with alpha_1 = alpha_2 = 0.5'
    yield compare(f'targets with bonuses, {len(rows[0])} transitions', inputs, *rows, 5e-6)
    yield compare(
        'targets with bonuses, the oldest transition of a draw',
        inputs,
        *oldest[:2],
        5e-6,
        explained=oldest[2],
        reason='theirs lacks alpha_2 B~ there',
    )
    stds, counts = (np.transpose(x, (1, 2, 0)) for x in (stds, counts))
    for name, std, count in zip(('B', 'B~'), stds, counts):
        yield compare(f'std of {name}', inputs, *std, 2e-6)
        yield compare(f'values in the moments of {name}', inputs, *count)
    yield compare(
        'std of B~ with the frame after a terminal as played',
        inputs,
        *stds[2],
        2e-6,
        explained=stds[1, 1],
        reason='after a terminal theirs reads the next state from the row below',
    )


def of_gradient_step(modules):
    """Loss, Adam's moments after one step, that is the clipped gradient, and values after it."""
    for inputs, scale, size in (
        ('not clipped', 1.0, 1.0),
        ("clipped, Huber's linear part", 5.0, 50.0),
    ):
        losses, values, slots = [], [], {'m': [], 'v': []}
        rng = np.random.default_rng(4)
        for _ in range(3):
            with configured('MultiHeadQNetwork.hidden_units = 64'):
                model, online, target = make_networks(modules, rng, scale)
                learner = _part('learner')(online, target, 0)
                obs = np.stack([random_frames(rng, 32) for _ in range(4)], axis=-1)
                actions = rng.integers(4, size=32).astype(np.int32)
                y = (size * rng.normal(size=(32, 10))).astype(np.float32)
                loss = model.train_bebu_step(*map(tf.constant, (obs, actions, y)))
                batch = Batch(obs, actions, y, np.ones(32, 'f'), np.ones((32, 10), 'f'))
                report, _ = learner.step(batch)
                losses.append((float(loss), report['loss'] * config.value('QLearner.loss_scale')))
            values.append((model.q_network(obs), online(obs)))
            for slot, found in slots.items():
                of_theirs, of_ours = model.optimizer.get_slot, learner._optimizer.get_slot
                pairs = _pairs(
                    model.q_network, online, lambda v, s=slot, get=of_theirs: get(v, s).numpy()
                )
                for variable, other in pairs:  # In units of the norm, for each variable.
                    rest = np.linalg.norm(other - of_ours(variable, slot))
                    found.append((1, 1 + rest / np.linalg.norm(other)))
        inputs = f'3 batches, {inputs}'
        yield compare('loss', inputs, *np.transpose(losses), 1e-5)
        for slot, name in (('m', 'gradient after clipping'), ('v', 'its square')):
            yield compare(f'{name}, norm per variable', inputs, *np.transpose(slots[slot]), 0.02)
        yield compare('Q-values after a step', inputs, *np.swapaxes(values, 0, 1), 1e-3)


def of_acting(modules):
    """Actions by each rule without exploration, with ties broken as bound."""
    rng = np.random.default_rng(5)
    obs, rules = tf.zeros((1, 84, 84, 4), tf.uint8), ('sample', 'vote', 'ucb', 'ids')
    own_rules = [getattr(acting, f'{rule}_preferences') for rule in rules[1:]]
    with configured():
        model, tie_break = theirs.make_model(modules, 6), config.value('Agent.tie_break')
    found = []
    for case in range(300):
        spread = 10.0 ** -rng.integers(0, 4)
        q = (rng.normal(size=(1, 1, 6)) + spread * rng.normal(size=(1, 10, 6))).astype(np.float32)
        if case % 3 == 0:
            q[..., 1] = q[..., 0]
        network, head = tf.constant(q), int(rng.integers(10))
        object.__setattr__(
            model, 'q_network', lambda _, k=None, q=network: q if k is None else q[:, k]
        )
        other = [model.step(obs, head, action_selection=rule) for rule in rules]
        preferences = [acting.head_preferences(q, [head]), *(rule(q) for rule in own_rules)]
        own = [acting.greedy_actions(p.numpy(), rng, tie_break)[0] for p in preferences]
        found.append((other, own))
    other, own = np.swapaxes(found, 0, 1)
    for index, rule in enumerate(rules):
        inputs = '300 tables of 10 heads, a third with equal columns'
        yield compare(f'actions, {rule}', inputs, other[:, index], own[:, index])


def of_loop(modules, agent_steps=3000):
    """Both training loops on the same games and actions, with learner steps left out."""
    bindings = (
        'Agent.learning_starts = 1000',
        'Agent.target_period = 500',
        'linear.steps = 2000',
        f'EpisodeReplay.capacity_transitions = {agent_steps + 1}',
        'MultiHeadQNetwork.hidden_units = 8',
    )
    actions = np.random.default_rng(6).integers(4, size=agent_steps + 1)
    with configured(*bindings), tempfile.TemporaryDirectory() as folder:
        parts = Runner(f'{folder}/run', dry_run=True).parts
        make = _part('environment')
        own, other = (SimpleNamespace(epsilon=[], learned=[], copied=[]) for _ in range(2))
        _record_ours(parts, make, actions[:-1], own)
        buffer = _record_theirs(modules, make, actions, other)
    inputs = f'{agent_steps:,} agent steps of Breakout, equal actions'
    late = 'theirs takes effect one agent step later'
    yield compare(
        'epsilon of each action',
        inputs,
        other.epsilon[:-1],
        own.epsilon,
        1e-6,
        explained=[0.0, *own.epsilon[:-1]],
        reason='in theirs epsilon takes effect one action late, and the first is 0',
    )
    for name, theirs_at, ours_at in (
        ('agent steps before each learner step', other.learned, own.learned),
        ('agent steps before each target copy', other.copied[1:], own.copied),
    ):
        explained = np.add(ours_at, 1)
        yield compare(name, inputs, theirs_at, ours_at, explained=explained, reason=late)
    episodes = [parts.replay.episode(i) for i in range(parts.replay.num_episodes)]
    count = sum(len(steps) for _, steps in episodes)
    for name, column in (
        ('frames', np.concatenate([frames[3:-1] for frames, _ in episodes])),
        ('actions', np.concatenate([steps['action'] for _, steps in episodes])),
        ('rewards', np.concatenate([steps['reward'] for _, steps in episodes])),
        ('terminals', np.concatenate([steps['discount'] == 0 for _, steps in episodes])),
    ):
        array = {'frames': 'states', 'terminals': 'dones'}.get(name, name)
        stored = getattr(buffer, array)[:count]
        yield compare(f'{name} in replay', f'{inputs}; {len(episodes)} episodes', stored, column)


def _record_ours(parts, make, actions, log):
    agent, planned = parts.agent, iter(actions)

    def act(observations, heads, epsilon, rng):
        log.epsilon.append(epsilon)
        return np.array([next(planned)], np.int32)

    agent.policy = SimpleNamespace(actions=act)
    agent.learner_step = lambda: log.learned.append(len(log.epsilon)) or ({}, None, None)
    parts.learner.update_target = lambda: log.copied.append(len(log.epsilon))
    with contextlib.closing(make(num_envs=1, seed=0)) as env:
        observations, _ = env.reset()
        agent.begin(observations)
        steps = loop.play(env, observations, agent.act, meanwhile=agent.learn)
        for step, _ in steps:
            agent.observe(step)
            if agent.agent_steps == len(actions):
                break


def _record_theirs(modules, make, actions, log):
    buffers = []
    theirs.resize(modules)

    class Model(modules.deepq_learner.DEEPQ):
        def step(self, *arguments, **keywords):
            log.epsilon.append(float(self.eps))  # By which `step` decides, then sets the next.
            super().step(*arguments, **keywords)
            return actions[min(len(log.epsilon), len(actions)) - 1]

        def train_bebu(self, replay, **_):
            buffers[:] = [replay]
            log.learned.append(len(log.epsilon))

        def update_target(self):
            log.copied.append(len(log.epsilon))

    with contextlib.closing(make(num_envs=1, seed=0)) as env:
        limited = theirs.OldEnvironment(env, len(actions))
        with mock.patch.object(modules.deepq, 'DEEPQ', Model):
            theirs.learn(modules, limited)
    log.epsilon.pop()  # Of the action that the environment refused.
    return buffers[0]


def all_of(modules, repo):
    """All rows of the report."""
    with configured():
        yield from of_settings(modules, repo)
    for part in (of_loop, of_targets, of_gradient_step, of_acting):
        tf.keras.utils.set_random_seed(0)  # Of their initial weights.
        yield from part(modules)
