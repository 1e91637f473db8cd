"""Run folders -> tidy tables; whatever is missing or damaged in them is named, never guessed."""

import ast
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
from ob2i_tf.training.run_folder import COLUMNS, find_runs

TRAIN_COLUMNS = (
    'iteration',
    'frames',
    'score_mean',
    'episode_length_mean',
    'bonus_mean',
    'next_bonus_mean',
)
_FILES = ('config.gin', 'eval.csv', 'train.csv')
# What may differ between the runs of one method.
_FREE = re.compile(
    r'make_environment\.name|.*\.(seed|maze_seed|wall_density|num_threads)|'
    r'make_deep_sea\.size|'
    r'Runner\.(method|num_iterations|checkpoint_steps|checkpoints_kept|require_gpu)'
)
_ROWS = {  # (update, bonus, acts by) -> row, for ensembles.
    ('EpisodicUpdate', 'UcbBonus', 'head_preferences'): 'OB2I',
    ('EpisodicUpdate', 'RndBonus', 'head_preferences'): 'BEBU-RND',
    ('EpisodicUpdate', None, 'head_preferences'): 'BEBU',
    ('EpisodicUpdate', None, 'ucb_preferences'): 'BEBU-UCB',
    ('EpisodicUpdate', None, 'ids_preferences'): 'BEBU-IDS',
    ('TransitionUpdate', 'UcbBonus', 'head_preferences'): 'BootDQN-UCB',
    ('TransitionUpdate', None, 'head_preferences'): 'BootDQN',
    ('TransitionUpdate', None, 'ids_preferences'): 'BootDQN-IDS',
}
_LSVI = {
    'ucb': 'LSVI-UCB',
    'randomised': 'randomised LSVI',
    'greedy': 'epsilon-greedy LSVI',
}


class Run(NamedTuple):
    """One run folder.

    Attributes:
      path: of the folder.
      method, game, seed: what it is a run of; texts.
      config: {binding: value}, values as Python literals where they are, else as text.
      environment: what environment.json holds; {} without.
      eval, games: tables with COLUMNS['eval'], COLUMNS['eval_episodes'].
      train: a table with TRAIN_COLUMNS.
      frames_planned: frames that its configuration asks for, or None.
    """

    path: Path
    method: str
    game: str
    seed: str
    config: dict[str, Any]
    environment: dict
    eval: pd.DataFrame
    train: pd.DataFrame
    games: pd.DataFrame
    frames_planned: int | None


class Runs(NamedTuple):
    """All runs of a report, and what is wrong with them (sentences)."""

    runs: list[Run]
    problems: list[str]


def load(sources) -> Runs:
    """Reads all run folders at and below some paths.

    Args:
      sources: paths, or texts 'NAME=PATH', which give all runs below PATH the method NAME.

    Raises:
      UserError: a path that is not there, or no run at all.
    """
    problems, found = [], {}
    for source in sources:
        name, path = _name_and_path(source)
        if not os.path.isdir(path):
            raise UserError(f'no folder {path}')
        folders = find_runs(path, _FILES)
        if not folders:
            problems.append(f'{path}: no run folder in it')
        for folder in folders:
            found.setdefault(folder.resolve(), (name, folder))
    if not found:
        raise UserError(
            f'no run folder in {", ".join(map(str, sources))}: none holds {" or ".join(_FILES)}'
        )
    named = {name for name, _ in found.values()}
    runs = [_read_run(folder, name, problems) for name, folder in found.values()]
    runs = _apart([run for run in runs if run], named - {None}, problems)
    runs = _without_duplicates(runs, problems)
    if not runs:
        raise UserError('no run folder could be read: ' + '; '.join(problems))
    runs.sort(key=lambda run: (run.method, game_order(run.game), _natural(run.seed)))
    return Runs(runs, problems)


def _name_and_path(source):
    name, equals, path = str(source).partition('=')
    if equals and name and not os.path.exists(os.path.expanduser(source)):
        return name, os.path.expanduser(path)
    return None, os.path.expanduser(source)


# One run.


