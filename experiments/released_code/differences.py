"""The released code and this package on equal inputs: what differs, and by how much.

Networks of both sides have equal weights, replays hold equal episodes, and draws are prescribed.
"""

import collections
import contextlib
import functools
import math
from types import SimpleNamespace
from unittest import mock

import numpy as np
import tensorflow as tf

from experiments.released_code import side, theirs
from ob2i_tf import acting, config
from ob2i_tf.agent import Agent
from ob2i_tf.training import build
from ob2i_tf.training.runner import Runner
from ob2i_tf.types import Batch, Episode

LOOP_STEPS = 3000  # Agent steps.
EQUAL, BY_DESIGN, DIFFERS = 'equal to rounding', 'differs by design', 'DIFFERS'
Difference = collections.namedtuple(
    'Difference', 'quantity inputs absolute relative unexplained bound verdict reason'
)


def compare(quantity, inputs, other, own, bound=0.0, explained=None, reason='') -> Difference:
    """Compares an array of theirs with ours.

    Args:
      quantity, inputs: Texts.
      other, own: Arrays, theirs and ours; if their shapes differ, the difference is infinite.
      bound: Largest allowed `unexplained`.
      explained: Ours with the known difference applied to it; None: ours.
      reason: The known difference, if any.

    Returns:
      A Difference. `absolute` is the largest difference; `relative` and `unexplained` are divided
      by the largest magnitude in `other`, and `unexplained` is between `other` and `explained`.
    """
    explained = own if explained is None else explained
    other, own, explained = (np.asarray(x, np.float64) for x in (other, own, explained))
    absolute, rest = (
        np.abs(other - x).max() if other.shape == x.shape else math.inf for x in (own, explained)
    )
    size = np.abs(other).max() or 1.0
    relative, unexplained = absolute / size, rest / size
    verdict = DIFFERS  # Also if it is NaN.
    if unexplained <= bound:
        verdict = BY_DESIGN if reason else EQUAL
    return Difference(quantity, inputs, absolute, relative, unexplained, bound, verdict, reason)


def _part(name):
    """The factory that gin binds for a parameter of Runner."""
    return config.bound(Runner)[name]


def _as_ours(arrays):
    """Maps an array per variable of their network to one per variable of ours: stacks the heads."""
    trunk, heads = arrays[:6], arrays[6:]  # Kernel and bias of three convolutions.
    hidden_kernel, hidden_bias, kernel, bias = (np.stack(heads[index::4]) for index in range(4))
    kernels = hidden_kernel.swapaxes(1, 2), kernel.swapaxes(1, 2)
    return [*trunk, kernels[0], hidden_bias[..., None], kernels[1], bias[..., None]]


def _slots(optimizer, network, slot):
    """The arrays of an optimizer's slot, one per variable of a network."""
    return [optimizer.get_slot(v, slot).numpy() for v in network.trainable_variables]


def make_networks(modules, rng, scale, newest_only=False):
    """Their model, and our online and target network with the weights of its two.

    Args:
      modules: See `theirs.load`.
      rng: Random generator of the biases.
      scale: Factor on the initial kernels.
      newest_only: Whether values depend on the newest frame of a stack alone.
    """
    model = theirs.make_model(modules)
    spec = build.environment_spec(_part('environment'))
    own = build.build_networks(_part('network'), spec, 0)
    for network, copy in zip((model.q_network, model.target_q_network), own):
        network(np.zeros((1, 84, 84, 4), np.uint8))
        weights = [
            w * scale if w.ndim > 1 else 0.05 * rng.normal(size=w.shape)
            for w in network.get_weights()
        ]
        if newest_only:
            weights[0][:, :, :3] = 0
        network.set_weights(weights)
        copy.set_weights(_as_ours(weights))
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
      rng: Random generator of the episodes.
      last_is_first: Whether the frame after a terminal repeats the first of its episode, which
        theirs takes for the next state there if the episode fills its minibatches.
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

    def draw_theirs(self, model, draw, alpha):
        """Their states, actions and targets of a drawn pair of episodes; newest first."""
        model.batch_count = model.batchnum
        with (
            mock.patch('numpy.random.choice', lambda *_, **__: np.array(draw)),
            mock.patch.object(model, 'train_bebu_step', lambda *_: None),
        ):
            model.train_bebu(self.theirs, 'ucb' if alpha else 'none', alpha, alpha)
        return model.epi_state, model.epi_actions, model.y_

    def draw_ours(self, update, draw):
        """Our batches of the same pair, joined; newest first, without padding."""
        self._draws.extend(draw)
        batches = [update.next_batch()[0] for _ in range(math.ceil(self.lengths[draw[0]] / 32))]
        self._draws.clear()
        return [
            np.concatenate([getattr(b, name)[b.weights > 0][::-1] for b in batches])
            for name in ('observations', 'actions', 'targets')
        ]


