"""Bindings that were renamed."""

# {old 'Name' or 'Name.parameter': the new one, with the new values if they changed too}.
RENAMED: dict[str, str] = {
    'Agent.resample_head_on': 'Agent.head_lifetime',
    'EpisodeReplay.exclude_newest_episodes': (
        'ReleasedEpisodeReplay.exclude_newest_episodes (of ob2i_tf.released)'
    ),
    'EpisodeReplay.exclude_oldest_episodes': (
        'ReleasedEpisodeReplay.exclude_oldest_episodes (of ob2i_tf.released)'
    ),
    'EpisodicUpdate.consumption': (
        "EpisodicUpdate.batching ('in_parts' -> 'chunks', 'whole' -> 'episode')"
    ),
    'EpisodicUpdate.states_per_pass': 'EpisodicUpdate.chunk_size',
    'EpisodicUpdate.last_batch': 'Runner.update = @ReleasedEpisodicUpdate (of ob2i_tf.released)',
    'EpisodicUpdate.tail': 'Runner.update = @ReleasedEpisodicUpdate (of ob2i_tf.released)',
    'UcbBonus.measure': 'UcbBonus.statistic',
    'UcbBonus.normalize_reward_bonus': (
        'ReleasedUcbBonus.normalize_reward_bonus (of ob2i_tf.released)'
    ),
    'UcbBonus.normalizer_batch': 'ReleasedUcbBonus.normalizer_batch (of ob2i_tf.released)',
    'UcbBonus.prior_count': 'ReleasedUcbBonus.prior_count (of ob2i_tf.released)',
    'UcbBonus.rows_at_a_time': 'ReleasedUcbBonus.normalizer_batch (of ob2i_tf.released)',
    'UcbBonus.terminal_next_bonus': 'ReleasedUcbBonus (of ob2i_tf.released)',
}
