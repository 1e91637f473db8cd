"""Trains by a gin configuration: python run_experiment.py --gin_files=ob2i_atari.gin"""

import sys

from ob2i_tf.main import main

if __name__ == '__main__':
    sys.exit(main())
