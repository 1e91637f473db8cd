"""Tables, figures and a page on run folders, alongside the published results.

Only `episode`, which plays a game with trained networks, imports TensorFlow.
"""
