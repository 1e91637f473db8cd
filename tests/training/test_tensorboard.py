"""What TensorBoard shows beside the rows of a run."""

import io

import numpy as np
import pytest
from PIL import Image
from tensorboard.backend.event_processing.event_accumulator import EventAccumulator
from tensorboard.plugins.hparams import plugin_data_pb2

from ob2i_tf.training import logs, tensorboard
from tests.processes import start
from tests.training.test_runner import ATARI, all_rows, arguments, events


def read(folder):
    return EventAccumulator(str(folder), {'images': 0, 'tensors': 0}).Reload()


def test_a_file_grows_and_a_resume_replaces_it(tmp_path):
    board = tensorboard.TensorBoard(tmp_path, 0)
    for iteration, frames in ((0, 10), (0, 20), (1, 30), (1, 40)):
        board.write(iteration, frames, tensorboard.scalars({'a': float(frames), 'b': np.nan}))
    board = tensorboard.TensorBoard(tmp_path, 1)
    board.write(1, 35, tensorboard.scalars({'a': 1.0}))
    assert [event.step for event in read(tmp_path).Scalars('a')] == [10, 20, 35]
    assert read(tmp_path).Tags()['scalars'] == ['a']


def test_the_configuration_is_written_once(tmp_path):
    for rate in (0.5, 0.25):  # The second time as in a resumed run.
        board = tensorboard.TensorBoard(tmp_path, 0)
        bound = f"adam.learning_rate = {rate}\nRunner.xla = ('acting',)\nmake.name = 'Pong'\n"
        board.write_configuration(f'import mine\n\n{bound}a.b = None\n', bound)
    board.write(0, 10, tensorboard.scalars({'a': 1.0}))
    shown = read(tmp_path)
    (text,) = shown.Tensors('configuration')
    assert b'    adam.learning_rate = 0.25\n' in text.tensor_proto.string_val[0]
    assert b'    a.b = None' in text.tensor_proto.string_val[0]
    content = shown.SummaryMetadata('_hparams_/session_start_info').plugin_data.content
    found = plugin_data_pb2.HParamsPluginData.FromString(content).session_start_info.hparams
    assert found['adam.learning_rate'].number_value == 0.25
    assert found['make.name'].string_value == 'Pong'
    assert found['Runner.xla'].string_value == "('acting',)" and len(found) == 3
    assert sorted(path.name for path in tmp_path.iterdir())[0].endswith('-configuration.ob2i_tf')


@pytest.mark.parametrize('length, stride', [(5, 1), (650, 4)])  # 650 -> 325 -> 163 frames.
def test_a_film_has_the_first_game_of_the_first_environment(length, stride):
    recording, rng = tensorboard.GameRecording(), np.random.default_rng(0)
    frames = rng.integers(0, 256, (length + 3, 2, 12, 10), dtype=np.uint8)
    for index, pair in enumerate(frames):
        recording.add(pair, np.array([index == length - 1, index == 1]))
    (value,) = recording.values('game')
    picture = Image.open(io.BytesIO(value.image.encoded_image_string))
    assert picture.n_frames == -(-length // stride) and picture.size == (10, 12)
    picture.seek(picture.n_frames - 1)
    last = frames[(picture.n_frames - 1) * stride, 0]
    np.testing.assert_array_equal(np.asarray(picture.convert('L')), last & 0xF0)


def test_what_is_no_picture_is_not_filmed():
    recording = tensorboard.GameRecording()
    for frames in (np.zeros((1, 4), np.uint8), np.zeros((1, 4, 4)), np.zeros((1, 4, 4, 3), 'u1')):
        recording.add(frames, np.array([False]))
    assert recording.values('game') == []


def test_histograms_leave_out_what_is_not_finite():
    (value,) = tensorboard.histograms({'a': [1.0, 2.0, np.nan, np.inf], 'b': [], 'c': [np.nan]})
    assert value.tag == 'a'
    buckets = np.frombuffer(value.tensor.tensor_content).reshape(-1, 3)
    assert buckets[:, 2].sum() == 2 and buckets[0, 0] == 1 and buckets[-1, 1] == 2


def _points_at_every_step():
    logs._RECENT_SECONDS = 0


def _run(base_dir, stop_at=None, before=(_points_at_every_step,)):
    process = start(arguments(base_dir, ATARI), before=before, stop_at=stop_at)
    process.join(timeout=300)
    return process.exitcode


def test_points_between_iterations_change_nothing_and_a_resume_shows_none_twice(tmp_path):
    one, other = tmp_path / 'one', tmp_path / 'other'
    assert _run(one, before=()) == 0
    assert _run(other, stop_at=75) == 143
    assert _run(other) == 0
    assert all_rows(one) == all_rows(other)
    scalars = events(other)
    recent = {tag: scalars.pop(tag) for tag in list(scalars) if tag.startswith('recent/')}
    assert scalars == events(one)
    assert set(recent) == {
        f'recent/{name}'
        for name in ('score', 'episode_length', 'loss', 'q_mean', 'bonus_mean', 'next_bonus_mean')
    } | {'recent/epsilon'}
    # A point per agent step, except for those of the second iteration before the resume at 75.
    steps = [step // 4 for step, _ in recent['recent/epsilon']]
    assert steps == [*range(1, 61), *range(76, 181)]
    assert len(recent['recent/loss']) == 38 - 3  # Learner steps, as in train.csv.
    shown = read(other / 'tensorboard')
    films = shown.Images('eval/game')
    assert [film.step for film in films] == [240, 480, 720]
    picture = Image.open(io.BytesIO(films[0].encoded_image_string))
    assert picture.size == (84, 84) and picture.n_frames > 1  # Equal ones are one.
    for name in ('q_mean', 'bonus_mean', 'next_bonus_mean'):
        assert [e.step for e in shown.Tensors(f'learner_steps/{name}')] == [240, 480, 720]
    buckets = np.frombuffer(shown.Tensors('learner_steps/q_mean')[2].tensor_proto.tensor_content)
    assert buckets.reshape(-1, 3)[:, 2].sum() == 15  # The learner steps of an iteration.
    assert len(shown.Tensors('configuration')) == 1
