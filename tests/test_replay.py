"""Stacks, capacity, draws and memory; what was saved comes back, or an error says why not."""

import ast
import json
import os
import pathlib
import resource
import subprocess
import sys
import zipfile

import numpy as np
import pytest

import ob2i_tf
from ob2i_tf import replay as replay_lib
from ob2i_tf.errors import UserError
from ob2i_tf.replay import (
    EmptyReplayError,
    EpisodeReplay,
    EpisodeTooLongError,
    ReplayDamagedError,
    stack,
)
from ob2i_tf.types import Episode

FRAME = (2, 3)


def _replay(capacity=1000, history=1, seed=0, frame=FRAME, dtype=np.int32, **kwargs):
    return EpisodeReplay(frame, capacity, history, seed, dtype, **kwargs)


def _episode(number, length, history=1):
    """Every value tells the episode and the time; the context too, with times below 0."""
    ids = 1000 * number + np.arange(-(history - 1), length + 1)
    frames = np.broadcast_to(ids[:, None, None], (len(ids), *FRAME)).astype(np.int32)
    steps = ids[history - 1 : -1]
    return Episode(
        frames[history - 1 :], steps, steps / 8, np.full(length, 0.9), frames[: history - 1]
    )


def _number(episode):
    return episode.observations.flat[0] // 1000


def _numbers(replay, draws=400):
    """The episodes that are stored."""
    return {_number(replay.sample_episode()) for _ in range(draws)}


def _equal(a, b):
    return all(np.array_equal(x, y) for x, y in zip(a, b, strict=True))


def _same_future(a, b, draws=30):
    return all(
        _equal(a.sample_episode(), b.sample_episode())
        and _equal(a.sample_transitions(7), b.sample_transitions(7))
        for _ in range(draws)
    )


# Stacks.


def test_stack_has_the_newest_frame_last():
    frames = np.arange(5 * 6).reshape(5, *FRAME)
    places = np.array([2, 0, 1])
    stacked = stack(frames, places, 3)
    assert stacked.shape == (3, *FRAME, 3)
    for row, place in zip(stacked, places):
        for age in range(3):
            assert np.array_equal(row[..., -1 - age], frames[place + 2 - age])
    assert np.array_equal(stack(frames, places, 1), frames[places])


def _play(rng, history, episodes):
    """Games of life-long episodes on frames that are never shown twice.

    Yields:
      An Episode, and the [T + 1, *stack] that the agent saw in it.
    """
    shown = 0
    seen = []
    for _ in range(episodes):
        new_game = not seen or rng.random() < 0.5
        if new_game:  # The last one ended, or was cut by the step limit.
            shown += 1
            seen = [shown] * history
        context, ids, stacks = seen[-history:-1], [seen[-1]], [seen[-history:]]
        for _ in range(rng.integers(1, 40)):
            shown += 1
            seen.append(shown)
            ids.append(shown)
            stacks.append(seen[-history:])
        length = len(ids) - 1
        frames = [
            np.broadcast_to(np.reshape(x, (-1, 1, 1)), (len(x), *FRAME)).astype(np.int32)
            for x in (ids, context)
        ]
        stacks = np.array(stacks, np.int32)
        stacks = np.broadcast_to(stacks[:, None, None], (length + 1, *FRAME, history))
        episode = Episode(
            frames[0],
            np.array(ids[:-1]),
            np.zeros(length),
            np.ones(length),
            None if new_game else frames[1],
        )
        yield episode, stacks[..., 0] if history == 1 else stacks


