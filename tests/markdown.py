"""The blocks of code and the commands in a Markdown file, and runs of both."""

import csv
import re
import shlex
from pathlib import Path

from tests.processes import start

ROOT = Path(__file__).resolve().parents[1]
SHORT = {
    'Runner.num_iterations': 2,
    'Runner.training_steps': 80,
    'EpisodeReplay.capacity_transitions': 200,
    'Agent.learning_starts': 40,
}


def read(name):
    """The text of a file, by its path in the repository."""
    return (ROOT / name).read_text()


def code_blocks(language, text):
    """Blocks of a language; '' has the commands of a shell."""
    blocks = re.findall(r'^```(\w*)\n(.*?)^```$', text, re.M | re.S)
    return [text for name, text in blocks if name == language]


def commands(text):
    """The words after `python` of every command, in blocks and in the text."""
    blocks = ''.join(code_blocks('', text)).replace('\\\n', ' ').splitlines()
    inline = re.findall(r'`([^`]*python [^`]*)`', re.sub(r'```.*?```', '', text, flags=re.S))
    found = []
    for line in [*blocks, *inline]:
        words = shlex.split(line, comments=True)
        if words and words[0] in ('python', '.venv/bin/python'):
            found.append(words[1:])
    return found


def bound_by(arguments):
    """gin files and bindings of a command line."""
    flags = [argument.partition('=')[::2] for argument in arguments]
    return [[value for flag, value in flags if flag == f'--gin_{n}'] for n in ('files', 'bindings')]


def run(arguments, folder, settings=(), stop_at=None):
    """Runs the words of a command with short settings; returns its exit status and stderr."""
    output = folder / 'stderr'
    more = [f'--gin_bindings={binding} = {value}' for binding, value in dict(settings).items()]
    process = start([*arguments, *more], output=output, cwd=folder, stop_at=stop_at)
    process.join(timeout=120)
    process.kill()
    return process.exitcode, output.read_text()


def rows(run_folder):
    with open(run_folder / 'train.csv', newline='') as table:
        return list(csv.DictReader(table))


def train(folder, name, module, file, settings):
    """Trains `name`.gin, which is `file`, with `name`.py, which is `module`; returns config.gin."""
    (folder / f'{name}.py').write_text(module)
    (folder / f'{name}.gin').write_text(file)
    arguments = ['run_experiment.py', f'--gin_files={name}.gin', f'--base_dir={folder}/run']
    status, error = run(arguments, folder, settings)
    assert status == 0, error[-2000:]
    trained = rows(folder / 'run')
    assert len(trained) == 2 and all(float(row['loss']) > 0 for row in trained)
    return (folder / 'run' / 'config.gin').read_text()
