"""The gin layer: errors name the wrong binding, and config.gin alone reproduces a run."""

import os
import random
import re
import subprocess
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Annotated, Literal

import gin
import numpy as np
import pytest

from ob2i_tf import config, environments
from ob2i_tf.config import checking, renamed, values
from ob2i_tf.errors import ConfigError
from ob2i_tf.parameters import AtLeast, Selects, Within, checked
from tests.processes import start

ROOT = Path(__file__).resolve().parents[2]


@gin.configurable(module='config_test')
def decay(step, rate: float = 0.5):
    return rate**step


@gin.configurable(module='config_test')
def quick_decay(step, rate: float = 0.1):
    return rate**step


@gin.configurable(module='config_test')
class Early:
    def __init__(
        self, network, beta: float = 0.5, greedy: Literal['initial', 'updated'] = 'initial'
    ):
        self.beta, self.greedy = beta, greedy


@gin.configurable(module='config_test')
class Bonus:
    def __init__(self, weight: float = 1.0, **kwargs):
        self.weight = weight


@gin.configurable(module='config_test')
class Late:
    def __init__(self, network, double_q: bool = False, bonus: Bonus | None = None):
        self.double_q, self.bonus = double_q, bonus


@gin.configurable(module='config_test', denylist=['seed'])
class Store:
    def __init__(self, capacity: int = 100, seed: int = 0, unit=float('inf')):
        self.capacity = capacity


@gin.configurable(module='config_test')
class Trial:
    def __init__(
        self,
        base_dir,
        seed: int = 0,
        update: Callable = Early,
        schedule: Callable = decay,
        layers: Sequence[tuple[int, int]] = ((32, 8),),
        name: str | None = None,
        size: int | str = 1,
        tags=(),
        phases: Sequence[Literal['a', 'b']] = (),
        share: Annotated[float, Within(0, 1)] = 0.5,
        sizes: Sequence[Annotated[int, AtLeast(1)]] = (),
    ):
        self.seed, self.update, self.layers = seed, update, layers


@gin.configurable(module='config_test')
class Picky:
    def __init__(self, needed: int = gin.REQUIRED):
        self.needed = needed


@gin.configurable(module='config_test')
class EnvironmentTrial:
    def __init__(self, seed: int = 0):
        self.seed = seed


config.uses('Trial', 'Store', 'test/Store')
config.uses('EnvironmentTrial', 'make_environment')
PARTS = {'a': Early, 'b': Late}


@pytest.fixture(autouse=True)
def clean_gin():
    yield
    gin.clear_config()


def load(*bindings, files=(), root='Trial'):
    config.load(files, bindings, roots=(root,))


def resolved(root='Trial'):
    return config.resolved_config(roots=(root,))


def write(folder, name, text):
    path = folder / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)
    return str(path)


def test_bindings_reach_gin():
    load('Trial.seed = 3', 'rate = .25', 'decay.rate = %rate', 'Trial.layers = [(1, 2), (3, 4)]')
    trial = Trial('x')
    assert trial.seed == 3
    assert trial.layers == [(1, 2), (3, 4)]
    assert decay(2) == 0.0625
    assert config.value('Trial.seed', roots=('Trial',)) == 3
    assert config.value('decay.rate', roots=('Trial',)) == 0.25
    assert config.value('Early.beta', roots=('Trial',)) == 0.5


def test_block_syntax_and_scopes():
    load(
        'Trial:\n  seed = 2\n  update = @slow/Early\n',
        'slow/Early.beta = .75',
        'Early.beta = .5',
        'test/Store.capacity = 7',
    )
    assert Trial('x').update(None).beta == 0.75
    assert Early(None).beta == 0.5
    with gin.config_scope('test'):
        assert Store().capacity == 7
    assert Store().capacity == 100
    assert 'slow/Early.beta = 0.75' in resolved()


