"""Reads run folders into tidy tables; reports missing or damaged data and never fills it in."""

import collections
import functools
import json
import os
import re
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pandas as pd

from ob2i_tf import environments
from ob2i_tf.environments import games
from ob2i_tf.errors import UserError
from ob2i_tf.training import disk
from ob2i_tf.training.run_folder import COLUMNS, RunFolder, find_runs, parse_config, task_name

TRAIN_COLUMNS = (
    'iteration',
    'frames',
    'episodes',
    'score_mean',
    'episode_length_mean',
    'bonus_mean',
    'next_bonus_mean',
)
_LARGEST = 1e15  # Sums of larger numbers may overflow; no log holds any.
# Bindings that may differ between the runs of one method.
_FREE = re.compile(
    r'make_environment\.name|.*\.(seed|maze_seed|wall_density|num_threads)|make_deep_sea\.size|'
    r'Runner\.(method|num_iterations|checkpoint_steps|checkpoints_kept|require_gpu)'
)


class Run(NamedTuple):
    """One run folder.

    Attributes:
      path: Folder.
      method, game, seed: Strings that identify the run.
      config: {binding: value}; references are strings such as '@EpisodicUpdate'.
      environment: {package, 'python' or 'git_commit': version}, where known.
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
        return table[table['score_mean'].notna()]

    @property
    def frames(self) -> int:
        """Frames at the end of the run's logs."""
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
    """The text, with the characters escaped that files and figures cannot show."""
    return ''.join(c if c.isprintable() else repr(c)[1:-1] for c in text)


def _read_run(folder, name, problems) -> Run | None:
    """A run; or None, with a line added to `problems`, if its configuration cannot be read."""

    def report(problem):
        problems.append(printable(f'{folder}: {problem}'))

    files = RunFolder(folder)
    try:
        text = files.read_config()
        _check_text(text)
        config = parse_config(text)
        frames_planned = _frames_planned(config)
    except FileNotFoundError:
        return report('left out: no config.gin')
    except OSError as error:
        return report(f'left out: config.gin cannot be read: {error.strerror}')
    except ValueError as error:
        return report(f'left out: config.gin: {error}')
    task = task_name(config.get)
    known = {'Runner.seed': config.get('Runner.seed'), 'make_environment.name': task}
    missing = [binding for binding, value in known.items() if value is None]
    if missing:
        return report(f'left out, its config.gin lacks {", ".join(missing)}')
    method = name or config.get('Runner.method') or _folder_name(folder, task)
    game, seed = _game_and_seed(config, task)
    run = Run(
        path=folder,
        method=printable(str(method)),
        game=printable(game),
        seed=printable(seed),
        config=config,
        environment=_read_environment(files.environment, report),
        eval=_nothing(COLUMNS['eval']),
        train=read_csv(files.table('train'), TRAIN_COLUMNS, report),
        games=_nothing(COLUMNS['eval_episodes']),
    )
    if run.scored_by == 'evaluation':
        evaluation = read_csv(files.table('eval'), COLUMNS['eval'], report)
        played = files.table('eval_episodes')
        played = read_csv(played, COLUMNS['eval_episodes'], report, required=False)
        run = run._replace(eval=evaluation, games=played)
        empty = int(evaluation['score_mean'].isna().sum())
        if empty:
            report(f'{empty} of {len(evaluation)} evaluations have no score')
    # A run of less than an iteration, such as one that was only evaluated, was not cut short.
    if frames_planned and 0 < run.frames < frames_planned:
        report(f'cut short: {run.frames:,} of {frames_planned:,} frames')
    return run


def _game_and_seed(config, task):
    """Names of the task and the seed; with the size of a sea, or the density and seed of a maze."""
    game, seed = game_name(task), str(config['Runner.seed'])
    density = config.get('make_mnist_maze.wall_density')
    if game == 'MnistMaze' and isinstance(density, (int, float)) and 0 <= density <= 1:
        game = f'MnistMaze {100 * density:g}%'
        seed = f'maze {config.get("make_mnist_maze.maze_seed", 0)}, seed {seed}'
    elif game == 'DeepSea' and 'make_deep_sea.size' in config:
        game = f'DeepSea {config["make_deep_sea.size"]}'
    return game, seed


def _folder_name(folder, task):
    """The gin file's name in a path <gin file>[/<name>=<value>...][/<task>][/seed<seed>]."""
    names = [name for name in folder.resolve().parts if '=' not in name]
    while len(names) > 1 and (
        re.fullmatch(r'seed\d+', names[-1]) or game_name(names[-1]) == game_name(task)
    ):
        names.pop()
    return names[-1]


def _check_text(text):
    """Raises a ValueError if what was read from a file is not text."""
    for character, reason in (('\ufffd', 'not UTF-8'), ('\0', 'NUL bytes')):
        if character in text:
            raise ValueError(reason)


def _frames_planned(config):
    """Frames of the complete run, or None; a ValueError names a binding that is not a count."""
    planned = 1
    for name in ('Runner.num_iterations', 'Runner.training_steps', 'make_atari.frame_skip'):
        value = config.get(name, 1 if name == 'make_atari.frame_skip' else None)
        if value is None:
            return None
        if type(value) is not int or abs(value) > _LARGEST:
            raise ValueError(f'{name} is {value!r:.100}, not a count')
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
        if text.strip():
            return _parse_csv(text, path.name, columns, report)
        report(f'{path.name} is empty')
    except FileNotFoundError:
        if required:
            report(f'no {path.name}')
    except OSError as error:
        report(f'{path.name} cannot be read: {error.strerror}')
    except ValueError as error:
        report(f'{path.name}:1: {error}')
    return _nothing(columns)


