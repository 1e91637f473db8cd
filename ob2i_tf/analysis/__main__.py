"""Writes a report on run folders: tables, figures and a page alongside the published results.

  python -m ob2i_tf.analysis runs --out report
  python -m ob2i_tf.analysis "Mine=runs/my_gin_file" runs/ob2i_atari --out report

Exit status: 0 if the report was written, 1 if not, 2 if the command line is wrong.
"""

import os
import sys

from ob2i_tf import cli


@cli.command()
def main(argv=None):
    """Runs the command line; returns the exit status."""
    parser = cli.parser('ob2i_tf.analysis', __doc__)
    parser.add_argument(
        'runs',
        nargs='+',
        metavar='RUNS',
        help='a folder that holds run folders at any depth; NAME=FOLDER names their method',
    )
    parser.add_argument(
        '--out', required=True, type=os.path.expanduser, metavar='DIR', help='folder for the report'
    )
    parser.add_argument(
        '--score',
        choices=('last', 'best'),
        default='last',
        help='which evaluation counts as the score of a run (default: last)',
    )
    parser.add_argument(
        '--method',
        help='method whose relative scores are drawn (default: OB2I, else the first)',
    )
    arguments = parser.parse_args(argv)
    with cli.extra('analysis'):
        from ob2i_tf.analysis import report  # Takes seconds: pandas, matplotlib.
    print(report.write(arguments.runs, arguments.out, arguments.score, arguments.method))
    return 0


if __name__ == '__main__':
    sys.exit(main())
