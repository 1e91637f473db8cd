"""Replay on disk: saved episodes are restored, or an error explains why not."""

import ast
import gc
import io
import json
import pathlib
import resource
import subprocess
import sys
import threading

import numpy as np
import pytest
from backports.zstd import zipfile

import ob2i_tf
from ob2i_tf.training import disk, episode_files
from ob2i_tf.training.episode_files import EpisodeFiles, ReplayDamagedError
from ob2i_tf.types import Episode
from tests.episodes import first_ids, make_episode, make_replay, numbers_in, same_future


def _filled(directory, numbers=20, seed=0, first=0, history=2, capacity=200):
    """EpisodeFiles of a new replay with some episodes."""
    replay = make_replay(capacity, history, seed)
    for number in range(first, first + numbers):
        replay.add_episode(make_episode(number, 3 + number % 17, history))
    return EpisodeFiles(directory, replay)


def _save(files):
    return json.loads(json.dumps(files.save()))


def _loaded(directory, manifest, **kwargs):
    """EpisodeFiles of a new replay that was restored."""
    files = EpisodeFiles(
        directory, make_replay(**{'capacity': 200, 'history': 2, 'seed': 99, **kwargs})
    )
    files.load(manifest)
    return files


def _contents(directory):
    return {path.name: path.read_bytes() for path in directory.iterdir()}


def _arrays(path):
    """{name: array} of a segment, as `np.load` reads it from Python 3.14 on."""
    with zipfile.ZipFile(path) as archive:
        return {
            pathlib.Path(name).stem: np.load(io.BytesIO(archive.read(name)), allow_pickle=False)
            for name in archive.namelist()
        }


def _as_format_2(directory, manifest):
    """The manifest of the same replay with deflated segments, as version 1.0 wrote it."""
    segments = []
    for segment in manifest['segments']:
        arrays = _arrays(directory / segment['file'])
        old = directory / segment['file'].replace('.npz', '-deflated.npz')
        np.savez_compressed(old, **arrays)
        segments.append({**segment, **disk.fingerprint(old), 'file': old.name})
    return {**manifest, 'format': 2, 'segments': segments, 'sha256': 'of version 1.0'}


def test_what_was_saved_comes_back_and_goes_on_alike(tmp_path):
    files = _filled(tmp_path, 60)
    replay = files.replay
    replay.sample_transitions(3)
    restored = _loaded(tmp_path, _save(files))
    other = restored.replay
    assert other.num_transitions == replay.num_transitions
    assert other.num_episodes == replay.num_episodes < 60
    assert other.first_episode == replay.first_episode == 60 - replay.num_episodes
    assert other.first_transition == replay.first_transition
    assert same_future(replay, other)
    for number in range(60, 90):  # The order of leaving, and files beside those of others.
        for each in (replay, other):
            each.add_episode(make_episode(number, 9, 2))
    assert same_future(replay, other)
    assert _save(files) == _save(restored)


def test_a_loaded_episode_tells_the_ids_of_its_transitions(tmp_path):
    replay = make_replay(50, 2)
    for number, length in enumerate([20, 7, 1, 30, 11, 3]):
        replay.add_episode(make_episode(number, length, 2))
    manifest = _save(EpisodeFiles(tmp_path, replay))
    other = _loaded(tmp_path, manifest, capacity=50).replay
    assert first_ids(other) == {2: 27, 3: 28, 4: 58, 5: 69}


def test_an_episode_is_written_once(tmp_path):
    files = _filled(tmp_path, 5)
    first = _save(files)
    before = {path: path.stat().st_mtime_ns for path in tmp_path.iterdir()}
    assert len(before) == 1
    files.replay.sample_episode()
    second = _save(files)
    assert second['segments'] == first['segments'] and second['rng'] != first['rng']
    files.replay.add_episode(make_episode(5, 4, 2))
    third = _save(files)
    assert third['segments'][:1] == first['segments'] and len(third['segments']) == 2
    assert _arrays(tmp_path / third['segments'][1]['file'])['lengths'].tolist() == [4]
    assert {path: path.stat().st_mtime_ns for path in before} == before
    assert _save(_loaded(tmp_path, third)) == third
    assert len(list(tmp_path.iterdir())) == 2
    counts = [_loaded(tmp_path, m).replay.num_episodes for m in (first, second, third)]
    assert counts == [5, 5, 6]