WRONG = [
    ('Trial.sed = 1', "no parameter 'sed' (did you mean 'seed'?)"),
    ('Trail.seed = 1', "no configurable named 'Trail' (did you mean 'Trial'"),
    ('trial.seed = 1', "no configurable named 'trial' (did you mean 'Trial'"),
    ('Trial.weight = 1', "no parameter 'weight' (did you mean Bonus.weight?)"),
    ('Trial.wieght = 1', "no parameter 'wieght' (did you mean Bonus.weight?)"),
    ('Trial.size = @gin.macro()', '@gin.macro() is not a macro reference'),
    ('Trial.size = @x/macro()', 'is not a macro reference'),
    ('Trial.update = @Earli', "no configurable named 'Earli' (did you mean 'Early'"),
    ('Trial.base_dir = "x"', 'cannot be bound'),
    ('Early.network = 1', 'cannot be bound'),
    ('Store.seed = 1', 'cannot be bound: it is supplied by the caller'),
    ('decay.step = 1', 'cannot be bound: it is supplied by the caller'),
    ("Trial.phases = 'a'", "got 'a' (write ('a',))"),
    ('Trial.seed = 1e3', 'expected int, got 1000.0 (write 1000)'),
    ('Trial.seed = 1.5', 'expected int, got 1.5'),
    ('Trial.seed = True', 'expected int, got True'),
    ("Trial.seed = '1'", "expected int, got '1'"),
    ('Trial.seed = None', 'expected int, got None'),
    ('Trial.seed = @decay', 'expected int, got @decay (write @decay() for its result)'),
    ('Late.bonus = @Bonus\nTrial.update = @Late', 'expected Bonus or None, got @Bonus (write @B'),
    ('Trial.share = 1.5', 'expected in 0..1, got 1.5'),
    ('Trial.share = -1e-9', 'expected in 0..1, got -1e-09'),
    ("Trial.share = '1'", "expected float, got '1'"),
    ('Trial.sizes = (1, 0)', 'expected a sequence of int at least 1, got (1, 0)'),
    ('size = 0\nTrial.sizes = [%size]', 'expected a sequence of int at least 1, got [0]'),
    ('Early.beta = True', 'expected float, got True'),
    ("Early.greedy = 'initail'", "got 'initail' (did you mean 'initial'?)"),
    ('Trial.update = 5', 'expected a function or class, got 5'),
    ('Trial.layers = 5', 'expected a sequence of (int, int), got 5'),
    ("Trial.layers = '32'", 'expected a sequence'),
    ('Trial.layers = [(1, 2, 3)]', 'expected a sequence'),
    ('Trial.layers = [(1, 2.)]', 'expected a sequence'),
    ('Trial.name = 3', 'expected str or None, got 3'),
    ('Trial.size = 1.', 'expected int or str, got 1.0'),
    ('Trial.tags = 2j', 'gin cannot express'),
    ('Trial.tags = 1e999', 'gin cannot express'),
    ('Trial.seed = %sed', "macro 'sed' is not defined"),
    ('sed = 3', 'a macro that nothing in this run uses'),
    ('a = %b\nb = %a\nTrial.seed = %a', 'is defined in terms of itself'),
    ('Late.double_q = True', 'nothing in this run uses Late'),
    ('tset/Store.capacity = 3', "enters the scope 'tset' (did you mean 'test'?)"),
    ('Trial.update = @Late\nLate.bonus = @Bonus()\nBonus.wieght = 1', "(did you mean 'weight'?)"),
    ('Trial.seed = %gin.REQUIRED', 'Trial.seed must be bound'),
    ('Trial.update = @a.b/Late', 'the scope of @a.b/Late has a dot'),
    ('Trial.seed', 'not gin syntax'),
    ('Trial.seed =', 'not gin syntax'),
    ('Trial.seed = [1', 'not gin syntax'),
    ('Trial.seed = 1 2', 'not gin syntax'),
    ('Trial.name = Breakout', "'Breakout' is not a valid value (strings need quotes)"),
    ('Trial.tags = {[1]: 2}', 'not gin syntax'),
    ('Trial:\nseed = 1', 'not gin syntax'),
    (
        'import no_such_module_here',
        "No module named 'no_such_module_here' in the working directory, on PYTHONPATH or",
    ),
    ('from __gin__ import dynamic_registration', 'only `import module`'),
    ("include 'no.gin'", "gin file 'no.gin' not found"),
]


