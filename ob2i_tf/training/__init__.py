"""Runs: their composition, the training loop, logs, checkpoints and the command line."""
