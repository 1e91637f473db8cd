"""Griffe extension: the project's docstrings as Markdown.

In a docstring, lines indented by two spaces are a list, and one entry may describe several names.
"""

import re

import griffe

_SECTION = re.compile(r'(Args|Attributes|Returns|Raises):$')
_NAMED = r"['\w]+(?:, ['\w]+)*(?: \[[^]]*\])?(?: \([^)]*\))?(?: \w+)?: "
_GROUP = re.compile(r'  (\w+(?:, \w+)+): (.*)$')


class MarkdownDocstrings(griffe.Extension):
    def on_instance(self, *, obj, **kwargs):
        if obj.docstring:
            obj.docstring.value = markdown(obj.docstring.value)


def markdown(docstring: str) -> str:
    """A docstring with its lists in Markdown, and an entry for each name."""
    text: list[str] = []
    names: list[str] = []
    lists, entries, in_list = True, False, False
    for line in docstring.splitlines():
        if _SECTION.match(line):
            lists, entries = False, line in ('Args:', 'Attributes:')
        if lists and re.match(r'  \S', line):
            in_list = True
            text += ['', f'- {line.strip()}']
        elif in_list and re.match('    ' + _NAMED, line):
            text += ['', f'    - {line.strip()}']
        elif entries and (group := _GROUP.match(line)):
            names = group[1].split(', ')
            text += [f'  {name}: {group[2]}' for name in names]
        elif entries and names and re.match(r'    \s*\S', line):
            # Each name of a group has the complete description.
            text[-len(names) :] = [f'{entry} {line.strip()}' for entry in text[-len(names) :]]
        else:
            names = []
            in_list = in_list and line.startswith(' ')
            text.append(line)
    return '\n'.join(text)