@pytest.mark.parametrize('binding, message', WRONG)
def test_wrong_bindings(binding, message):
    with pytest.raises(ConfigError) as error:
        load(binding)
    assert message in str(error.value)
    assert str(error.value).startswith(f'--gin_bindings={binding!r}')


@pytest.mark.parametrize('binding, message', WRONG)
def test_wrong_files_are_named_with_the_line(tmp_path, binding, message):
    path = write(tmp_path, 'wrong.gin', f'# A comment.\nTrial.size = 2\n{binding}\n')
    with pytest.raises(ConfigError) as error:
        load(files=[path])
    assert message in str(error.value)
    assert re.search(r'wrong\.gin:[3-6]: ', str(error.value))


@pytest.mark.parametrize(
    'binding',
    [
        'Early.beta = 1',
        "Trial.name = 'a'",
        'Trial.name = None',
        "Trial.size = 'big'",
        'Trial.layers = ()',
        'Trial.seed = -1',
        'Trial.tags = {"a": [1, (2,), None]}',
        'Trial.schedule = @decay',
        'config_test.Trial.seed = 1',
        'Trial.tags = (@Bonus(), @Late)',
        'Trial.share = 0',
        'Trial.share = 1.0',
        'Trial.sizes = [1, 2]',
        'Trial.sizes = ()',
        'Trial.seed = 1  # a comment',
        'seed/macro.value = 2\nTrial.seed = %seed',
        'Trial.seed = 1\nTrial.seed = 2',
    ],
)
def test_right_bindings(binding):
    load(binding)
    text = resolved()
    load(text)
    assert resolved() == text


def test_required_parameters():
    with pytest.raises(ConfigError, match='^Picky.needed must be bound$'):
        load(root='Picky')
    load('Picky.needed = 3', root='Picky')
    assert Picky().needed == 3


def test_files_override_each_other_and_include(tmp_path):
    write(tmp_path, 'base/base.gin', 'Trial.seed = 1\nTrial.size = 1\nEarly.beta = .1\n')
    row = write(tmp_path, 'row.gin', "include 'base/base.gin'\nTrial.seed = 2\nEarly.beta = .2\n")
    other = write(tmp_path, 'other.gin', 'Trial.seed = 3')
    load('Early.beta = .4', files=[row, other])
    assert Trial('x').seed == 3
    assert Early(None).beta == 0.4
    loop = write(tmp_path, 'loop.gin', "include 'loop.gin'")
    with pytest.raises(ConfigError, match=r'loop\.gin:1: .*includes itself'):
        load(files=[loop])
    (tmp_path / 'binary.gin').write_bytes(b'\xff\xfe\x00')
    with pytest.raises(ConfigError, match='cannot be read'):
        load(files=[str(tmp_path / 'binary.gin')])


@pytest.mark.parametrize(
    'content, message',
    [
        (None, "gin file '{path}' cannot be read: [Errno 21] Is a directory: '{path}'"),
        ('Trial.seed = 1\n\0', '{path}:2: not gin syntax: a NUL character'),
        ('\n', 'no binding in {path}'),
        ('# Trial.seed = 1', 'no binding in {path}'),
    ],
)
def test_files_without_readable_bindings(tmp_path, content, message):
    path = tmp_path / 'file.gin'
    path.mkdir() if content is None else path.write_text(content)
    with pytest.raises(ConfigError) as error:
        load('Trial.seed = 2', files=[str(path)])
    assert str(error.value) == message.format(path=path)


