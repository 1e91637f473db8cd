"""The study of the released code: its verdicts follow from its numbers, and its adapters are thin.

The authors' code is not here; the command itself is the comparison with it.
"""

import contextlib
import csv
import re

import numpy as np
import pytest

from experiments.released_code import __main__ as study
from experiments.released_code import differences, side, theirs
from ob2i_tf.environments.atari import make_atari


@pytest.fixture(scope='module')
def rows():
    with open(study.HERE / 'differences.csv', newline='') as file:
        return list(csv.DictReader(file))


def test_the_verdicts_follow_from_the_numbers(rows):
    for row in rows:
        assert float(row['unexplained']) <= float(row['bound']), row
        verdict = differences.BY_DESIGN if row['reason'] else differences.EQUAL
        assert row['verdict'] == verdict and (
            row['reason'] or row['unexplained'] == row['relative']
        )


def test_the_readme_has_the_numbers_of_the_table(rows):
    text = (study.HERE / 'README.md').read_text()
    equal = [float(r['relative']) for r in rows if r['verdict'] == differences.EQUAL]
    design = [float(r['relative']) for r in rows if r['verdict'] == differences.BY_DESIGN]
    found = re.search(
        r'Of the (\d+) quantities .*?, (\d+) are equal .*? other (\d+) differ', text, re.S
    )
    assert [int(x) for x in found.groups()] == [len(rows), len(equal), len(design)]
    assert max(equal) <= 1e-5
    by_design = text.partition('| differs by design |')[2].partition('## Details')[0]
    shown = [float(line.split('|')[2]) for line in by_design.splitlines()[2:] if line]
    assert sorted(shown) == pytest.approx(sorted(design), rel=0.5)


def test_a_difference_by_hand():
    row = differences.compare('y', '', [1.0, -4.0], [1.0, -3.0], 0.1)
    assert row[2:7] == (1.0, 0.25, 0.25, 0.1, differences.DIFFERS)
    row = differences.compare('y', '', [1.0, -4.0], [1.0, -3.0], 0.1, [1.0, -4.2], 'known')
    assert row[2:4] == (1.0, 0.25) and row.unexplained == pytest.approx(0.05)
    assert row.verdict == differences.BY_DESIGN
    assert differences.compare('y', '', [2.0], [2.0]).verdict == differences.EQUAL
    assert differences.compare('y', '', [2.0], [2.0, 3.0]).verdict == differences.DIFFERS
    assert differences.compare('y', '', [np.nan], [2.0], 0.1).verdict == differences.DIFFERS


def test_a_command_without_a_clone_ends_in_one_line(tmp_path, capsys):
    command = [f'--repo={tmp_path}', f'--baselines={tmp_path}', f'--out={tmp_path / "out"}']
    assert study.main(command) == 1
    assert 'holds no deepq_learner.py' in capsys.readouterr().err
    assert not (tmp_path / 'out').exists()


def test_the_defaults_of_a_command_line(tmp_path):
    (tmp_path / 'run_atari.py').write_text(
        'import nothing\n'
        "parser.add_argument('--some-steps', type=int, default=int(2e6))\n"
        "parser.add_argument('--env', default='Pong')\n"
        'learn(env, gamma=0.9, lr=args.lr)\n'
    )
    expected = {'some_steps': 2_000_000, 'env': 'Pong', 'gamma': 0.9}
    assert theirs.defaults(tmp_path) == expected


def test_the_old_interface_shows_the_same_games():
    """A life loss ends an episode, after which `reset` shows what is already on the screen."""
    actions = np.random.default_rng(0).integers(4, size=400)
    with (
        contextlib.closing(make_atari('Breakout', 1, 0, restart_stack_on_life_loss=True)) as env,
        contextlib.closing(make_atari('Breakout', 1, 0, restart_stack_on_life_loss=True)) as same,
    ):
        old = theirs.OldEnvironment(same, 400)
        observations = env.reset()[0]
        np.testing.assert_array_equal(old.reset(), observations[0])
        games = lives = 0
        for action in actions:
            observations, rewards, terminated, _, info = env.step(np.array([action]))
            obs, reward, done, _ = old.step(action)
            np.testing.assert_array_equal(obs, info['final_obs'][0])
            np.testing.assert_array_equal(old.reset(), observations[0])
            assert (reward, done) == (rewards[0], terminated[0])
            assert old.was_real_done == info['game_over'][0]
            games, lives = games + old.was_real_done, lives + done
        assert lives > games > 0 and old.steps == 400
        with pytest.raises(theirs.Finished):
            old.step(0)


def test_our_side_takes_a_learner_step_every_fourth_agent_step(clean_gin, monkeypatch):
    monkeypatch.setattr(side.logging, 'set_verbosity', lambda level: None)  # It would stay.
    bindings = [*study.SPEED_BINDINGS, 'Agent.learning_starts = 400', 'linear.steps = 0']
    bindings += ['MultiHeadQNetwork.hidden_units = 8']
    result = side.speed('ours', (), study.GIN_FILES['small'], bindings, timed_steps=100)
    assert dict(zip(side.SPEED_COLUMNS, result))['learner_steps'] == 25


def test_errors_of_a_new_process_end_in_one_line(tmp_path, capsys):
    command = [f'--repo={tmp_path}', f'--baselines={tmp_path}', f'--out={tmp_path}', '--curves']
    assert study.main([*command, '--gin_bindings', 'Runner.seed = -1']) == 2
    error = capsys.readouterr().err
    assert error.count('\n') == 1 and 'Runner.seed' in error
