"""Reads run folders into tidy tables; reports missing or damaged data, and never guesses it."""

import ast
import collections
import contextlib
import functools
import json
import math
import os
import re
from pathlib import Path
from typing import Any, NamedTuple

import pandas as pd

from ob2i_tf import environments
from ob2i_tf.environments import games
from ob2i_tf.errors import UserError
from ob2i_tf.training import disk
from ob2i_tf.training.run_folder import COLUMNS, RunFolder, find_runs, task_name

TRAIN_COLUMNS = (
    'iteration',
    'frames',
    'episodes',
    'score_mean',
    'episode_length_mean',
    'bonus_mean',
    'next_bonus_mean',
)
_UNBOUND = '(unbound)'
_LARGEST = 1e15  # Sums of larger numbers may overflow; no log holds any.
# Bindings that may differ between the runs of one method.
_FREE = re.compile(
    r'make_environment\.name|.*\.(seed|maze_seed|wall_density|num_threads)|make_deep_sea\.size|'
    r'Runner\.(method|num_iterations|checkpoint_steps|checkpoints_kept|require_gpu)'
)
_BINDING = re.compile(r'([\w./]+\.\w+)\s*=\s*(.+)')
_REFERENCE = re.compile(r'@[\w./]+(\(\))?')


class Run(NamedTuple):
    """One run folder.

    Attributes:
      path: Folder.
      method, game, seed: Strings that identify the run.
      config: {binding: value}; references are strings such as '@EpisodicUpdate'.
      environment: {package, 'python' or 'git_commit': version}, as far as known.
      eval, games: Tables with COLUMNS['eval'], COLUMNS['eval_episodes'].
      train: Table with TRAIN_COLUMNS.
    """

    path: Path
    method: str
    game: str
    seed: str
    config: dict[str, Any]
    environment: dict[str, str]
    eval: pd.DataFrame
    train: pd.DataFrame
    games: pd.DataFrame

    @property
    def family(self) -> str:
        """'Atari', 'DeepSea', ...: tasks whose configurations can be compared."""
        return 'Atari' if 'make_atari.frame_skip' in self.config else self.game.partition(' ')[0]

    @property
    def scored_by(self) -> str:
        """'evaluation', or 'training' if the run has no evaluations (Deep Sea, linear MDPs)."""
        return 'training' if self.config.get('Runner.evaluation_steps') == 0 else 'evaluation'

    @property
    def scores(self) -> pd.DataFrame:
        """The rows of `eval` or `train` that have a score, one per iteration."""
        table = self.train if self.scored_by == 'training' else self.eval
        return table.dropna(subset=['score_mean'])

    @property
    def frames(self) -> int:
        """Frames at the end of its logs."""
        return int(max([0, *(t['frames'].max() for t in (self.eval, self.train) if len(t))]))


class Runs(NamedTuple):
    """All runs of a report, and sentences on the problems with them."""

    runs: list[Run]
    problems: list[str]


def load(sources) -> Runs:
    """Reads all run folders at and below some paths.

    Args:
      sources: Paths, or strings 'NAME=PATH', which give all runs below PATH the method NAME.

    Raises:
      UserError: A path does not exist, or no run can be read.
    """
    problems, found = [], {}
    for source in sources:
        name, path = _name_and_path(source)
        if not os.path.isdir(path):
            raise UserError(f'no folder {path}')
        folders = find_runs(path, damaged=True)
        if not folders:
            problems.append(printable(f'{path}: no run folder in it'))
        for folder in folders:
            found.setdefault(folder.resolve(), (name, folder))
    if not found:
        raise UserError(
            f'no run folder in {", ".join(map(str, sources))}: none holds config.gin or eval.csv '
            'or train.csv'
        )
    named = {printable(name) for name, _ in found.values() if name}
    runs = [_read_run(folder, name, problems) for name, folder in found.values()]
    runs = _split_variants([run for run in runs if run], named, problems)
    runs = _without_duplicates(runs, problems)
    if not runs:
        raise UserError('no run folder could be read: ' + '; '.join(problems))
    runs.sort(key=lambda run: (run.method, game_order(run.game), _numbers(run.seed), run.seed))
    return Runs(runs, problems)


def _numbers(text):
    return [int(number) for number in re.findall('[0-9]+', text)]