def _read_run(folder, name, problems) -> Run | None:
    def report(what):
        problems.append(f'{folder}: {what}')

    config = {}
    text = _read_text(folder / 'config.gin', report)
    if text is not None:
        config = parse_config(text)
        if not config:
            report('config.gin is empty or no configuration')
    game = config.get('make_environment.name')
    path_method, path_game, path_seed = _by_path(folder, game)
    method = name or row_of(config) or path_method
    game = path_game if game is None else game
    seed = config.get('Runner.seed', path_seed)
    known = {'method': method, 'game': game, 'seed': seed}
    unknown = [what for what, value in known.items() if value is None]
    if unknown:
        name_it = '; give it as NAME=FOLDER' if method is None else ''
        report(f'left out: nothing tells its {", ".join(unknown)}{name_it}')
        return None
    if not config:
        report(f'without a configuration; by its path it is {method}, {game}, seed {seed}')
    game = game_name(str(game))
    density = config.get('make_mnist_maze.wall_density')
    if game == 'MnistMaze' and isinstance(density, (int, float)):
        game = f'MnistMaze {100 * density:g}%'
        seed = f'maze {config.get("make_mnist_maze.maze_seed", 0)}, seed {seed}'
    elif 'make_deep_sea.size' in config:
        game = f'{game} {config["make_deep_sea.size"]}'
    no_evaluation = config.get('Runner.evaluation_steps') == 0  # Deep Sea and linear MDPs.
    tables = {
        table: read_csv(
            folder / f'{table}.csv',
            header,
            (lambda what: None) if no_evaluation and table != 'train' else report,
            required=table != 'eval_episodes',
        )
        for table, header in (
            ('eval', COLUMNS['eval']),
            ('train', TRAIN_COLUMNS),
            ('eval_episodes', COLUMNS['eval_episodes']),
        )
    }
    evaluation = tables['eval']
    empty = int(evaluation['score_mean'].isna().sum())
    if len(evaluation) and empty:
        report(f'{empty} of {len(evaluation)} evaluations have no score')
    planned = _frames_planned(config)
    reached = max([0, *(t['frames'].max() for t in (evaluation, tables['train']) if len(t))])
    # A run of less than an iteration is no run that was cut short.
    if planned and 0 < reached < planned:
        report(f'cut short: {int(reached):,} of {planned:,} frames')
    environment = _read_text(folder / 'environment.json', lambda what: None)
    try:
        environment = json.loads(environment or '{}')
    except ValueError:
        environment = None
    if not isinstance(environment, dict):
        report('environment.json is damaged or of another version')
        environment = {}
    return Run(
        folder,
        method,
        game,
        str(seed),
        config,
        environment,
        evaluation,
        tables['train'],
        tables['eval_episodes'],
        planned,
    )


def _by_path(folder, game):
    """(method, game, seed) of <configuration>[/<name=value>...][/<game>]/seed<seed>; else Nones.

    A folder is the game's if it has its name, or if `game` is None and no value is in its name.
    """
    *names, last = folder.resolve().parts
    seed = re.fullmatch(r'seed(\d+)', last)
    if not seed:
        return None, None, None
    path_game = None
    if game_name(names[-1]) == game_name(str(game)) or (game is None and '=' not in names[-1]):
        path_game = names.pop()
    while '=' in names[-1]:
        names.pop()
    return names[-1].strip('/') or None, path_game, seed[1]


def _read_text(path, report):
    try:
        return disk.read_text(path, 'utf-8-sig', 'replace')
    except FileNotFoundError:
        report(f'no {path.name}')
    except OSError as error:
        report(f'{path.name} cannot be read: {error.strerror}')
    return None


def parse_config(text) -> dict[str, Any]:
    """{'Runner.seed': 0, 'Runner.update': '@EpisodicUpdate', ...} of a resolved config.gin."""
    config = {}
    for line in text.splitlines():
        binding = re.match(r'([\w./]+\.\w+) = (.*)$', line)
        if binding:
            name, value = binding.groups()
            try:
                config[name] = ast.literal_eval(value)
            except (ValueError, SyntaxError):
                config[name] = value
    return config


def _frames_planned(config):
    iterations, steps = (config.get(f'Runner.{n}') for n in ('num_iterations', 'training_steps'))
    if not isinstance(iterations, int) or not isinstance(steps, int):
        return None
    return iterations * steps * config.get('make_atari.frame_skip', 1)


