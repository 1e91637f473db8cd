"""The linear theory of the paper: LSVI-UCB, randomised LSVI, and Theorem 1 as an experiment."""
