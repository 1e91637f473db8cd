"""Plays the game that docs/results/game.md shows, and writes it to a folder.

  .venv/bin/python docs/tools/game.py build/docs

The page names the agent and its command, so that AGENT is the only place to change.
"""

import sys
from pathlib import Path

from ob2i_tf.analysis import episode

AGENT = 'ob2i_breakout'  # A name in agents/.
TEXT = f"""`python -m ob2i_tf.analysis.episode {AGENT} --out viewer` writes this viewer.
It can also be [opened alone](../game/episode.html).

<iframe class="viewer" src="../game/episode.html" title="A game in the viewer"></iframe>
"""


def main(folder: str) -> None:
    episode.write(episode.record(AGENT), Path(folder) / 'game')
    (Path(folder) / 'game.md').write_text(TEXT)


if __name__ == '__main__':
    main(*sys.argv[1:])
