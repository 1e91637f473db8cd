"""The columns of the CSV files of a run folder, README, "A run"."""

TRAIN = (
    'iteration',
    'frames',
    'agent_steps',
    'learner_steps',
    'episodes',
    'score_mean',
    'return_mean',
    'episode_length_mean',
    'loss',
    'bonus_mean',
    'next_bonus_mean',
    'q_mean',
    'epsilon',
    'agent_steps_per_second',
)
EVAL = (
    'iteration',
    'frames',
    'episodes',
    'score_mean',
    'score_std',
    'score_min',
    'score_max',
)
EPISODES = ('frames', 'score', 'length')
BONUS = (
    'iteration',
    'frames',
    'reward_bonus_mean',
    'next_bonus_mean',
    'next_bonus_normalized_mean',
    'q_gap_mean',
    'next_action_changes',
)
EVAL_EPISODES = ('iteration', *EPISODES)
