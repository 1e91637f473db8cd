"""The studies' README files, and the links of all Markdown files."""

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
STUDIES = sorted(path.parent.name for path in ROOT.glob('experiments/*/__main__.py'))


@pytest.mark.parametrize('study', STUDIES)
def test_a_study_begins_with_its_question_command_and_answer(study):
    text = (ROOT / 'experiments' / study / 'README.md').read_text()
    found = [
        text.index(part) for part in ('**Question.**', f'-m experiments.{study} ', '**Answer.**')
    ]
    assert found == sorted(found)
    assert f'({study}/README.md)' in (ROOT / 'experiments' / 'README.md').read_text()
    assert f' experiments/{study}/README.md\n' in (ROOT / 'mkdocs.yml').read_text()


def test_links_lead_somewhere():
    files = [
        *ROOT.glob('*.md'),
        *(
            path
            for name in ('docs', 'experiments', 'third_party')
            for path in (ROOT / name).rglob('*.md')
        ),
    ]
    links = [
        (path, link)
        for path in files
        for link in re.findall(r'\]\(([^)#\s]+)', path.read_text())
        if '://' not in link
    ]
    assert len(links) > 30
    assert [(p, link) for p, link in links if not (p.parent / link).exists()] == []