@pytest.mark.parametrize('history', [1, 4])
def test_every_stack_is_the_one_that_was_acted_on(history):
    rng = np.random.default_rng(history)
    replay = _replay(800, history)
    acted = {}  # First frame of an episode, or its action at a time -> stacks.
    for episode, stacks in _play(rng, history, 150):
        replay.add_episode(episode)
        first = episode.observations.flat[0], episode.observations.flat[-1]
        acted[first] = stacks
        for t, action in enumerate(episode.actions):
            acted[int(action)] = stacks[t], stacks[t + 1]
    episodes = set()
    for _ in range(600):
        episode = replay.sample_episode()
        assert episode.context.shape == (history - 1, *FRAME)
        key = episode.observations.flat[0], episode.observations.flat[-1]
        frames = np.concatenate([episode.context, episode.observations])
        places = np.arange(len(episode.observations))
        assert np.array_equal(stack(frames, places, history), acted[key])
        assert np.array_equal(episode.actions, episode.observations[:-1, 0, 0])
        episodes.add(key)
    assert len(episodes) == replay.num_episodes
    actions = set()
    for _ in range(60):
        batch = replay.sample_transitions(200)
        for action, observation, next_observation in zip(
            batch.actions, batch.observations, batch.next_observations
        ):
            expected, next_expected = acted[int(action)]
            assert np.array_equal(observation, expected)
            assert np.array_equal(next_observation, next_expected)
            actions.add(int(action))
    assert len(actions) == replay.num_transitions


def test_what_is_added_comes_back():
    for frame, dtype, length in [((84, 84), np.uint8, 30), ((), np.float32, 3), ((5,), 'f8', 1)]:
        rng = np.random.default_rng(0)
        replay = _replay(100, history=3, frame=frame, dtype=dtype)
        frames = (200 * rng.random((length + 3, *frame))).astype(dtype)
        added = Episode(
            frames[2:],
            rng.integers(-5, 5, length, np.int32),
            rng.normal(size=length).astype(np.float32),
            rng.random(length, np.float32),
            frames[:2],
        )
        replay.add_episode(added)
        frames_before = frames.copy()
        frames[:] = 0  # The caller may go on to use his arrays.
        sampled = replay.sample_episode()
        assert _equal(
            sampled, added._replace(observations=frames_before[2:], context=frames_before[:2])
        )
        assert [x.dtype for x in sampled[:5]] == [dtype, np.int32, np.float32, np.float32, dtype]
        assert not sampled.observations.flags.writeable
        batch = replay.sample_transitions(4)
        expected = [dtype, np.int32, np.float32, np.float32, dtype, np.int64]
        assert [x.dtype for x in batch] == expected
        assert batch.observations.shape == batch.next_observations.shape == (4, *frame, 3)
        assert all(x.flags.c_contiguous for x in batch)


def test_a_sampled_episode_outlives_its_place_in_the_replay():
    replay = _replay(100, frame=(84, 84), dtype=np.uint8)

    def constant(value):
        return Episode(
            np.full((61, 84, 84), value, np.uint8), np.zeros(60, int), np.zeros(60), np.ones(60)
        )

    replay.add_episode(constant(1))
    sampled = replay.sample_episode()
    for _ in range(5):
        replay.add_episode(constant(2))
    assert (sampled.observations == 1).all()


# Capacity.


def test_capacity_counts_transitions_and_the_oldest_leave():
    replay = _replay(50)
    rng = np.random.default_rng(0)
    stored = []
    for number in range(40):
        length = int(rng.integers(1, 30))
        replay.add_episode(_episode(number, length))
        stored.append((number, length))
        while sum(length for _, length in stored) > 50:
            del stored[0]
        assert replay.num_transitions == sum(length for _, length in stored)
        assert replay.num_episodes == len(stored)
        assert _numbers(replay, 60) == {number for number, _ in stored}
    replay.add_episode(_episode(99, 50))
    assert (replay.num_episodes, replay.num_transitions, _numbers(replay)) == (1, 50, {99})
    with pytest.raises(ValueError, match=r'51 transitions.*capacity_transitions = 50'):
        replay.add_episode(_episode(0, 51))
    assert replay.num_transitions == 50


