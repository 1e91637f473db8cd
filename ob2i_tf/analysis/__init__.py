"""Tables, figures and a page on run folders, beside the published results.

Only `episode`, which plays a game with trained networks, imports TensorFlow.
"""
