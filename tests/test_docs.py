"""The examples in docs/ work exactly as printed, and the reference is complete."""

import ast
import importlib
import importlib.util
import re
import subprocess
import sys

import numpy as np
import pytest

import ob2i_tf
from ob2i_tf import config, sweep, targets
from ob2i_tf.analysis import __main__ as analysis
from ob2i_tf.analysis import episode
from ob2i_tf.training import run_folder, runner  # noqa: F401, which registers all parts
from tests.markdown import ROOT, SHORT, bound_by, code_blocks, commands, read, rows, run, train

PAGES = sorted(path.relative_to(ROOT).as_posix() for path in ROOT.glob('docs/*.md'))
COMMANDS = [
    words for path in sorted(ROOT.glob('docs/**/*.md')) for words in commands(path.read_text())
]
ABLATION = {  # The last folder of a command's --base_dir -> the gin file of that method.
    'ob2i': 'ob2i_atari.gin',
    'bootdqn_ucb': 'bootdqn_ucb_atari.gin',
    'bebu': 'bebu_atari.gin',
    'bootdqn': 'bootdqn_atari.gin',
    'bebu_rnd': 'bebu_rnd_atari.gin',
}


def test_every_gin_file_has_its_method():
    named = set(re.findall(r'`(\w+\.gin)`', read('docs/methods.md')))
    assert named == set(config.available())


def test_the_ablation_is_one_command_with_other_bindings(clean_gin):
    seen = {}
    for arguments in commands(read('docs/methods.md')):
        (base_dir,) = [a for a in arguments if 'base_dir' in a] or ['']
        if 'runs/ablation/' in base_dir:
            files, bindings = bound_by(arguments)
            assert files == ['ob2i_atari.gin']
            config.load(files, bindings)
            seen[base_dir.rpartition('/')[2]] = config.resolved_config()
    assert set(seen) == set(ABLATION)
    for name, file in ABLATION.items():
        config.load([file])
        assert seen[name] == config.resolved_config()


def test_the_way_to_explore_trains(tmp_path):
    text = read('docs/extending.md')
    (module,), (file,) = code_blocks('python', text), code_blocks('gin', text)
    assert 'ob2i-tf --gin_files=softmax.gin' in text
    saved = train(tmp_path, 'softmax', module, file, SHORT)
    assert 'import softmax' in saved
    assert 'Agent.preferences = @softmax_preferences' in saved


def test_the_tutorial(tmp_path, monkeypatch, capsys, clean_gin):
    """All its commands, in order, with a smaller network and shorter iterations."""
    text = read('docs/tutorial.md')
    table, error = code_blocks('text', text)
    train, extend, no_bonus, wrong, sweep_of, report, viewer, _atari = commands(text)
    short = {
        'Runner.training_steps': 60,
        'MultiHeadQNetwork.hidden_units': 8,
        'Agent.learning_starts': 40,
        'batch_size': 16,
    }
    assert run(train, tmp_path, short)[0] == 0
    (cut,) = (line for line in code_blocks('', text) if line.startswith('cut '))
    shown = subprocess.run(cut, shell=True, cwd=tmp_path, capture_output=True, text=True).stdout
    assert shown.splitlines()[0] == table.splitlines()[0]
    assert len(shown.splitlines()) == len(table.splitlines())

    assert run(extend, tmp_path, short, stop_at=270)[0] == 128 + 15
    assert run(extend, tmp_path, short)[0] == 0
    runs = tmp_path / 'runs' / 'tutorial'
    assert [row['iteration'] for row in rows(runs / 'ob2i')] == list('012345')

    assert run(no_bonus, tmp_path, short)[0] == 0
    config.load(['bebu_deep_sea.gin'], bound_by(train)[1])
    expected = config.resolved_config()
    config.load(*bound_by(no_bonus))
    assert config.resolved_config() == expected
    assert rows(runs / 'no_bonus')[-1]['bonus_mean'] == '0.0'

    status, stderr = run(wrong, tmp_path)
    assert (status, stderr.splitlines()[-1]) == (2, error.strip())

    monkeypatch.chdir(tmp_path)
    assert sweep.main([*sweep_of[2:], '--print']) == 0  # tests/test_sweep.py runs sweeps.
    assert capsys.readouterr().out.count('--base_dir=runs/tutorial/seeds/') == 6
    (runs / 'seeds').mkdir()
    for name in ('ob2i', 'no_bonus'):
        (runs / 'seeds' / name).symlink_to(runs / name)
    assert analysis.main(report[2:]) == 0
    page = (tmp_path / 'report' / 'report.html').read_text()
    assert 'OB2I' in page and 'BEBU' in page
    assert episode.main(viewer[2:]) == 0
    assert list((tmp_path / 'viewer').glob('*.html'))


def commands_of(module):
    return [words[2:] for words in COMMANDS if words[1:2] == [module]]


@pytest.mark.parametrize('arguments', commands_of('ob2i_tf.sweep'), ids=' '.join)
def test_every_sweep_that_is_shown_is_accepted(arguments, capsys, clean_gin):
    arguments = [word.replace('atari49', 'Pong') for word in arguments if word != '--print']
    assert sweep.main([*arguments, '--print']) == 0
    assert capsys.readouterr().out.count('--gin_files=') > 3


MODULES = {
    words[1]
    for words in COMMANDS
    if words[0] == '-m' and words[1] not in ('pytest', 'docs.tools.pictures')
}