def test_segments_are_plain_arrays_in_a_compressed_archive(tmp_path):
    (segment,) = _save(_filled(tmp_path, 4))['segments']
    path = tmp_path / segment['file']
    assert path.stat().st_size == segment['bytes']
    assert (segment['first_id'], segment['last_id']) == (0, 3)
    with zipfile.ZipFile(path) as archive:
        assert archive.testzip() is None
        assert {i.compress_type for i in archive.infolist()} == {zipfile.ZIP_ZSTANDARD}
    arrays = _arrays(path)
    assert arrays['lengths'].tolist() == [3, 4, 5, 6]
    assert np.array_equal(arrays['frames'][:5, 0, 0], [-1, 0, 1, 2, 3])
    assert arrays['steps']['action'].tolist()[:5] == [0, 1, 2, 1000, 1001]
    source = ast.parse(pathlib.Path(episode_files.__file__).read_text())
    allowed = [
        k.value.value
        for n in ast.walk(source)
        if isinstance(n, ast.Call)
        for k in n.keywords
        if k.arg == 'allow_pickle'
    ]
    assert allowed and not any(allowed)


def test_files_of_version_1_0_stay_beside_new_ones(tmp_path):
    files = _filled(tmp_path, 6)
    old = _as_format_2(tmp_path, _save(files))
    restored = _loaded(tmp_path, old)
    assert same_future(files.replay, _loaded(tmp_path, old).replay)
    restored.replay.add_episode(make_episode(6, 9, 2))
    new = _save(restored)
    assert (old['format'], new['format']) == (2, 3)
    assert new['segments'][:1] == old['segments'] and len(new['segments']) == 2
    assert same_future(restored.replay, _loaded(tmp_path, new).replay)
    _flip(tmp_path / old['segments'][0]['file'])
    with pytest.raises(ReplayDamagedError, match=old['segments'][0]['file']):
        _loaded(tmp_path, new)


def test_episodes_of_many_files_come_back_in_order(tmp_path, monkeypatch):
    monkeypatch.setattr(episode_files, '_SEGMENT_BYTES', 1000)
    files = _filled(tmp_path, 100, capacity=600)
    manifest = _save(files)
    assert len(manifest['segments']) > 2 * episode_files._THREADS
    restored = _loaded(tmp_path, manifest, capacity=600).replay
    assert [restored.episode(i)[1].tolist() for i in range(restored.num_episodes)] == [
        files.replay.episode(i)[1].tolist() for i in range(files.replay.num_episodes)
    ]
    assert same_future(files.replay, restored)


def test_files_are_unpacked_a_few_ahead(tmp_path, monkeypatch):
    monkeypatch.setattr(episode_files, '_SEGMENT_BYTES', 1000)
    manifest = _save(_filled(tmp_path, 100, capacity=600))
    first, started, many = manifest['segments'][0], [], threading.Event()
    read = EpisodeFiles._read_segment

    def counted(self, segment):
        started.append(segment)
        if len(started) > episode_files._THREADS:
            many.set()
        if segment == first:
            assert not many.wait(0.5)  # Nothing is appended meanwhile.
        return read(self, segment)

    monkeypatch.setattr(EpisodeFiles, '_read_segment', counted)
    _loaded(tmp_path, manifest, capacity=600)
    assert len(started) == len(manifest['segments'])


def test_headers_are_parsed_by_one_thread_at_a_time(tmp_path, monkeypatch):
    monkeypatch.setattr(episode_files, '_SEGMENT_BYTES', 1000)
    manifest = _save(_filled(tmp_path, numbers=100, capacity=2000))
    assert len(manifest['segments']) > 30
    collections = []

    def switch_threads(*_):
        for i in range(50):
            collections.append(i)

    threshold, interval = gc.get_threshold(), sys.getswitchinterval()
    try:
        gc.callbacks.append(switch_threads)
        gc.set_threshold(20, 2, 2)
        sys.setswitchinterval(1e-6)
        for _ in range(12):
            assert _loaded(tmp_path, manifest, capacity=2000).replay.num_episodes == 100
    finally:
        gc.callbacks.pop()
        gc.set_threshold(*threshold)
        sys.setswitchinterval(interval)
    assert collections