def of_settings(modules):
    """Defaults of their command line beside the numbers in our gin file."""
    found = modules.defaults
    for name, number in theirs.settings().items():
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


def of_loop(modules):
    """Both training loops on the same games and actions, with learner steps left out."""
    actions = np.random.default_rng(6).integers(4, size=LOOP_STEPS + 2)
    own, replay = _loop_of_ours(actions[:LOOP_STEPS])
    other, buffer = _loop_of_theirs(modules, actions)
    inputs = f'{LOOP_STEPS:,} agent steps of Breakout, equal actions'
    yield compare(
        'epsilon of each action',
        inputs,
        other.epsilon[:LOOP_STEPS],
        own.epsilon,
        1e-6,
        explained=[0.0, *own.epsilon[:-1]],
        reason='in theirs epsilon takes effect one action late, and the first is 0',
    )
    for name, theirs_at, ours_at in (
        ('agent steps before each learner step', other.learned, own.learned),
        ('agent steps before each target copy', other.copied[1:], own.copied),
    ):
        late = 'theirs takes effect one agent step later'
        explained = np.add(ours_at, 1)
        yield compare(name, inputs, theirs_at, ours_at, explained=explained, reason=late)
    frames, steps = zip(*(replay.episode(i) for i in range(replay.num_episodes)))
    actions, rewards, discounts = (
        np.concatenate([each[name] for each in steps]) for name in ('action', 'reward', 'discount')
    )
    for name, stored, column in (
        ('frames', buffer.states, np.concatenate([each[3:-1] for each in frames])),
        ('actions', buffer.actions, actions),
        ('rewards', buffer.rewards, rewards),
        ('terminals', buffer.dones, discounts == 0),
    ):
        where = f'{inputs}; {len(frames)} episodes'
        yield compare(f'{name} in replay', where, stored[: len(column)], column)


def _loop_of_ours(actions):
    """Plays the actions; returns (epsilons and times of learner steps and copies, replay)."""
    log = SimpleNamespace(epsilon=[], learned=[], copied=[])
    parts = Runner('unused', dry_run=True).parts

    def act(observations, heads, epsilon, rng):
        log.epsilon.append(epsilon)
        return actions[len(log.epsilon) - 1 :][:1]

    parts.agent.policy = SimpleNamespace(actions=act)
    parts.agent.learner_step = lambda: log.learned.append(len(log.epsilon)) or ({}, None, None)
    parts.learner.update_target = lambda: log.copied.append(len(log.epsilon))
    with contextlib.closing(_part('environment')(num_envs=1, seed=0)) as env:
        for _ in side.play(parts, env, len(actions)):
            pass
    return log, parts.replay


def _loop_of_theirs(modules, actions):
    """Like `_loop_of_ours`; the last action is chosen, but the environment refuses to play it."""
    log, buffers = SimpleNamespace(epsilon=[], learned=[], copied=[]), []

    class Model(modules.deepq_learner.DEEPQ):
        def step(self, *arguments, **keywords):
            log.epsilon.append(float(self.eps))  # By which `step` decides, then sets the next.
            super().step(*arguments, **keywords)
            return actions[len(log.epsilon) - 1]

        def train_bebu(self, replay, **_):
            buffers[:] = [replay]
            log.learned.append(len(log.epsilon))

        def update_target(self):
            log.copied.append(len(log.epsilon))

    with (
        contextlib.closing(_part('environment')(num_envs=1, seed=0)) as env,
        mock.patch.object(modules.deepq, 'DEEPQ', Model),
    ):
        theirs.learn(modules, theirs.OldEnvironment(env, len(actions) - 1))
    return log, buffers[0]


def of_targets(modules):
    """Draws, stacks and targets without a bonus, and Q-values."""
    tf.keras.utils.set_random_seed(0)  # Seed of their initial weights, here and in of_bonuses.
    rng = np.random.default_rng(1)
    replays = Replays(modules, rng.integers(33, 100, 12).tolist(), rng)
    model, *own = make_networks(modules, rng, 1.5)
    with mock.patch('numpy.random.choice', wraps=np.random.choice) as choice:
        replays.theirs.sample()
    drawn_from = list(choice.call_args.args[0])
    candidates = list(replays.ours.candidates)
    yield compare('episodes that can be drawn', '12 stored', drawn_from, candidates)
    update, rows = _part('update')(replays.ours, *own), []
    for draw in [(5, 6), (8, 7), (6, 5)]:
        rows.append((*replays.draw_theirs(model, draw, 0), *replays.draw_ours(update, draw)))
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
    count = len(replays.draw_theirs(model, (6, 7), 0)[2])
    own_count = len(replays.draw_ours(_part('update')(replays.ours, *own), (6, 7))[2])
    yield compare(
        'transitions of a minibatch',
        'episodes of 5 transitions',
        [count],
        [own_count],
        explained=[own_count + 32 - 2 * 5],
        reason='theirs also fills from the episodes before the other one',
    )