def test_nothing_to_sample():
    replay = _replay(exclude_oldest_episodes=2, exclude_newest_episodes=1)
    for number in range(3):
        assert not replay.can_sample
        with pytest.raises(EmptyReplayError, match=f'{number} complete episodes.*oldest 2.*newest'):
            replay.sample_episode()
        if not number:
            with pytest.raises(EmptyReplayError):
                replay.sample_transitions(1)
        replay.add_episode(_episode(number, 5))
    replay.add_episode(_episode(3, 5))
    assert replay.can_sample and _numbers(replay, 20) == {2}
    for number in range(4, 20):
        replay.add_episode(_episode(number, 5))
    assert _numbers(replay) == set(range(2, 19))


@pytest.mark.parametrize(
    'change, message',
    [
        (
            {'observations': np.zeros((6, 2, 2), np.int32)},
            r'observations: expected int32 \(6, 2, 3',
        ),
        ({'observations': np.zeros((6, 2, 3), np.uint8)}, r'observations: .* got uint8 \(6, 2, 3'),
        (
            {'observations': np.zeros((1, 2, 3), np.int32)},
            r'at least 1 transition, got .*\(1, 2, 3',
        ),
        ({'observations': np.int32(1)}, r'observations: .*got shape \(\)'),
        ({'context': np.zeros((2, *FRAME), np.int32)}, r'context: expected int32 \(3, 2, 3\), got'),
        ({'actions': np.zeros(6, int)}, r'actions: expected integers \(5,\), got int64 \(6,\)'),
        ({'actions': np.zeros(5)}, r'actions: expected integers \(5,\), got float64'),
        ({'rewards': np.zeros((5, 1))}, r'rewards: expected numbers \(5,\), got float64 \(5, 1\)'),
        ({'rewards': np.array([0, 0, np.nan, 0, 0])}, 'rewards: expected finite.*nan at 2'),
        ({'rewards': np.array([0, 0, 0, 0, 1e300])}, 'rewards: expected finite.*inf at 4'),
        ({'discounts': np.array([0, np.inf, 0, 0, 0])}, 'discounts: expected finite.*inf at 1'),
    ],
)
def test_an_episode_that_is_not_well_formed(change, message):
    replay = _replay(history=4)
    with pytest.raises(ValueError, match=message):
        replay.add_episode(_episode(1, 5, 4)._replace(**change))
    assert replay.num_episodes == 0


@pytest.mark.parametrize(
    'name, value',
    [
        ('capacity_transitions', 1e3),
        ('capacity_transitions', 0),
        ('history', 0),
        ('exclude_newest_episodes', -1),
        ('observation_dtype', object),
    ],
)
def test_arguments_out_of_range(name, value):
    with pytest.raises(ValueError, match=f'EpisodeReplay.{name}'):
        EpisodeReplay(**{'observation_shape': FRAME, 'capacity_transitions': 100, name: value})


def test_a_capacity_has_to_be_given():
    with pytest.raises(RuntimeError, match=r"`EpisodeReplay` not .*'capacity_transitions'"):
        EpisodeReplay(FRAME)


def test_budget_is_announced_and_checked(monkeypatch, caplog):
    replay_lib.logging.set_verbosity(replay_lib.logging.INFO)
    monkeypatch.setattr(replay_lib, 'machine_memory_bytes', lambda: 23.4e9)
    EpisodeReplay((84, 84), 1_000_000)
    assert '1,000,000 transitions of 84x84 uint8 = 7.1 GB (machine: 23.4 GB)' in caplog.text
    monkeypatch.setattr(replay_lib, 'machine_memory_bytes', lambda: 7e9)
    message = r'EpisodeReplay.capacity_transitions = 1000000: .* 7.1 GB, .* machine has 7.0 GB'
    with pytest.raises(ValueError, match=message):
        EpisodeReplay((84, 84), 1_000_000)


# Draws.


def _chi_square(counts, probabilities):
    expected = np.sum(counts) * np.asarray(probabilities)
    return np.sum((counts - expected) ** 2 / expected)


