"""Runs dqn_atari.py of a clone of CleanRL with Gymnasium 1.x, which renamed two wrappers."""

import runpy
import sys

import ale_py  # noqa: F401  It registers the games.
import gymnasium

NEW_NAMES = {
    'GrayScaleObservation': gymnasium.wrappers.GrayscaleObservation,
    'FrameStack': gymnasium.wrappers.FrameStackObservation,
}


def main():
    clone = sys.argv.pop(1)
    for name, wrapper in NEW_NAMES.items():
        setattr(gymnasium.wrappers, name, wrapper)
    sys.path.insert(0, clone)
    sys.argv[0] = f'{clone}/cleanrl/dqn_atari.py'
    runpy.run_path(sys.argv[0], run_name='__main__')


if __name__ == '__main__':
    main()