def of_bonuses(modules):
    """Targets with bonuses, and the moments of the bonuses."""
    rng = np.random.default_rng(2)
    lengths = (32 * rng.integers(1, 4, 14)).tolist()
    replays = Replays(modules, lengths, np.random.default_rng(3), last_is_first=True)
    as_played = Replays(modules, lengths, np.random.default_rng(3))
    model, online, target = make_networks(modules, rng, 1.5, newest_only=True)
    update, other_update = (_part('update')(r.ours, online, target) for r in (replays, as_played))
    alpha, discount = update.alpha_2, config.value('Agent.discount')
    rows, oldest, stds, counts = [], [], [], []
    for draw in [(i, i + 1) for i in (5, 9, 7, 6, 8)]:
        _, _, y = replays.draw_theirs(model, draw, alpha)
        states, actions, ours = replays.draw_ours(update, draw)
        as_played.draw_ours(other_update, draw)
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
    """Loss, Adam's moments after a step, which show the clipped gradient, and the new Q-values."""
    tf.keras.utils.set_random_seed(0)  # Seed of their initial weights.
    for inputs, scale, size in (
        ('not clipped', 1.0, 1.0),
        ("clipped, Huber's linear part", 5.0, 50.0),
    ):
        losses, values, slots = [], [], {'m': [], 'v': []}
        rng = np.random.default_rng(4)
        for _ in range(3):
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
            for slot, norms in slots.items():
                other = _as_ours(_slots(model.optimizer, model.q_network, slot))
                own = _slots(learner._optimizer, online, slot)
                for theirs_of, ours_of in zip(other, own, strict=True):
                    rest = np.linalg.norm(theirs_of - ours_of)
                    norms.append((1, 1 + rest / np.linalg.norm(theirs_of)))
        inputs = f'3 batches, {inputs}'
        yield compare('loss', inputs, *np.transpose(losses), 1e-5)
        for slot, name in (('m', 'gradient after clipping'), ('v', 'its square')):
            yield compare(f'{name}, norm per variable', inputs, *np.transpose(slots[slot]), 0.02)
        yield compare('Q-values after a step', inputs, *np.swapaxes(values, 0, 1), 1e-3)


def of_acting(modules):
    """Actions by each rule without exploration, with ties broken as bound."""
    rng, rules, found = np.random.default_rng(5), ('sample', 'vote', 'ucb', 'ids'), []
    for case in range(300):
        spread = 10.0 ** -rng.integers(0, 4)
        q = (rng.normal(size=(1, 1, 6)) + spread * rng.normal(size=(1, 10, 6))).astype(np.float32)
        if case % 3 == 0:
            q[..., 1] = q[..., 0]
        network, head = tf.constant(q), int(rng.integers(10))
        model = SimpleNamespace(
            num_actions=6,
            eps=0.0,
            q_network=lambda _, k=None, q=network: q if k is None else q[:, k],
        )
        step = functools.partial(modules.deepq_learner.DEEPQ.step, model, tf.zeros(1), head)
        preferences = (
            acting.head_preferences(q, [head]),
            acting.vote_preferences(q),
            acting.ucb_preferences(q),
            acting.ids_preferences(q),
        )
        tie_break = config.value('Agent.tie_break')
        own = [acting.greedy_actions(p.numpy(), rng, tie_break)[0] for p in preferences]
        found.append(([step(action_selection=rule) for rule in rules], own))
    for rule, actions in zip(rules, np.transpose(found, (2, 1, 0))):
        inputs = '300 tables of 10 heads, a third with equal columns'
        yield compare(f'actions, {rule}', inputs, *actions)


def all_of(modules):
    """All rows of the report."""
    loop = (
        'Agent.learning_starts = 1000',
        'Agent.target_period = 500',
        'linear.steps = 2000',
        f'EpisodeReplay.capacity_transitions = {LOOP_STEPS + 1}',
        'MultiHeadQNetwork.hidden_units = 8',
    )
    no_bonus = (
        'EpisodicUpdate.alpha_1 = 0.0',
        'EpisodicUpdate.alpha_2 = 0.0',
        'EpisodicUpdate.bonus = None',
    )
    large_bonus = 'EpisodicUpdate.alpha_1 = 0.5', 'EpisodicUpdate.alpha_2 = 0.5'
    for quantities, bindings in (
        (of_settings, ()),
        (of_loop, loop),
        (of_targets, no_bonus),
        (of_bonuses, large_bonus),
        (of_gradient_step, ('MultiHeadQNetwork.hidden_units = 64',)),
        (of_acting, ()),
    ):
        with config.GinState().entered():
            config.load(['ob2i_atari_released.gin'], bindings)
            yield from quantities(modules)
