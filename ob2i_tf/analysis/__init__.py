"""From run folders to tables, figures and a page beside the published results.

Nothing here imports TensorFlow but `episode`, which plays a game with trained networks.
"""