@pytest.mark.parametrize(
    'groups, files, limit',
    [
        ('0::/job/step\n', {'job/memory.max': 3, 'job/step/memory.max': 5, 'memory.max': 9}, 3),
        ('0::/job/step\n', {'job/step/memory.max': 'max', 'other/memory.max': 2}, None),
        ('0::/\n', {'memory.max': 4}, 4),
        (None, {'memory.max': 4}, 4),
        (
            '3:cpu:/x\n4:hugetlb,memory:/job:1\n0::/\n',
            {'memory/job:1/memory.limit_in_bytes': 6, 'memory/x/memory.limit_in_bytes': 1},
            6,
        ),
    ],
)
def test_memory_is_the_least_limit_of_the_control_groups(tmp_path, groups, files, limit):
    if groups is not None:
        (tmp_path / 'cgroup').write_text(groups)
    for name, value in files.items():
        (tmp_path / 'root' / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / 'root' / name).write_text(f'{value}\n')
    physical = os.sysconf('SC_PHYS_PAGES') * os.sysconf('SC_PAGE_SIZE')
    found = replay_lib.machine_memory_bytes(tmp_path / 'cgroup', tmp_path / 'root')
    assert found == (physical if limit is None else limit)


def test_draws_are_uniform_over_episodes_and_over_transitions():
    replay = _replay(200, seed=3)
    lengths = [60, 50, 1, 40, 2, 30, 25, 17, 9, 5, 3]  # The first leaves.
    for number, length in enumerate(lengths):
        replay.add_episode(_episode(number, length))
    assert replay.num_episodes == 10
    numbers = [_number(replay.sample_episode()) for _ in range(2000)]
    counts = np.bincount(numbers, minlength=11)
    assert counts[0] == 0 and _chi_square(counts[1:], [0.1] * 10) < 27.9  # p = 0.001, 9 degrees.
    actions = np.concatenate([replay.sample_transitions(200).actions for _ in range(30)])
    _, counts = np.unique(actions, return_counts=True)
    assert len(counts) == 182  # Of as many transitions.
    assert _chi_square(counts, [1 / 182] * 182) < 245  # p = 0.001, 181 degrees.


def test_episodes_are_drawn_as_one_after_another_until_they_are_long_enough():
    """The same draws, whether asked for at once or each on its own."""
    at_once, singly = (
        EpisodeReplay(FRAME, 1000, history=2, seed=3, observation_dtype=np.int32) for _ in range(2)
    )
    rng = np.random.default_rng(0)
    for episode, _ in _play(rng, 2, 30):
        at_once.add_episode(episode)
        singly.add_episode(episode)
    for wanted in (1, 7, 40, 300):
        episodes = at_once.sample_episodes(wanted)
        lengths = [len(episode.actions) for episode in episodes]
        assert sum(lengths[:-1]) < wanted <= sum(lengths)
        for episode in episodes:
            for x, y in zip(episode, singly.sample_episode()):
                np.testing.assert_array_equal(x, y)


def test_the_seed_decides_the_draws():
    replays = [_replay(seed=seed) for seed in (5, np.random.SeedSequence(5), 6)]
    for number in range(20):
        for replay in replays:
            replay.add_episode(_episode(number, 5 + number))
    assert _same_future(*replays[:2])
    assert not _same_future(*replays[1:])