def _name_and_path(source):
    name, equals, path = str(source).partition('=')
    if equals and name and not os.path.exists(os.path.expanduser(source)):
        return name, os.path.expanduser(path)
    return None, os.path.expanduser(source)


def printable(text) -> str:
    """The text, with characters escaped that files and figures cannot show."""
    return ''.join(c if c.isprintable() else repr(c)[1:-1] for c in text)


def _read_run(folder, name, problems) -> Run | None:
    def report(problem):
        problems.append(printable(f'{folder}: {problem}'))

    files = RunFolder(folder)
    try:
        text = files.read_config()
        config = parse_config(text)
        frames_planned = _frames_planned(config, text)
    except FileNotFoundError:
        return report('left out: no config.gin')
    except OSError as error:
        return report(f'left out: config.gin cannot be read: {error.strerror}')
    except ValueError as error:
        return report(f'left out: {error}')
    task = task_name(config.get)
    known = {'Runner.seed': config.get('Runner.seed'), 'make_environment.name': task}
    missing = [binding for binding, value in known.items() if value is None]
    if missing:
        return report(f'left out, its config.gin lacks {", ".join(missing)}')
    seed = str(config['Runner.seed'])
    method = name or config.get('Runner.method') or _folder_name(folder, task)
    game = game_name(task)
    density = config.get('make_mnist_maze.wall_density')
    if game == 'MnistMaze' and isinstance(density, (int, float)) and 0 <= density <= 1:
        game = f'MnistMaze {100 * density:g}%'
        seed = f'maze {config.get("make_mnist_maze.maze_seed", 0)}, seed {seed}'
    elif game == 'DeepSea' and 'make_deep_sea.size' in config:
        game = f'DeepSea {config["make_deep_sea.size"]}'
    run = Run(
        folder,
        printable(str(method)),
        printable(game),
        printable(seed),
        config,
        _read_environment(files.environment, report),
        _nothing(COLUMNS['eval']),
        read_csv(files.table('train'), TRAIN_COLUMNS, report),
        _nothing(COLUMNS['eval_episodes']),
    )
    if run.scored_by == 'evaluation':
        evaluation = read_csv(files.table('eval'), COLUMNS['eval'], report)
        played = read_csv(
            files.table('eval_episodes'), COLUMNS['eval_episodes'], report, required=False
        )
        run = run._replace(eval=evaluation, games=played)
        empty = int(evaluation['score_mean'].isna().sum())
        if empty:
            report(f'{empty} of {len(evaluation)} evaluations have no score')
    # A run of less than an iteration, such as one that was only evaluated, was not cut short.
    if frames_planned and 0 < run.frames < frames_planned:
        report(f'cut short: {run.frames:,} of {frames_planned:,} frames')
    return run


def _folder_name(folder, task):
    """The gin file's name in a path <gin file>[/<name>=<value>...][/<task>][/seed<seed>]."""
    names = [name for name in folder.resolve().parts if '=' not in name]
    while len(names) > 1 and (
        re.fullmatch(r'seed\d+', names[-1]) or game_name(names[-1]) == game_name(task)
    ):
        names.pop()
    return names[-1]


def parse_config(text) -> dict[str, Any]:
    """{'Runner.seed': 0, 'Runner.update': '@EpisodicUpdate', ...} of a resolved config.gin.

    Raises:
      ValueError: A line is neither a binding nor an import; the message names it.
    """
    config = {}
    for number, line in enumerate(text.split('\n'), 1):
        try:
            config.update(_parse_line(line))
        except ValueError:
            reason = _unreadable(line) or f'not a gin binding: {line[:100]!r}'
            raise ValueError(f'config.gin:{number}: {reason}') from None
    return config


@functools.cache  # Runs share most of their lines.
def _parse_line(line):
    """The bindings of a line, none or one; a ValueError if no config.gin has such a line."""
    if _unreadable(line):
        raise ValueError
    if re.fullmatch(r'\s*(#.*)?|(import|from|include) .*', line):
        return ()
    binding = _BINDING.fullmatch(line)
    if binding:
        name, text = binding.groups()
        for literal in (text, _REFERENCE.sub(lambda match: repr(match[0]), text)):
            with contextlib.suppress(
                ValueError, TypeError, SyntaxError, MemoryError, RecursionError
            ):
                value = ast.literal_eval(literal)
                repr(value)  # Python refuses to convert some numbers to a string.
                return ((name, value),)
    raise ValueError