@pytest.mark.parametrize('module', sorted(MODULES))
def test_every_flag_that_is_shown_exists(module, capsys, monkeypatch):
    """The commands themselves run in the tests of their modules."""
    name = module if importlib.util.find_spec(module).submodule_search_locations is None else ''
    main = importlib.import_module(name or f'{module}.__main__').main
    monkeypatch.setattr(sys, 'argv', [module, '--help'])
    with pytest.raises(SystemExit):
        main()
    known = capsys.readouterr().out
    for words in commands_of(module):
        flags = [word.partition('=')[0] for word in words if word.startswith('--')]
        assert [flag for flag in flags if not re.search(rf'{flag}\b', known)] == []


@pytest.mark.parametrize('greedy', targets.GREEDY_READINGS)
def test_the_example_by_hand_is_what_the_code_computes(greedy):
    text = read('docs/algorithm.md')
    tables = [
        [[cell.strip() for cell in line.strip('|').split('|')] for line in table.splitlines()]
        for table in re.findall(r'(?:^\|.*\n)+', text, re.M)
    ]

    def table_with(first):
        (found,) = (rows for rows in tables if rows[0][0] == first)
        return found[2:]

    def numbers(cell):
        return [float(number) for number in cell.split(',')]

    given = [list(map(numbers, row)) for row in table_with('t')]
    _, actions, rewards, reward_bonus = np.array([row[:4] for row in given])[..., 0].T
    next_q = np.array([row[4:6] for row in given], np.float32)
    next_bonus = np.array([row[6] for row in given])
    np.testing.assert_allclose(ob2i_tf.bonuses.ensemble_std(next_q), next_bonus, atol=1e-7)
    (expected,) = (
        list(map(numbers, row[1:]))
        for row in table_with('y of heads 1 and 2')
        if row[0].startswith(f"`'{greedy}'`")
    )
    y = targets.backward_induction(
        rewards,
        [0.9, 0.9, 0.0],
        actions,
        next_q,
        reward_bonus,
        next_bonus,
        beta=0.5,
        alpha_1=1.0,
        alpha_2=1.0,
        greedy=greedy,
    )
    np.testing.assert_allclose(y, expected, rtol=0, atol=1e-6)
    (block,) = code_blocks('python', text)
    names: dict = {}
    exec(block.replace("greedy='initial'", f'greedy={greedy!r}'), names)
    np.testing.assert_allclose(names['y'], expected, rtol=0, atol=1e-6)


def test_the_python_of_the_reference_runs():
    (block,) = code_blocks('python', read('docs/api/index.md'))
    names: dict = {}
    exec(block, names)
    assert names['env'].num_envs == 2
    names['env'].close()


def test_these_are_all_blocks_that_need_a_test():
    found = {page: len(code_blocks('python', read(page))) for page in PAGES}
    assert {page for page, count in found.items() if count} == {
        'docs/algorithm.md',
        'docs/extending.md',
        'docs/python.md',
        'docs/running.md',  # tests/training/test_observers.py
    }
    found = {page: len(code_blocks('gin', read(page))) for page in PAGES}
    assert {page for page, count in found.items() if count} == {'docs/extending.md'}


def test_every_column_is_explained():
    text = read('docs/run_folder.md')
    explained = set(re.findall(r'`(\w+)`', text))
    for table, columns in run_folder.COLUMNS.items():
        assert f'{table}.csv' in text
        assert set(columns) <= explained


def generated(name):
    path = ROOT / 'docs' / 'tools' / 'configuration.py'
    spec = importlib.util.spec_from_file_location('configuration', path)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return getattr(module, name)()


def test_the_reference_of_bindings():
    text = generated('reference')
    beta = text[text.index('### EpisodicUpdate') :]
    beta = beta[beta.index('`beta` (float in 0..1') :].partition('\n\n`')[0]
    assert 'Diffusion factor' in beta or 'diffusion factor' in beta
    assert '`0.5` in [bebu_atari](gin_files.md#bebu_atarigin)' in beta
    assert '`1.0` in [bebu_mnist_maze]' in beta
    (line,) = re.findall(r'^`greedy` .*', text, re.M)
    assert line == "`greedy` (one of 'initial', 'updated', 'released', default `'initial'`)"
    assert '`num_envs` (int in 1..256, default `1`)' in text
    files = generated('gin_files')
    assert all(f'## {name} {{' in files for name in config.available())


UNDOCUMENTED = {  # Still.
    'Agent.set_state',
    'EpisodeReplay.num_episodes',
    'EpisodeReplay.num_transitions',
    'IndependentQNetworks.variable_groups',
    'LinearQNetwork.followed_head',
    'LinearQNetwork.variable_groups',
}


def public_modules():
    """Paths of the modules that docs/api shows."""
    for path in sorted(ROOT.glob('docs/api/*.md')):
        for name in re.findall(r'^::: (ob2i_tf[.\w]*)', path.read_text(), re.M):
            module = ROOT / name.replace('.', '/')
            if module.with_suffix('.py').exists():
                yield module.with_suffix('.py')


@pytest.mark.parametrize('path', list(public_modules()), ids=lambda path: path.stem)
def test_public_names_have_docstrings(path):
    module = importlib.import_module('.'.join(path.relative_to(ROOT).with_suffix('').parts))
    tree = ast.parse(path.read_text())
    missing = [] if ast.get_docstring(tree) else ['module']
    for node in tree.body:
        if isinstance(node, (ast.FunctionDef, ast.ClassDef)) and not node.name.startswith('_'):
            missing += [] if ast.get_docstring(node) else [node.name]
            for member in node.body if isinstance(node, ast.ClassDef) else ():
                if isinstance(member, ast.FunctionDef) and not member.name.startswith('_'):
                    bases = getattr(module, node.name).__mro__
                    if not any(getattr(b.__dict__.get(member.name), '__doc__', '') for b in bases):
                        missing.append(f'{node.name}.{member.name}')
    assert set(missing) <= UNDOCUMENTED
