"""A game of a real, tiny run is recorded, and its folder stays as it was."""

import shutil

import numpy as np
import pytest

import gin
from ob2i_tf.analysis import episode
from tests.test_runner import newest, run

STEPS = 25


@pytest.fixture(scope='module')
def folder(tmp_path_factory):
    base = tmp_path_factory.mktemp('episode') / 'run'
    run(base, Runner__num_iterations=2)
    return base


@pytest.fixture(autouse=True)
def clean_gin():
    yield
    gin.clear_config()


def files(folder):
    return {
        str(p): (p.stat().st_mtime_ns, p.stat().st_size) for p in folder.rglob('*') if p.is_file()
    }


def test_a_game_is_recorded_without_touching_the_run(folder, tmp_path):
    import tensorflow as tf

    before = files(folder)
    game = episode.record(folder, max_steps=STEPS)
    assert files(folder) == before
    assert game.q_values.shape == (STEPS, 3, 4) and len(game.frames) == STEPS
    chosen = game.q_values[np.arange(STEPS), :, game.actions]
    np.testing.assert_allclose(game.bonuses, chosen.std(axis=1), rtol=1e-4, atol=1e-6)
    assert (game.votes.sum(axis=1) == 3).all()
    taken = game.votes[np.arange(STEPS), game.actions]
    assert (game.random | (taken == game.votes.max(axis=1))).all()
    assert game.action_names == ('NOOP', 'FIRE', 'RIGHT', 'LEFT')
    again = episode.record(folder, max_steps=STEPS)
    np.testing.assert_array_equal(again.q_values, game.q_values)
    other = episode.record(folder, seed=1, max_steps=STEPS)
    assert not np.array_equal(other.q_values, game.q_values)

    from ob2i_tf import runner

    saved = tf.train.load_checkpoint(str(newest(folder) / 'variables'))
    kernels = [saved.get_tensor(name) for name in saved.get_variable_to_shape_map()]
    for variable in runner.learnt(folder).posterior.network.trainable_variables:
        assert any(np.array_equal(variable.numpy(), kernel) for kernel in kernels)


def test_a_damaged_checkpoint_is_skipped_and_none_is_an_error(folder, tmp_path, capsys):
    copy = tmp_path / 'copy'
    shutil.copytree(folder, copy)
    (newest(copy) / 'state.json').write_text('{}')
    assert len(episode.record(copy, max_steps=3).actions) == 3
    shutil.rmtree(copy / 'checkpoints')
    for path, says in ((copy, 'no whole checkpoint'), (tmp_path, 'no run folder')):
        assert episode.main([str(path), '--out', str(tmp_path / 'out')]) == 1
        error = capsys.readouterr().err.splitlines()[-1]
        assert error.startswith('error: ') and says in error