def read_csv(path, columns, report, required=True) -> pd.DataFrame:
    """The rows of a log that can be trusted: whole, numeric, each iteration's last.

    Args:
      path: of the file.
      columns: to read; all numeric. One that is not in the file is NaN.
      report: called with a few words for each thing that is wrong.
      required: whether it is wrong that the file is not there.

    Returns:
      A table of `columns`, sorted by frames; NaN where a cell holds no finite number.
    """
    nothing = pd.DataFrame({column: pd.Series(dtype=float) for column in columns})
    text = _read_text(path, report if required else lambda what: None)
    if text is None:
        return nothing
    # Numbers are never quoted: a quotation mark is damage, and must not swallow what follows it.
    lines = [line.split(',') for line in text.splitlines()]
    if not lines or 'frames' not in lines[0]:
        report(f'{path.name} is empty' if not text.strip() else f'{path.name} has no header')
        return nothing
    header, body = lines[0], lines[1:]
    if not text.endswith('\n') and body:
        report(f'{path.name} ends within a row; that row is left out')
        body = body[:-1]
    # A hole of NUL, which a crash can leave, may join the halves of two rows.
    whole = [row for row in body if len(row) == len(header) and '\0' not in ''.join(row)]
    if len(whole) < len(body):
        report(f'{path.name}: {len(body) - len(whole)} damaged rows are left out')
    if not whole:
        report(f'{path.name} holds no row')
        return nothing
    missing = [column for column in columns if column not in header]
    if missing:
        report(f'{path.name} has no column {", ".join(missing)}')
    there = [column for column in columns if column in header]
    odd, kept = 0, []
    for row in whole:
        cells = dict(zip(header, row))
        numbers = {column: _number(cells[column]) for column in there}
        odd += sum(
            math.isnan(number) and cells[column].strip().lower() not in ('nan', '')
            for column, number in numbers.items()
        )
        kept.append(numbers)
    if odd:
        report(f'{path.name}: {odd} cells are no finite number')
    placed = [row for row in kept if not math.isnan(row['frames'])]
    if len(placed) < len(kept):
        report(f'{path.name}: {len(kept) - len(placed)} rows without frames are left out')
    if 'score' not in columns:
        once = list({row.get('iteration'): row for row in placed}.values())
        if len(once) < len(placed):
            report(
                f'{path.name}: {len(placed) - len(once)} rows repeat an iteration; '
                'the last one counts'
            )
        placed = once
    placed.sort(key=lambda row: row['frames'])
    return pd.DataFrame(placed, columns=list(columns), dtype=float)


def _number(text):
    """A finite number, else NaN."""
    try:
        number = float(text)
    except ValueError:
        return math.nan
    return number if math.isfinite(number) else math.nan


# What a run is a run of.


def row_of(config) -> str | None:
    """The row of the paper's tables that a configuration is, by its parts; None if none is."""
    posterior = _part(config, 'Runner.posterior')
    if posterior == 'LsviPosterior':
        return _LSVI.get(config.get('LsviPosterior.method'))
    update = _part(config, 'Runner.update')
    if not update:
        return None
    if config.get('Runner.evaluation_epsilon') == 1.0:
        return 'Random buttons'
    if posterior == 'UncertaintyBellmanPosterior':
        one_step = config.get('UncertaintyBellmanPosterior.n_steps') == 1
        return 'UBE, 1-step' if one_step else 'UBE'
    if posterior == 'BayesianLinearPosterior':
        return 'Bayesian-DQN'
    if posterior == 'AdaptivePosterior':
        return 'EBU, adaptive'
    if posterior not in ('', 'EnsemblePosterior') or _part(config, 'Runner.network') not in (
        '',
        'MultiHeadQNetwork',
        'LinearQNetwork',
    ):
        return None  # A part of one's own.
    bonus = _part(config, f'{update}.bonus') or None
    if config.get(f'{update}.alpha_1') == config.get(f'{update}.alpha_2') == 0:
        bonus = None  # Nothing of it is added.
    if bonus == 'UcbBonus' and _part(config, 'UcbBonus.measure') not in ('', 'ensemble_std'):
        return None
    acts_by = _part(config, 'Agent.preferences')
    if config.get('MultiHeadQNetwork.num_heads') != 1:
        return _ROWS.get((update, bonus, acts_by))
    if acts_by != 'mean_preferences' or bonus:
        return None
    noisy = config.get('MultiHeadQNetwork.noise') is not None
    if update == 'EpisodicUpdate':
        return 'noisy EBU' if noisy else 'EBU'
    if noisy:
        return 'NoisyNet' if config.get('MultiHeadQNetwork.dueling') else 'NoisyNet-DQN'
    return 'double DQN' if config.get('TransitionUpdate.double_q') else 'DQN'