@pytest.mark.parametrize('history', [1, 4])
@pytest.mark.parametrize('n_steps', [1, 3, 100])
def test_transitions_over_several_steps(n_steps, history):
    replay = _replay(40, history)
    expected, first_id = {}, 0
    for number, (length, last) in enumerate([(30, 0), (9, 0), (12, 0.9), (1, 0), (1, 0.9), (6, 0)]):
        episode = _episode(number, length, history)
        episode.discounts[-1] = last
        episode.discounts[length // 2 : -1] = 0.5
        replay.add_episode(episode)
        frames = np.concatenate([episode.context, episode.observations])
        for t in range(length):
            reward, factor, end = 0.0, 1.0, t
            while end < min(t + n_steps, length):
                reward += factor * episode.rewards[end]
                factor *= episode.discounts[end]
                end += 1
            stacks = [np.stack([frames[i + age] for age in range(history)], -1) for i in (t, end)]
            expected[first_id + t] = *stacks, episode.actions[t], reward, factor
        first_id += length
    seen = set()
    for _ in range(20):
        batch = replay.sample_transitions(30, n_steps)
        for row, number in enumerate(batch.ids.tolist()):
            observation, next_observation, action, reward, discount = expected[number]
            if history == 1:
                observation, next_observation = observation[..., 0], next_observation[..., 0]
            assert np.array_equal(batch.observations[row], observation)
            assert np.array_equal(batch.next_observations[row], next_observation)
            assert batch.actions[row] == action
            np.testing.assert_allclose(batch.rewards[row], reward, rtol=1e-6)
            np.testing.assert_allclose(batch.discounts[row], discount, rtol=1e-6)
            seen.add(number)
    assert seen == set(range(30, 59))  # The first episode has left.
    assert batch.rewards.dtype == batch.discounts.dtype == np.float32


def test_an_episode_tells_the_ids_of_its_transitions(tmp_path):
    replay = _replay(50, 2)
    for number, length in enumerate([20, 7, 1, 30, 11, 3]):
        replay.add_episode(_episode(number, length, 2))
    other = _loaded(tmp_path, _save(replay, tmp_path), capacity=50)
    for each in (replay, other):
        seen = {}
        for _ in range(60):
            episode = each.sample_episode()
            seen[_number(episode)] = episode.first_id
        assert seen == {2: 27, 3: 28, 4: 58, 5: 69}


# Disk.


def _save(replay, directory):
    return json.loads(json.dumps(replay.save(directory)))


def _filled(numbers=20, seed=0, first=0, history=2, capacity=200):
    replay = _replay(capacity, history, seed)
    for number in range(first, first + numbers):
        replay.add_episode(_episode(number, 3 + number % 17, history))
    return replay


def _files(directory):
    return {path.name: path.read_bytes() for path in directory.iterdir()}


def _loaded(directory, manifest, **kwargs):
    replay = _replay(**{'capacity': 200, 'history': 2, 'seed': 99, **kwargs})
    replay.load(directory, manifest)
    return replay


def test_what_was_saved_comes_back_and_goes_on_alike(tmp_path):
    replay = _filled(60)
    replay.sample_transitions(3)
    manifest = _save(replay, tmp_path)
    other = _loaded(tmp_path, manifest)
    assert other.num_transitions == replay.num_transitions
    assert other.num_episodes == replay.num_episodes < 60
    assert _same_future(replay, other)
    for number in range(60, 90):  # The order of leaving, and files beside those of others.
        for each in (replay, other):
            each.add_episode(_episode(number, 9, 2))
    assert _same_future(replay, other)
    assert _save(replay, tmp_path) == _save(other, tmp_path)


def test_an_episode_is_written_once(tmp_path):
    replay = _filled(5)
    first = _save(replay, tmp_path)
    before = {path: path.stat().st_mtime_ns for path in tmp_path.iterdir()}
    assert len(before) == 1
    replay.sample_episode()
    second = _save(replay, tmp_path)
    assert second['segments'] == first['segments'] and second['rng'] != first['rng']
    replay.add_episode(_episode(5, 4, 2))
    third = _save(replay, tmp_path)
    assert third['segments'][:1] == first['segments'] and len(third['segments']) == 2
    with np.load(tmp_path / third['segments'][1]['file'], allow_pickle=False) as arrays:
        assert arrays['lengths'].tolist() == [4]
    assert {path: path.stat().st_mtime_ns for path in before} == before
    other = _loaded(tmp_path, third)
    assert _save(other, tmp_path) == third
    assert len(list(tmp_path.iterdir())) == 2
    assert [_loaded(tmp_path, m).num_episodes for m in (first, second, third)] == [5, 5, 6]


def test_segments_are_plain_arrays_in_a_compressed_archive(tmp_path):
    replay = _filled(4)
    (segment,) = _save(replay, tmp_path)['segments']
    path = tmp_path / segment['file']
    assert path.stat().st_size == segment['bytes']
    assert (segment['first_id'], segment['last_id']) == (0, 3)
    with zipfile.ZipFile(path) as archive:
        assert archive.testzip() is None
        assert {i.compress_type for i in archive.infolist()} == {zipfile.ZIP_DEFLATED}
    with np.load(path, allow_pickle=False) as arrays:
        assert arrays['lengths'].tolist() == [3, 4, 5, 6]
        assert np.array_equal(arrays['frames'][:5, 0, 0], [-1, 0, 1, 2, 3])
        assert arrays['steps']['action'].tolist()[:5] == [0, 1, 2, 1000, 1001]
    source = ast.parse(pathlib.Path(replay_lib.__file__).read_text())
    allowed = [
        k.value.value
        for n in ast.walk(source)
        if isinstance(n, ast.Call)
        for k in n.keywords
        if k.arg == 'allow_pickle'
    ]
    assert allowed and not any(allowed)


def test_flush_writes_whole_segments_ahead(tmp_path, monkeypatch):
    monkeypatch.setattr(replay_lib, '_SEGMENT_BYTES', 1000)
    replay = _replay(2000, history=2)
    twin = _replay(2000, history=2)
    for number in range(50):
        for each in (replay, twin):
            each.add_episode(_episode(number, 20, 2))
        replay.flush(tmp_path)
    ahead = _files(tmp_path)
    assert len(ahead) == 25  # 2 episodes each.
    replay.add_episode(_episode(50, 20, 2))
    twin.add_episode(_episode(50, 20, 2))
    replay.flush(tmp_path)
    assert _files(tmp_path) == ahead
    replay.prune(tmp_path, [])  # Keeps what the next save relies on.
    assert _files(tmp_path) == ahead
    manifest = _save(replay, tmp_path)
    assert len(manifest['segments']) == 26
    assert _save(twin, tmp_path / 'twin')['segments'] == manifest['segments']
    assert _same_future(replay, _loaded(tmp_path, manifest, capacity=2000))


def test_prune_keeps_what_the_kept_checkpoints_need(tmp_path):
    replay, manifests = _filled(10), []
    for number in range(10, 40, 5):
        for i in range(5):
            replay.add_episode(_episode(number + i, 13, 2))
        manifests.append(_save(replay, tmp_path))
        (tmp_path / f'episodes-{number}.tmp').write_bytes(b'left by a killed run')
        (tmp_path / 'notes.txt').write_bytes(b'not of the replay')
        kept = manifests[-2:]
        replay.prune(tmp_path, kept)
        expected = {segment['file'] for m in kept for segment in m['segments']}
        assert {path.name for path in tmp_path.iterdir()} == expected | {'notes.txt'}
        for manifest in kept:
            assert _loaded(tmp_path, manifest).num_transitions == manifest['num_transitions']
    assert len(expected) < 7  # Files whose episodes all left are gone.


def test_an_older_checkpoint_and_then_another_future(tmp_path):
    replay = _filled(10)
    old = _save(replay, tmp_path)
    replay.add_episode(_episode(10, 7, 2))
    newer = _save(replay, tmp_path)
    other = _loaded(tmp_path, old)
    other.add_episode(_episode(77, 7, 2))
    another = _save(other, tmp_path)
    assert another['segments'][1]['first_id'] == newer['segments'][1]['first_id']
    assert 77 in _numbers(_loaded(tmp_path, another))
    assert 77 not in _numbers(_loaded(tmp_path, newer))
    other.prune(tmp_path, [another])
    assert 77 in _numbers(_loaded(tmp_path, another))
    with pytest.raises(ReplayDamagedError, match=newer['segments'][1]['file']):
        _loaded(tmp_path, newer)


def test_another_directory_gets_everything(tmp_path):
    replay = _filled(10)
    _save(replay, tmp_path / 'a')
    replay.add_episode(_episode(10, 7, 2))
    manifest = _save(replay, tmp_path / 'b')
    assert _same_future(replay, _loaded(tmp_path / 'b', manifest))


def _truncate(path):
    path.write_bytes(path.read_bytes()[:-9])


def _empty(path):
    path.write_bytes(b'')


def _flip(path):
    content = bytearray(path.read_bytes())
    content[len(content) // 2] ^= 4
    path.write_bytes(content)


def _fold(path):
    path.unlink()
    path.mkdir()


@pytest.mark.parametrize('damage', [_truncate, _empty, _flip, pathlib.Path.unlink, _fold])
def test_damaged_files(damage, tmp_path):
    replay = _filled(6)
    old = _save(replay, tmp_path)
    replay.add_episode(_episode(6, 9, 2))
    manifest = _save(replay, tmp_path)
    path = tmp_path / manifest['segments'][1]['file']
    damage(path)
    other = _filled(3, first=50, seed=8)
    with pytest.raises(ReplayDamagedError, match=str(path)):
        other.load(tmp_path, manifest)
    assert _numbers(other) == {50, 51, 52}
    other.load(tmp_path, old)
    assert _numbers(other) == set(range(6))


def test_a_file_that_changes_after_it_was_verified(tmp_path, monkeypatch):
    manifest = _save(_filled(6), tmp_path)
    path = tmp_path / manifest['segments'][0]['file']
    monkeypatch.setattr(replay_lib, '_verify', lambda *_: None)
    replay = _filled(3)
    for damage in (_flip, _truncate, _empty):
        damage(path)
        with pytest.raises(ReplayDamagedError, match=str(path)):
            replay.load(tmp_path, manifest)
        assert replay.num_episodes == replay.num_transitions == 0
    replay.add_episode(_episode(5, 5, 2))
    assert _numbers(replay) == {5}


def test_an_edited_manifest(tmp_path):
    replay = _filled(6)
    manifest = _save(replay, tmp_path)
    edits = [
        {'num_transitions': 5},
        {'first_id': 1},
        {'rng': replay_lib.np.random.default_rng(1).bit_generator.state},
        {'segments': manifest['segments'] * 2},
        {'segments': [{**manifest['segments'][0], 'file': '../elsewhere'}]},
        {'sha256': '0' * 64},
    ]
    for edit in edits:
        with pytest.raises(ReplayDamagedError, match=f'manifest of {tmp_path}'):
            replay.load(tmp_path, {**manifest, **edit})
    for other in ({}, None, []):
        with pytest.raises(ReplayDamagedError, match=f'manifest of {tmp_path}'):
            replay.load(tmp_path, other)
    assert _numbers(replay) == set(range(6))


def test_a_replay_of_another_kind(tmp_path):
    manifest = _save(_filled(6), tmp_path)
    for kwargs in ({'history': 3}, {'frame': (3, 2)}, {'dtype': np.int16}, {'capacity': 10}):
        with pytest.raises(
            ValueError, match='replay in .*(saved as|capacity_transitions)'
        ) as error:
            _loaded(tmp_path, manifest, **kwargs)
        assert not isinstance(error.value, ReplayDamagedError)


def test_a_full_disk(tmp_path):
    rng = np.random.default_rng(0)

    def noise(length):
        frames = rng.integers(256, size=(length + 1, 84, 84), dtype=np.uint8)
        return Episode(frames, np.zeros(length, int), np.zeros(length), np.ones(length))

    replay = _replay(1000, frame=(84, 84), dtype=np.uint8)
    replay.add_episode(noise(10))
    old = _save(replay, tmp_path)
    before = _files(tmp_path)
    replay.add_episode(noise(40))
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (150_000, hard))
    try:
        with pytest.raises(OSError) as error:
            replay.save(tmp_path)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
    assert error.value.filename.startswith(str(tmp_path / 'episodes-'))
    assert error.value.filename in str(error.value)
    assert _files(tmp_path) == before
    new = _save(replay, tmp_path)
    kind = {'capacity': 1000, 'history': 1, 'frame': (84, 84), 'dtype': np.uint8}
    assert _loaded(tmp_path, old, **kind).num_transitions == 10
    assert _same_future(replay, _loaded(tmp_path, new, **kind))


# Memory.

MEMORY_SCRIPT = """
import gc, json, sys, threading, time
import ob2i_tf
import numpy as np
from ob2i_tf.replay import EpisodeReplay
from ob2i_tf.types import Episode

def resident():
    with open('/proc/self/status') as status:
        return next(int(line.split()[1]) * 1024 for line in status if line.startswith('VmRSS'))

rng = np.random.default_rng(0)
frames = rng.integers(256, size=(84 * 84,), dtype=np.uint8).reshape(84, 84)
frames = np.repeat(frames[None], 2001, axis=0)

def add(replay, transitions):
    while transitions > 0:
        length = int(np.exp(rng.uniform(np.log(40), np.log(2000))))
        replay.add_episode(Episode(
            frames[:length + 1], np.zeros(length, int), np.zeros(length), np.ones(length)))
        transitions -= length

def new():
    return EpisodeReplay((84, 84), 20_000, history=4)

warm_up = new()
add(warm_up, 1)
warm_up.save(sys.argv[1] + '/warm_up')
warm_up.load(sys.argv[1] + '/warm_up', warm_up.save(sys.argv[1] + '/warm_up'))
warm_up.sample_episode()
del warm_up
gc.collect()
replay = new()
base, report = resident(), {}
for part in ('half', 'full'):
    add(replay, 10_000)
    report[part] = resident() - base
report['churn'] = []
for _ in range(3):
    add(replay, 20_000)
    report['churn'].append(resident() - base)
manifest = replay.save(sys.argv[1])
report['saved'] = resident() - base
report['frames'] = replay.num_transitions * 84 * 84
del replay
gc.collect()
replay = new()
base, peak, done = resident(), 0, False

def watch():
    global peak
    while not done:
        peak = max(peak, resident() - base)
        time.sleep(.002)

thread = threading.Thread(target=watch)
thread.start()
replay.load(sys.argv[1], manifest)
done = True
thread.join()
report.update(peak=peak, loaded=resident() - base)
print(json.dumps(report))
"""


def test_memory_is_that_of_the_frames(tmp_path):
    root = pathlib.Path(ob2i_tf.__file__).parents[1]
    output = subprocess.run(
        [sys.executable, '-W', 'ignore', '-c', MEMORY_SCRIPT, str(tmp_path)],
        cwd=root,
        capture_output=True,
        text=True,
        check=True,
    ).stdout
    report = json.loads(output.splitlines()[-1])
    assert report['full'] <= 0.18e9, report
    assert 0.4 * report['full'] < report['half'] < 0.65 * report['full'], report
    assert max(*report['churn'], report['saved']) <= 0.18e9, report
    assert report['peak'] <= 1.3 * report['loaded'] <= 1.3 * 0.18e9, report


def test_an_episode_that_does_not_fit_ends_a_run_in_one_line():
    with pytest.raises(EpisodeTooLongError, match='11 transitions .*capacity_transitions = 10'):
        _replay(capacity=10).add_episode(_episode(0, 11))
    assert issubclass(EpisodeTooLongError, UserError)


def test_exclusions_must_leave_an_episode():
    with pytest.raises(ValueError, match='capacity_episodes = 8 leaves no episode to draw'):
        _replay(capacity_episodes=8, exclude_oldest_episodes=5, exclude_newest_episodes=3)
    _replay(capacity_episodes=9, exclude_oldest_episodes=5, exclude_newest_episodes=3)
