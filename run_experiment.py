"""Trains an agent as configured by gin: python run_experiment.py --gin_files=ob2i_atari.gin"""

import signal
import sys

if __name__ == '__main__':
    signal.signal(signal.SIGINT, signal.SIG_DFL)  # Avoids a traceback until `main` takes over.
    from ob2i_tf.training.main import main

    sys.exit(main())