def _parse_csv(text, file, columns, report):
    """See `read_csv`; raises a ValueError that describes the fault of the header.

    Lines are split here, because pandas pads short rows, lets a quotation mark swallow the
    following lines, and does not give the numbers of lines that it rejects.
    """
    header, *lines = text.split('\n')
    names = header.split(',')
    _check_text(header)
    if 'frames' not in names:
        raise ValueError('no header with a column frames')
    if len(set(names)) < len(names):
        raise ValueError('two columns of one name')
    missing = [column for column in columns if column not in names]
    if missing:
        report(f'{file}:1: no column {", ".join(missing)}')
    faults = collections.defaultdict(list)
    if lines and lines.pop():
        faults['ends within a row'].append(len(lines) + 2)
    numbers = range(2, len(lines) + 2)
    try:
        rows = _parse_rows(lines, names, columns)
    except ValueError:  # Then one by one, which is slower, to name the faulty ones.
        intact = {}
        for number, line in zip(numbers, lines):
            try:
                [intact[number]] = _parse_rows([line], names, columns)
            except ValueError as error:
                faults[str(error)].append(number)
        numbers, rows = list(intact), list(intact.values())
    table = pd.DataFrame(rows, numbers, list(columns), dtype=float)
    if 'iteration' in names and 'score' not in columns:
        repeated = table.duplicated('iteration', keep='last')
        if repeated.any():
            faults['a later row has the same iteration'] = list(table.index[repeated])
        table = table[~repeated]
    for fault, places in faults.items():
        more = f' and {len(places) - 5} more' if len(places) > 5 else ''
        report(f'{file}:{",".join(map(str, places[:5]))}{more}: {fault}; left out')
    if table.empty:
        report(f'{file} holds no row')
    return table.sort_values('frames', kind='stable', ignore_index=True)


def _parse_rows(lines, names, columns):
    """[rows, columns] numbers; raises a ValueError that describes the fault of a single row."""
    text = ','.join(lines)
    _check_text(text)
    for count in {line.count(',') + 1 for line in lines} - {len(names)}:
        raise ValueError(f'{count} cells instead of {len(names)}')
    cells = text.split(',') if lines else []
    by_name = {name: cells[index :: len(names)] for index, name in enumerate(names)}
    empty = [''] * len(lines)
    numbers = [_parse_numbers(column, by_name.get(column, empty)) for column in columns]
    table = np.reshape(numbers, (len(columns), len(lines))).T
    if np.isnan(table[:, columns.index('frames')]).any():
        raise ValueError('frames is empty')
    return table


def _parse_numbers(column, cells):
    """The numbers of cells, NaN if empty; a ValueError if one cannot be summed."""
    try:
        numbers = np.array([float(cell or 'nan') for cell in cells])
    except ValueError:
        numbers = np.inf
    if np.any(np.abs(numbers) > _LARGEST):
        raise ValueError(f'{column} is {cells[0][:40]!r}')
    return numbers


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


def differences(runs) -> pd.DataFrame:
    """[runs, bindings]: values, as text, of the bindings in which runs of a method must not differ.

    Only bindings with several values are included. Runs that lack a binding, as those of another
    version may, have the value '(unbound)'.
    """
    values = pd.DataFrame(
        [{name: repr(value) for name, value in run.config.items()} for run in runs]
    )
    if 'make_deep_sea.size' in values:
        # An iteration is a number of episodes, whose length is the size.
        values.loc[values['make_deep_sea.size'].notna(), 'Runner.training_steps'] = 'by size'
    values = values[sorted(name for name in values if not _FREE.fullmatch(name))]
    return values.loc[:, values.nunique() > 1].fillna('(unbound)')


def _split_variants(runs, named, problems):
    """Runs of one method whose configurations differ become separate methods, unless `named`."""
    groups, result = {}, []
    for run in runs:
        groups.setdefault((run.method, run.family), []).append(run)
    for (method, _), group in groups.items():
        different = differences(group)
        if len(different.columns) and method in named:
            names = ', '.join(different.columns[:4]) + ', ...' * (len(different.columns) > 4)
            problems.append(f'{method} pools runs whose configurations differ: {names}')
        elif len(different.columns):
            labels = _labels(group, different)
            group = [
                run._replace(method=printable(f'{method} ({label})'))
                for run, label in zip(group, labels)
            ]
        result += group
    return result


def _labels(runs, different):
    """For each run, its values of up to three different bindings, or its folder, or a number."""
    variants = [tuple(row) for row in different.to_numpy()]
    if different.shape[1] <= 3:
        names = [binding.rpartition('.')[2] for binding in different]
        return [', '.join(f'{n} {v}' for n, v in zip(names, values)) for values in variants]
    folders = [_folder_name(run.path, task_name(run.config.get)) for run in runs]
    if len(set(variants)) == len(set(folders)) == len(set(zip(variants, folders))):
        return folders
    numbers = {variant: number for number, variant in enumerate(dict.fromkeys(variants), 1)}
    return [f'variant {numbers[variant]}' for variant in variants]


def _without_duplicates(runs, problems):
    """The longest of the runs with the same method, game and seed."""
    kept = {}
    for run in sorted(runs, key=lambda run: -run.frames):
        key = run.method, run.game, run.seed
        longer = kept.setdefault(key, run)
        if longer is not run:
            reason = f'{longer.path} has the same method, game and seed ({", ".join(key)})'
            problems.append(printable(f'{run.path}: left out: {reason} and is at least as long'))
    return list(kept.values())