def test_flush_writes_whole_segments_ahead(tmp_path, monkeypatch):
    monkeypatch.setattr(episode_files, '_SEGMENT_BYTES', 1000)
    files = EpisodeFiles(tmp_path, make_replay(2000, history=2))
    twin = EpisodeFiles(tmp_path / 'twin', make_replay(2000, history=2))
    for number in range(50):
        for each in (files, twin):
            each.replay.add_episode(make_episode(number, 20, 2))
        files.flush()
    ahead = _contents(tmp_path)
    assert len(ahead) == 25  # 2 episodes each.
    for each in (files, twin):
        each.replay.add_episode(make_episode(50, 20, 2))
    files.flush()
    assert _contents(tmp_path) == ahead
    files.prune([])  # Keeps the files on which the next save relies.
    assert _contents(tmp_path) == ahead
    manifest = _save(files)
    assert len(manifest['segments']) == 26
    assert _save(twin)['segments'] == manifest['segments']
    assert same_future(files.replay, _loaded(tmp_path, manifest, capacity=2000).replay)


def test_prune_keeps_what_the_kept_checkpoints_need(tmp_path):
    files, manifests = _filled(tmp_path, 10), []
    for number in range(10, 40, 5):
        for i in range(5):
            files.replay.add_episode(make_episode(number + i, 13, 2))
        manifests.append(_save(files))
        (tmp_path / f'episodes-{number}.tmp').write_bytes(b'left by a killed run')
        (tmp_path / 'notes.txt').write_bytes(b'not of the replay')
        kept = manifests[-2:]
        files.prune(kept)
        expected = {segment['file'] for m in kept for segment in m['segments']}
        assert {path.name for path in tmp_path.iterdir()} == expected | {'notes.txt'}
        for manifest in kept:
            restored = _loaded(tmp_path, manifest).replay
            assert restored.num_transitions == manifest['num_transitions']
    assert len(expected) < 7  # Files whose episodes all left are gone.


def test_an_older_checkpoint_and_then_another_future(tmp_path):
    files = _filled(tmp_path, 10)
    old = _save(files)
    files.replay.add_episode(make_episode(10, 7, 2))
    newer = _save(files)
    other = _loaded(tmp_path, old)
    other.replay.add_episode(make_episode(77, 7, 2))
    another = _save(other)
    assert another['segments'][1]['first_id'] == newer['segments'][1]['first_id']
    assert 77 in numbers_in(_loaded(tmp_path, another).replay)
    assert 77 not in numbers_in(_loaded(tmp_path, newer).replay)
    other.prune([another])
    assert 77 in numbers_in(_loaded(tmp_path, another).replay)
    with pytest.raises(ReplayDamagedError, match=newer['segments'][1]['file']):
        _loaded(tmp_path, newer)


def test_another_directory_gets_everything(tmp_path):
    files = _filled(tmp_path / 'a', 10)
    _save(files)
    files.replay.add_episode(make_episode(10, 7, 2))
    manifest = _save(EpisodeFiles(tmp_path / 'b', files.replay))
    assert same_future(files.replay, _loaded(tmp_path / 'b', manifest).replay)


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
    files = _filled(tmp_path, 6)
    old = _save(files)
    files.replay.add_episode(make_episode(6, 9, 2))
    manifest = _save(files)
    path = tmp_path / manifest['segments'][1]['file']
    damage(path)
    other = _filled(tmp_path, 3, first=50, seed=8)
    with pytest.raises(ReplayDamagedError, match=str(path)):
        other.load(manifest)
    assert numbers_in(other.replay) == {50, 51, 52}
    other.load(old)
    assert numbers_in(other.replay) == set(range(6))