def test_unused_bindings_of_a_replaced_part(tmp_path):
    """Bindings of a file may become unused; a flag must be used in the end."""
    early = write(tmp_path, 'early.gin', 'beta = .9\nTrial.update = @Early\nEarly.beta = %beta\n')
    load('Trial.update = @Late', files=[early])
    assert 'Early' not in resolved()
    late = write(tmp_path, 'late.gin', f'include {early!r}\nTrial.update = @Late\n')
    load(files=[late])
    for binding in ('Early.beta = .3', 'beta = .3'):
        with pytest.raises(ConfigError, match='nothing in this run uses'):
            load('Trial.update = @Late', binding, files=[early])
    never = write(tmp_path, 'never.gin', 'Late.double_q = True')
    with pytest.raises(ConfigError, match='never.gin:1: Late.double_q: nothing in this run uses'):
        load(files=[never])
    load('Trial.update = @Late', files=[never])
    assert Late(None).double_q


def test_reachable_through_macros_and_containers():
    load(
        'part = [{"a": @Late()}]',
        'Trial.tags = %part',
        'Late.double_q = True',
        'Late.bonus = @Bonus()',
        'Bonus.weight = 2',
    )
    assert 'Bonus.weight = 2' in resolved()
    assert "Trial.tags = [{'a': @Late()}]" in resolved()


def test_environment_names_and_keywords():
    with pytest.raises(ConfigError, match='^make_environment.name must be bound$'):
        load(root='EnvironmentTrial')
    with pytest.raises(ConfigError, match='make_environment.name: expected str, got 3'):
        load('make_environment.name = 3', root='EnvironmentTrial')
    with pytest.raises(ConfigError) as error:
        load("make_environment.name = 'Braekout'", root='EnvironmentTrial')
    assert 'make_environment.name' in str(error.value) and 'reakout' in str(error.value)
    assert '\n' not in str(error.value)
    name = "make_environment.name = 'Q*Bert'"
    for misspelt in ('frame_skp', 'frame_skip'):  # Of another configurable.
        with pytest.raises(
            ConfigError, match=rf'{misspelt}.*\(did you mean make_atari.frame_skip\?'
        ):
            load(name, f'make_environment.{misspelt} = 1', root='EnvironmentTrial')
    with pytest.raises(ConfigError, match=r'make_atari.frame_skp.*did you mean .*frame_skip'):
        load(name, 'make_atari.frame_skp = 1', root='EnvironmentTrial')
    with pytest.raises(ConfigError, match='expected int'):
        load(name, 'make_atari.frame_skip = 1e0', root='EnvironmentTrial')
    with pytest.raises(ConfigError, match='nothing in this run uses make_deep_sea'):
        load(name, 'make_deep_sea.size = 4', root='EnvironmentTrial')
    for what in ('make_environment.seed', 'make_atari.seed', 'make_atari.num_envs'):
        with pytest.raises(ConfigError, match='cannot be bound'):
            load(name, f'{what} = 2', root='EnvironmentTrial')
    sea = "make_environment.name = 'DeepSea'"
    for what in ('make_environment.seed', 'make_deep_sea.seed', 'make_deep_sea.num_envs'):
        with pytest.raises(ConfigError, match=f'{what}: cannot be bound'):
            load(sea, f'{what} = 2', root='EnvironmentTrial')
    load(sea, 'make_deep_sea.size = 4', root='EnvironmentTrial')
    text = resolved('EnvironmentTrial')
    assert 'make_deep_sea.size = 4' in text and 'make_deep_sea.seed' not in text
    load(*text.splitlines(), root='EnvironmentTrial')
    gymnasiums = "make_environment.name = 'CartPole-v1'"
    load(gymnasiums, 'make_gymnasium.max_episode_steps = 20', root='EnvironmentTrial')
    assert 'make_gymnasium.max_episode_steps = 20' in resolved('EnvironmentTrial')
    for wrong, message in (
        ('CartPol-v1', "did you mean 'CartPole-v1'"),
        ('ALE/Pong-v5', "'ALE/Pong-v5' is an Atari game: write 'pong'"),
    ):
        with pytest.raises(ConfigError, match=message):
            load(f'make_environment.name = {wrong!r}', root='EnvironmentTrial')


@gin.configurable(module='config_test')
class ReferencingTrial:
    """As Runner: all parts, the environment too, are references."""

    def __init__(
        self,
        environment: Callable = environments.make,
        part: Annotated[str, Selects(PARTS.get)] = 'a',
    ):
        self.environment, self.part = environment, part


