"""The commands in the README work exactly as printed."""

import re

import pytest

from ob2i_tf import config
from ob2i_tf.training import runner  # noqa: F401, which registers all parts
from tests.markdown import ROOT, bound_by, commands, read

TEXTS = ('README.md', 'CONTRIBUTING.md', *sorted(f'docs/{p.name}' for p in ROOT.glob('docs/*.md')))


def test_the_first_run_is_that_of_the_tutorial():
    """tests/test_docs.py trains that run."""
    first, tutorial = (
        next(words for words in commands(read(name)) if words[0] == 'run_experiment.py')
        for name in ('README.md', 'docs/tutorial.md')
    )
    assert bound_by(first) == bound_by(tutorial)


@pytest.mark.parametrize('name', TEXTS)
def test_every_configuration_that_is_shown_is_accepted(name, clean_gin):
    own = ('softmax.gin', 'mine.gin')  # Trained by other tests.
    for words in commands(read(name)):
        files, bindings = bound_by(words)
        if files and files[0] not in own and 'bta' not in str(bindings):
            config.load(files, bindings)


def test_every_make_target_that_is_named_exists():
    targets = set(re.findall(r'^([a-z]+):', read('Makefile'), re.M))
    named = {
        target
        for name in TEXTS
        for target in re.findall(r'^make ([a-z]+)|`make ([a-z]+)', read(name), re.M)
    }
    assert {one or other for one, other in named} == targets - {'clean'}
