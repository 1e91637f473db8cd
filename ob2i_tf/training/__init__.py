"""What keeps a run alive: composition, the loop, logs, checkpoints, the command line."""