def test_parts_are_reached_through_default_references_and_selections():
    root = 'ReferencingTrial'
    with pytest.raises(ConfigError, match='^make_environment.name must be bound$'):
        load(root=root)
    sea = "make_environment.name = 'DeepSea'"
    load(sea, 'make_deep_sea.size = 4', 'Early.beta = 0.25', root=root)
    text = resolved(root)
    assert 'environment = @make_environment' in text and 'make_deep_sea.size = 4' in text
    load(*text.splitlines(), root=root)
    load(sea, "ReferencingTrial.part = 'b'", 'Late.double_q = True', root=root)
    with pytest.raises(ConfigError, match='nothing in this run uses Early'):
        load(sea, "ReferencingTrial.part = 'b'", 'Early.beta = 0.25', root=root)


def test_renamed_bindings_are_named(monkeypatch, tmp_path):
    new = {'Trial.sead': 'Trial.seed', 'Erly': 'Early', 'Trial.kind': "Trial.name ('a' or 'b')"}
    monkeypatch.setattr(checking, 'RENAMED', new)
    for binding, message in (
        ('Trial.sead = 1', 'Trial.sead: Trial.sead is now called Trial.seed'),
        ('config_test.Trial.sead = 1', 'Trial.sead is now called Trial.seed'),
        ('Erly.beta = 1', 'Erly.beta: Erly is now called Early'),
        ('Trial.update = @Erly', 'Trial.update: Erly is now called Early'),
        ('Trial.kind = 0', "Trial.kind is now called Trial.name ('a' or 'b')"),
    ):
        path = write(tmp_path, 'old.gin', f'\n{binding}\n')
        with pytest.raises(ConfigError) as error:
            load(files=[path])
        assert f'{path}:2: ' in str(error.value) and str(error.value).endswith(message)


def test_the_table_of_renamed_bindings_is_true():
    from ob2i_tf import released  # noqa: F401, which no other module imports
    from ob2i_tf.training import runner  # noqa: F401, which registers all other parts

    for old, new in renamed.RENAMED.items():
        with pytest.raises(ConfigError, match='is now called'):
            load(f'{old} = 1' if '.' in old else f'{old}.x = 1')
        name, _, parameter = new.partition(' ')[0].partition('.')
        assert not parameter or parameter in values.bindable(values.selector(name))


def test_resolved_config_holds_defaults_and_nothing_else():
    load('Trial.seed = 4', 'test/Store.capacity = 5', 'Early.greedy = "updated"')
    text = resolved()
    assert text == (
        'decay.rate = 0.5\n\n'
        "Early.beta = 0.5\nEarly.greedy = 'updated'\n\n"
        'Store.capacity = 100\n\n'
        'test/Store.capacity = 5\n\n'
        'Trial.layers = ((32, 8),)\nTrial.name = None\nTrial.phases = ()\n'
        'Trial.schedule = @decay\nTrial.seed = 4\nTrial.share = 0.5\n'
        'Trial.size = 1\nTrial.sizes = ()\nTrial.tags = ()\nTrial.update = @Early\n'
    )
    load(text)
    assert resolved() == text
    gin.clear_config()
    gin.parse_config(text + 'x = 1\nTrial.size = %x')  # gin's own parser takes it too.
    assert resolved() == text


def test_imports_are_repeated(tmp_path, monkeypatch):
    text = 'import gin\n@gin.configurable\ndef mine(step, power: int = 2):\n  return 0\n'
    write(tmp_path, 'my_parts.py', text)
    monkeypatch.syspath_prepend(tmp_path)
    load('import my_parts', 'Trial.schedule = @mine', 'mine.power = 3')
    text = resolved()
    assert text.startswith('import my_parts\n') and 'mine.power = 3' in text
    load(text)
    assert resolved() == text


