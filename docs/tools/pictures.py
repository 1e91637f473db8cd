"""Draws docs/report.png and docs/viewer.png, screenshots of pages made from data in the repository.

  .venv/bin/python -m docs.tools.pictures docs

It needs Chromium: apt-get install chromium chromium-driver.
"""

import sys
import tempfile
from pathlib import Path

from ob2i_tf.analysis import __main__ as report
from ob2i_tf.analysis import episode
from tests.browser import Driver

RUNS = (  # A run has the first of its names.
    'Random policy=experiments/atari_small/Breakout/random',
    'Random policy=experiments/atari_small/RoadRunner/random',
    'OB2I=experiments/atari_small',
)
SPIKE = 3  # Shown in the viewer.


def main(folder: str) -> None:
    with tempfile.TemporaryDirectory() as scratch:
        browser = Driver()
        try:
            report.main([*RUNS, '--out', scratch])
            browser.screen(1200, 1130)
            browser.open(Path(scratch, 'report.html'))
            Path(folder, 'report.png').write_bytes(browser.screenshot())
            browser.screen(1200, 780)
            browser.open(episode.write(episode.record('ob2i_breakout'), scratch))
            browser.run(f"document.querySelectorAll('#spikes button')[{SPIKE - 1}].click()")
            Path(folder, 'viewer.png').write_bytes(browser.screenshot())
        finally:
            browser.close()


if __name__ == '__main__':
    main(*sys.argv[1:])