def _unreadable(line):
    """The reason why a line is not text, or None."""
    if '\ufffd' in line:
        return 'not UTF-8'
    return 'NUL bytes' if '\0' in line else None


def _frames_planned(config, text):
    """Frames of the complete run, or None; a ValueError names a binding that is not a count."""
    planned = 1
    for name in ('Runner.num_iterations', 'Runner.training_steps', 'make_atari.frame_skip'):
        value = config.get(name, 1 if name == 'make_atari.frame_skip' else None)
        if value is None:
            return None
        if type(value) is not int or abs(value) > _LARGEST:
            line = text[: text.index(name)].count('\n') + 1
            raise ValueError(f'config.gin:{line}: {name} is {value!r}, not a count')
        planned *= value
    return planned


def _read_environment(path, report):
    try:
        written = json.loads(disk.read_text(path, errors='replace'))
        versions = {**written.get('packages', {}), **written}
        return {name: value for name, value in versions.items() if isinstance(value, str)}
    except FileNotFoundError:
        pass
    except json.JSONDecodeError as error:
        report(f'environment.json:{error.lineno}: {error.msg}')
    except (OSError, AttributeError, TypeError, RecursionError, ValueError) as error:
        report(f'environment.json does not hold the versions of a run: {error}')
    return {}


def _nothing(columns):
    return pd.DataFrame(columns=list(columns), dtype=float)


def read_csv(path, columns, report, required=True) -> pd.DataFrame:
    """The intact rows of a log, the last one of each iteration.

    Lines are split here, because pandas pads short rows, lets a quotation mark swallow the
    following lines, and does not give the numbers of lines that it rejects.

    Args:
      path: File.
      columns: Columns to read, all numeric; one that the file lacks is NaN.
      report: Called with file, line and reason of each fault.
      required: Whether a missing file is a fault.

    Returns:
      A table of `columns`, sorted by frames; NaN where a cell is empty or nan.
    """
    try:
        text = disk.read_text(path, 'utf-8-sig', 'replace')
    except OSError as error:
        absent = isinstance(error, FileNotFoundError)
        if required or not absent:
            report(f'no {path.name}' if absent else f'{path.name} cannot be read: {error.strerror}')
        return _nothing(columns)
    header, *lines = text.split('\n')
    names = header.split(',')
    fault = _unreadable(header) or ('frames' not in names and 'no header with a column frames')
    if fault or len(set(names)) < len(names):
        fault = fault or 'two columns of one name'
        report(f'{path.name}:1: {fault}' if text.strip() else f'{path.name} is empty')
        return _nothing(columns)
    missing = [column for column in columns if column not in names]
    if missing:
        report(f'{path.name}:1: no column {", ".join(missing)}')
    rows, faults = {}, collections.defaultdict(list)
    if lines and lines.pop():
        faults['ends within a row'].append(len(lines) + 2)
    for place, line in enumerate(lines, 2):
        cells = line.split(',')
        by_name = dict(zip(names, cells))
        numbers = {column: _number(by_name.get(column, '')) for column in columns}
        fault = _unreadable(line)
        if not fault and len(cells) != len(names):
            fault = f'{len(cells)} cells instead of {len(names)}'
        wrong = [column for column in columns if numbers[column] is None]
        if not fault and wrong:
            fault = f'{wrong[0]} is {by_name[wrong[0]][:40]!r}'
        elif not fault and math.isnan(numbers['frames']):
            fault = 'frames is empty'
        if fault:
            faults[fault].append(place)
        else:
            rows[place] = numbers
    table = pd.DataFrame.from_dict(rows, 'index', dtype=float, columns=list(columns))
    if 'iteration' in names and 'score' not in columns:
        repeated = table.duplicated('iteration', keep='last')
        faults['a later row has the same iteration'] += list(table.index[repeated])
        table = table[~repeated]
    for fault, places in faults.items():
        if places:
            more = f' and {len(places) - 5} more' if len(places) > 5 else ''
            places = ','.join(map(str, places[:5]))
            report(f'{path.name}:{places}{more}: {fault}; left out')
    if not rows:
        report(f'{path.name} holds no row')
    return table.sort_values('frames', kind='stable', ignore_index=True)