def test_mutated_bindings_end_in_a_config_or_a_config_error():
    wrong, right = (
        [binding for binding, _ in WRONG],
        [
            'Trial.seed = 3',
            'test/Store.capacity = 3',
            'x = 3\nTrial.seed = %x',
            "Trial.layers = ((32, 8), (64, 4))\nTrial.name = 'a'",
            'Trial.update = @test/Late',
            'Trial:\n  seed = 1\n  size = 2\n',
        ],
    )
    rng = random.Random(0)
    alphabet = '@%()[]{}.,:/=\'"\\\n \t#-+0123456789eEjxTrialseed_$?!;*\x00\xe9'
    outcomes = {True: 0, False: 0}
    for _ in range(800):
        text = rng.choice(rng.choice([wrong, right]))
        for _ in range(rng.randint(1, 2)):
            at = rng.randrange(len(text) + 1)
            cut = at + rng.choice([0, 0, 1, 3])
            new = rng.choice(['', rng.choice(alphabet), rng.choice(wrong + right)])
            text = text[:at] + new + text[cut:]
        if 'import' in text:
            continue
        try:
            load(text)
        except ConfigError as error:
            assert str(error)
            outcomes[False] += 1
        else:
            load(resolved())
            outcomes[True] += 1
    assert min(outcomes.values()) > 20


ATARI = '--gin_files=ob2i_atari.gin'


@pytest.mark.parametrize(
    'arguments, parts',
    [
        ([], ['no --gin_files given', 'ob2i_atari.gin']),
        (['ob2i_atari.gin'], ['unexpected argument', 'ob2i_atari.gin']),
        ([ATARI, '--gin_binding=Runner.seed=1'], ['gin_binding']),
        (['--gin_files=ob2i_atri.gin'], ['ob2i_atri.gin', 'not found', 'ob2i_atari.gin']),
        ([ATARI, '--gin_bindings=Runner.seed = '], ['Runner.seed', 'not gin syntax']),
        ([ATARI, '--gin_bindings=Runner.sed = 1'], ['Runner.sed', "did you mean 'seed'"]),
        ([ATARI, '--gin_bindings=Runner.num_iterations = 1e3'], ['num_iterations', 'write 1000']),
        ([ATARI, '--gin_bindings=Runner.num_iterations = -1'], ['Runner.num_iterations']),
        ([ATARI, '--gin_bindings=make_environment.name = "Braekout"'], ['name', "'Breakout'"]),
        ([ATARI, '--gin_bindings=EpisodicUpdate.greedy = "intial"'], ['greedy', "'initial'"]),
        ([ATARI, '--gin_bindings=EpisodicUpdate.bonus = @UcbBonus'], ['@UcbBonus()']),
        ([ATARI, '--gin_bindings=EpisodeReplay.history = 2'], ['EpisodeReplay.history']),
        ([ATARI, '--gin_bindings=MultiHeadQNetwork.seed = 2'], ['MultiHeadQNetwork.seed']),
        ([ATARI, '--gin_bindings=Runner.num_envs = 7'], ['Runner.num_envs = 7']),
        (
            [ATARI, '--gin_bindings=TransitionUpdate.double_q = True'],
            ['uses TransitionUpdate; Runner.update is @EpisodicUpdate'],
        ),
    ],
)
def test_a_wrong_command_line_ends_with_one_line(tmp_path, arguments, parts):
    process = start(
        ['run_experiment.py', *arguments, f'--base_dir={tmp_path}/run'],
        output=tmp_path / 'stderr',
        cwd=tmp_path,
    )
    process.join(timeout=120)
    printed = (tmp_path / 'stderr').read_text()
    assert process.exitcode == 2, printed
    last = printed.splitlines()[-1]
    assert last.startswith('error: ')
    assert all(part in last for part in parts), last
    assert 'Traceback' not in printed
    assert not (tmp_path / 'run' / 'train.csv').exists()


def test_help():
    done = subprocess.run(
        [sys.executable, os.path.join(ROOT, 'run_experiment.py'), '--help'],
        capture_output=True,
        text=True,
        check=True,
    )
    assert '--gin_files' in done.stdout and 'ob2i_atari.gin' in done.stdout


