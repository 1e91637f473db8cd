"""Imported last by the process that others are forked from, see processes.py."""

import gc

gc.freeze()  # The collector would touch, and thereby copy, all memory that they share.
