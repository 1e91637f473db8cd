"""From run folders to tables, figures and a page beside the published results.

Only `episode`, which plays a game with trained networks, imports TensorFlow.
"""