def _number(text):
    """A number; NaN if the text is empty, None if it is not a number that can be summed."""
    try:
        number = float(text or 'nan')
    except ValueError:
        return None
    return None if abs(number) > _LARGEST else number


@functools.cache
def game_name(name) -> str:
    """A game in the paper's spelling, another environment as BUILDERS has it, else `name`."""
    known = environments.known_as(name)
    if known is not None:
        return known
    try:
        rom = games.resolve(name)
    except ValueError:
        return name
    return _PAPER_NAMES.get(rom) or ''.join(word.capitalize() for word in rom.split('_'))


_PAPER_NAMES = {games.resolve(game): game for game in games.ATARI_49}


def game_order(game) -> tuple[int, str]:
    """A key that sorts games in the order of the paper's table, and others after them."""
    known = game in games.ATARI_49
    return (games.ATARI_49.index(game) if known else len(games.ATARI_49), game)


def bound(run, names, problems) -> dict[str, Any] | None:
    """{name: value} of bindings of a run; None, and a problem, if its config.gin lacks any."""
    missing = [name for name in names if name not in run.config]
    if missing:
        problems.append(f'{run.path}: left out, its config.gin lacks {", ".join(missing)}')
        return None
    return {name: run.config[name] for name in names}


def differences(runs) -> dict[str, dict[str, list[Run]]]:
    """{binding: {value as text: runs}} of the bindings in which runs of a method may not differ.

    Only bindings with several values. Runs that lack a binding, as those of another version may,
    have the value '(unbound)'.
    """
    different = {}
    for binding in sorted({name for run in runs for name in run.config}):
        by_value = {}
        if not _FREE.fullmatch(binding):
            for run in runs:
                by_value.setdefault(_value(run, binding), []).append(run)
        if len(by_value.keys() - {_UNBOUND}) > 1:
            different[binding] = by_value
    return different


def _value(run, binding):
    if binding == 'Runner.training_steps' and 'make_deep_sea.size' in run.config:
        return 'by size'  # An iteration is a number of episodes, whose length is the size.
    return repr(run.config[binding]) if binding in run.config else _UNBOUND


def _split_variants(runs, named, problems):
    """Runs of one method whose configurations differ become separate methods, unless `named`."""
    groups, result = {}, []
    for run in runs:
        groups.setdefault((run.method, run.family), []).append(run)
    for (method, _), group in groups.items():
        different = differences(group)
        if method not in named:
            group = _variants(method, group, different)
        elif different:
            names = ', '.join([*different][:4]) + ', ...' * (len(different) > 4)
            problems.append(f'{method} pools runs whose configurations differ: {names}')
        result += group
    return result


def _variants(method, group, different):
    """The runs, renamed by their values of the `different` bindings.

    Names contain the values of up to three bindings, or else folders, or else numbers.
    """
    variants = {}
    for run in group:
        variants.setdefault(tuple(_value(run, name) for name in different), []).append(run)
    if len(variants) == 1:
        return group
    names = [binding.rpartition('.')[2] for binding in different]
    folders = [
        {_folder_name(run.path, task_name(run.config.get)) for run in members}
        for members in variants.values()
    ]
    if len(names) <= 3:
        labels = [', '.join(f'{n} {v}' for n, v in zip(names, values)) for values in variants]
    elif len(set.union(*folders)) == sum(map(len, folders)) == len(folders):
        labels = [folder for (folder,) in folders]
    else:
        labels = [f'variant {number}' for number in range(1, len(variants) + 1)]
    return [
        run._replace(method=printable(f'{method} ({label})'))
        for label, members in zip(labels, variants.values())
        for run in members
    ]


def _without_duplicates(runs, problems):
    kept = {}
    for run in runs:
        key = run.method, run.game, run.seed
        other = kept.setdefault(key, run)
        if other is not run:
            better, worse = (run, other) if run.frames > other.frames else (other, run)
            reason = f'{better.path} has the same method, game and seed ({", ".join(key)})'
            problems.append(printable(f'{worse.path}: left out: {reason} and is at least as long'))
            kept[key] = better
    return list(kept.values())