def test_a_configuration_that_needs_more_memory_than_there_is_is_wrong():
    memory = pytest.raises(
        ConfigError, match='not enough memory for this configuration: .*10000000000'
    )
    with memory, config.construction_errors():
        np.empty((10**10, 10**7))
    gin.bind_parameter('make_linear_mdp.horizon', 10_000)
    gin.bind_parameter('make_linear_mdp.num_states', 10_000)
    gin.bind_parameter('make_linear_mdp.num_actions', 10_000)
    memory = pytest.raises(ConfigError, match='not enough memory for make_linear_mdp: Unable to')
    with memory, config.construction_errors():
        environments.make('LinearMDP')


def test_bindings_of_a_base_class_reach_its_subclass():
    @gin.configurable('DerivedTrial', module='config_test')
    class DerivedTrial(Early):
        def __init__(self, extra: int = 0, **keywords):
            super().__init__(**keywords)

    load('Trial.update = @DerivedTrial', 'Early.beta = 0.25', 'DerivedTrial.extra = 2')
    assert 'Early.beta = 0.25' in resolved() and 'DerivedTrial.extra = 2' in resolved()


@gin.configurable(module='config_test', denylist=['network'])
class Demanding:
    """Its parameters are checked, so that gin sees what must be bound."""

    @checked
    def __init__(self, network, size: int = gin.REQUIRED, decay: float = 0.5, seed: int = 0):
        self.size, self.decay = size, decay


@gin.configurable(module='config_test', denylist=['seed'])
class Heir(Demanding):
    pass


@gin.configurable(module='config_test')
class HeirOfHeir(Heir):
    pass


def test_the_part_in_place_of_an_unused_one_is_named():
    with pytest.raises(ConfigError, match='nothing in this run uses Late$'):
        load('Late.double_q = True')
    with pytest.raises(ConfigError, match='uses Heir; Trial.update is @Demanding$'):
        load('x = @Demanding', 'Trial.update = %x', 'Demanding.size = 3', 'Heir.size = 4')
    with pytest.raises(ConfigError, match='uses quick_decay; Trial.schedule is @decay$'):
        load('quick_decay.rate = 0.1')


def test_a_binding_of_a_base_class_is_one_of_a_subclass_without_a_constructor():
    load('Trial.update = @HeirOfHeir', 'Demanding.size = 3', 'Heir.decay = 0.25')
    made = HeirOfHeir(None)
    assert (made.size, made.decay) == (3, 0.25)
    text = resolved()
    assert 'HeirOfHeir.decay = 0.25\nHeirOfHeir.size = 3\n\n' in text
    assert '\nHeir.' not in text and 'Demanding' not in text
    load(text)
    assert resolved() == text
    made = HeirOfHeir(None)
    assert (made.size, made.decay) == (3, 0.25)


def test_what_a_subclass_binds_itself_wins():
    load(
        'Trial.update = @a/Heir', 'Heir.size = 3', 'Demanding.size = 2', 'a/Demanding.decay = 0.75'
    )
    with gin.config_scope('a'):
        made = Heir(None)
    assert (made.size, made.decay) == (3, 0.75)
    text = resolved()
    load(text)
    assert resolved() == text and 'a/Heir.decay = 0.75\na/Heir.size = 3\n' in text


def test_errors_of_bindings_that_a_subclass_inherits():
    with pytest.raises(ConfigError, match='^Heir.size must be bound$'):
        load('Trial.update = @Heir')
    with pytest.raises(ConfigError, match="Demanding.size: expected int, got '3'"):
        load('Trial.update = @Heir', "Demanding.size = '3'")
    with pytest.raises(ConfigError, match='nothing in this run uses Heir'):
        load('Trial.update = @Demanding', 'Demanding.size = 3', 'Heir.size = 4')
    for name in ('HeirOfHeir.seed', 'Heir.seed', 'Heir.network'):
        with pytest.raises(ConfigError, match=f'{name}: cannot be bound'):
            load('Trial.update = @HeirOfHeir', 'Demanding.size = 3', f'{name} = 1')
