"""All commands from an installed wheel, in a folder without a checkout; see `make installed`."""

import os
import re
import shutil
import subprocess

from tests.markdown import ROOT, code_blocks, commands, read
from tests.test_packaging import environment, installed, run, wheel  # noqa: F401, fixtures
from tests.test_readme import TEXTS

SHORT = [
    '--gin_bindings=make_deep_sea.size = 4',
    '--gin_bindings=Runner.num_iterations = 1',
    '--gin_bindings=Runner.training_steps = 80',
    '--gin_bindings=Agent.learning_starts = 40',
]
COMMANDS = {  # {module and arguments: file that it writes}
    'training.main --gin_files=ob2i_deep_sea.gin --base_dir=runs/sea': 'runs/sea/train.csv',
    'sweep --gin_files=ob2i_deep_sea.gin --seeds=2': 'runs/sweep/ob2i_deep_sea/seed1/train.csv',
    'analysis runs --out report': 'report/report.html',
    'analysis.episode runs/sea --out viewer': 'viewer/episode.html',
    'analysis.episode ob2i_deep_sea --out shipped': 'shipped/episode.html',
    'evaluate runs --games=1 --out=games.csv': 'games.csv',
    'training.prune runs --delete': 'runs/sea/replay/freed.txt',
}
DEMO = """
from ob2i_tf import demo
demo.SIZE, demo.ITERATIONS, demo.EPISODES_PER_ITERATION = 4, 1, 50
raise SystemExit(demo.main([]))
"""


def test_all_commands(installed, tmp_path):  # noqa: F811
    for command, written in COMMANDS.items():
        module, *arguments = command.split()
        short = SHORT if module in ('training.main', 'sweep') else []
        done = run(installed, 'python', '-m', f'ob2i_tf.{module}', *arguments, *short, cwd=tmp_path)
        assert done.returncode == 0 and (tmp_path / written).is_file(), done.stderr
    for code in (DEMO, '\n\n'.join(code_blocks('python', read('docs/python.md')))):
        done = run(installed, 'python', '-c', code, cwd=tmp_path)
        assert done.returncode == 0, done.stderr
    assert (tmp_path / 'runs' / 'demo' / 'demo.html').is_file()


def test_these_are_all_commands_that_are_shown():
    shown = {words[1] for name in TEXTS for words in commands(read(name)) if words[0] == '-m'}
    here = {f'ob2i_tf.{command.split()[0]}' for command in COMMANDS}
    assert {module for module in shown if module.startswith('ob2i_tf')} <= here


def test_the_image_installs(tmp_path):
    """The steps of the Dockerfile, with packages of this environment instead of downloaded ones."""
    context, folder = tmp_path / 'context', environment(tmp_path / 'environment')
    context.mkdir()
    for name in re.findall('^!(.*)$', read('.dockerignore'), re.M):
        path = ROOT / name
        (shutil.copytree if path.is_dir() else shutil.copy)(path, context / name)
    steps = re.findall('^(ARG|RUN|ENTRYPOINT) (.*)$', read('Dockerfile'), re.M)
    variables = dict(value.split('=') for step, value in steps if step == 'ARG')
    path = f'{folder / "bin"}:{os.environ["PATH"]}'
    offline = {'PIP_NO_INDEX': '1', 'PIP_NO_BUILD_ISOLATION': '0'}  # 0 turns the isolation off.
    for command in (value for step, value in steps if step == 'RUN'):
        subprocess.run(
            command,
            shell=True,
            cwd=context,
            env={**os.environ, **variables, **offline, 'PATH': path},
            check=True,
        )
    (program,) = (value.strip('[]"') for step, value in steps if step == 'ENTRYPOINT')
    done = run(folder, program, '--gin_files=ob2i_deep_sea.gin', '--dry_run', cwd=tmp_path)
    assert done.returncode == 0 and 'make_deep_sea.size = 10' in done.stdout, done.stderr