def test_a_file_that_changes_after_it_was_verified(tmp_path, monkeypatch):
    manifest = _save(_filled(tmp_path, 6))
    path = tmp_path / manifest['segments'][0]['file']
    monkeypatch.setattr(episode_files, '_verify', lambda *_: None)
    files = _filled(tmp_path, 3)
    for damage in (_flip, _truncate, _empty):
        damage(path)
        with pytest.raises(ReplayDamagedError, match=str(path)):
            files.load(manifest)
        assert files.replay.num_episodes == files.replay.num_transitions == 0
    files.replay.add_episode(make_episode(5, 5, 2))
    assert numbers_in(files.replay) == {5}


def test_too_little_memory_is_no_damage(tmp_path, monkeypatch):
    def no_memory(length):
        raise MemoryError(f'no bytes for {length} frames')

    manifest, files = _save(_filled(tmp_path, 6)), _filled(tmp_path, 3)
    with monkeypatch.context() as patch, pytest.raises(MemoryError):
        patch.setattr(files.replay, 'new_frames', no_memory)
        files.load(manifest)
    assert files.replay.num_episodes == files.replay.num_transitions == 0
    files.load(manifest)
    assert numbers_in(files.replay) == set(range(6))


def test_files_of_another_manifest(tmp_path):
    files = _filled(tmp_path, 6)
    manifest = _save(files)
    for edit in ({'num_transitions': 5}, {'first_id': 1}):
        with pytest.raises(ReplayDamagedError, match=f'{tmp_path} do not match the manifest'):
            files.load({**manifest, **edit})
        assert files.replay.num_episodes == 0
    files.load(manifest)
    assert numbers_in(files.replay) == set(range(6))


def test_a_replay_of_another_kind(tmp_path):
    manifest = _save(_filled(tmp_path, 6))
    for kwargs in ({'history': 3}, {'frame': (3, 2)}, {'dtype': np.int16}, {'capacity': 10}):
        with pytest.raises(
            ValueError, match='replay in .*(saved as|capacity_transitions)'
        ) as error:
            _loaded(tmp_path, manifest, **kwargs)
        assert not isinstance(error.value, ReplayDamagedError)
    for other in (1, 4):
        with pytest.raises(ValueError, match=rf"saved as .'format': {other},.* not .'format': 3,"):
            _loaded(tmp_path, {**manifest, 'format': other})


def test_a_full_disk(tmp_path):
    rng = np.random.default_rng(0)

    def noise(length):
        frames = rng.integers(256, size=(length + 1, 84, 84), dtype=np.uint8)
        return Episode(frames, np.zeros(length, int), np.zeros(length), np.ones(length))

    kind = {'capacity': 1000, 'history': 1, 'frame': (84, 84), 'dtype': np.uint8}
    files = EpisodeFiles(tmp_path, make_replay(**kind))
    files.replay.add_episode(noise(10))
    old = _save(files)
    before = _contents(tmp_path)
    files.replay.add_episode(noise(40))
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (150_000, hard))
    try:
        with pytest.raises(OSError) as error:
            files.save()
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
    assert error.value.filename.startswith(str(tmp_path / 'episodes-'))
    assert error.value.filename in str(error.value)
    assert _contents(tmp_path) == before
    new = _save(files)
    assert _loaded(tmp_path, old, **kind).replay.num_transitions == 10
    assert same_future(files.replay, _loaded(tmp_path, new, **kind).replay)


MEMORY_SCRIPT = """
import gc, json, sys, threading, time
import ob2i_tf
import numpy as np
from ob2i_tf.replay import EpisodeReplay
from ob2i_tf.training.episode_files import EpisodeFiles
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
files = EpisodeFiles(sys.argv[1] + '/warm_up', warm_up)
files.load(files.save())
warm_up.sample_episode()
del warm_up, files
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
files = EpisodeFiles(sys.argv[1], replay)
manifest = files.save()
report['saved'] = resident() - base
report['frames'] = replay.num_transitions * 84 * 84
del replay, files
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
EpisodeFiles(sys.argv[1], replay).load(manifest)
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