def _part(config, binding):
    """What a binding refers to, without scope and module; '' for nothing."""
    return re.split(r'[./]', str(config.get(binding) or '').strip('@()'))[-1]


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
    """A key that sorts games as the paper's table does, others after them."""
    known = game in games.ATARI_49
    return (games.ATARI_49.index(game) if known else len(games.ATARI_49), game)


def bound(run, names, problems) -> dict[str, Any] | None:
    """{name: value} of bindings of a run; None, and a problem, if its config.gin lacks any."""
    missing = [name for name in names if name not in run.config]
    if missing:
        problems.append(f'{run.path}: left out, its config.gin lacks {", ".join(missing)}')
        return None
    return {name: run.config[name] for name in names}


def _natural(text):
    return [int(part) if part.isdigit() else part for part in re.split(r'(\d+)', text)]


def differences(runs) -> dict[str, dict[str, list[Run]]]:
    """{binding: {value as text: runs}} of the bindings in which runs of a method may not differ.

    Only bindings with two values and more; runs that lack a binding have '(not there)'.
    """
    seen = {}
    for run in runs:
        # The agent steps of an iteration go with the size of Deep Sea.
        of_size = {'Runner.training_steps'} if 'make_deep_sea.size' in run.config else ()
        for binding, value in run.config.items():
            if not _FREE.fullmatch(binding) and binding not in of_size:
                seen.setdefault(binding, {}).setdefault(repr(value), []).append(run)
    different = {binding: values for binding, values in seen.items() if len(values) > 1}
    for values in different.values():
        having = {id(run) for group in values.values() for run in group}
        lacking = [run for run in runs if id(run) not in having]
        if lacking:
            values['(not there)'] = lacking
    return dict(sorted(different.items()))


def _apart(runs, named, problems):
    """Runs of one row whose configurations differ get names of their own."""
    by_method = {}
    for run in runs:
        by_method.setdefault(run.method, []).append(run)
    result = []
    for method, group in by_method.items():
        different = differences(group)
        if not different:
            result += group
        elif method in named:
            problems.append(
                f'{method} pools runs whose configurations differ: {_in_words(different)}'
            )
            result += group
        else:
            result += _variants(method, group, different)
    return result


def _variants(method, group, different):
    """The runs of a row under names that tell their configurations apart."""
    values = {id(run): [] for run in group}
    for by_value in different.values():
        for value, members in by_value.items():
            for run in members:
                values[id(run)].append(value)
    variants = {}
    for run in group:
        variants.setdefault(tuple(values[id(run)]), []).append(run)
    names = [binding.rpartition('.')[2] for binding in different]
    labels = _labels(names, variants)
    return [
        run._replace(method=f'{method} ({label})')
        for label, members in zip(labels, variants.values())
        for run in members
    ]


def _labels(names, variants):
    """One for each variant: its folder, its value of one binding or of up to three, or a number."""
    folders = [
        {_by_path(run.path, run.config.get('make_environment.name'))[0] for run in members}
        for members in variants.values()
    ]
    if len(set.union(*folders) - {None}) == sum(map(len, folders)) == len(folders):
        return [folder for (folder,) in folders]
    for name, of_all in zip(names, zip(*variants)):
        if len(set(of_all)) == len(of_all):
            return [f'{name} {value}' for value in of_all]
    if len(names) <= 3:
        return [', '.join(f'{n} {v}' for n, v in zip(names, key)) for key in variants]
    return [f'variant {number}' for number, _ in enumerate(variants, 1)]


def _in_words(different, most=4):
    texts = [
        f'{binding} is ' + ' or '.join(f'{v} ({len(r)} runs)' for v, r in values.items())
        for binding, values in different.items()
    ]
    more = f' and {len(texts) - most} more' if len(texts) > most else ''
    return '; '.join(texts[:most]) + more


def _without_duplicates(runs, problems):
    kept = {}
    for run in runs:
        key = run.method, run.game, run.seed
        other = kept.get(key)
        if other is None:
            kept[key] = run
            continue
        better, worse = (run, other) if _reached(run) > _reached(other) else (other, run)
        problems.append(
            f'{worse.path}: left out, {better.path} is the same method, game and seed '
            f'({", ".join(key)}) and at least as long'
        )
        kept[key] = better
    return list(kept.values())


def _reached(run):
    return max([-1, *(table['frames'].max() for table in (run.eval, run.train) if len(table))])
