"""Bindings that were renamed."""

# {old 'Name' or 'Name.parameter': the new one, with the new values if they changed too}.
RENAMED: dict[str, str] = {
    'Agent.resample_head_on': 'Agent.head_lifetime',
    'EpisodicUpdate.consumption': (
        "EpisodicUpdate.batching ('in_parts' -> 'chunks', 'whole' -> 'episode')"
    ),
    'EpisodicUpdate.states_per_pass': 'EpisodicUpdate.chunk_size',
    'EpisodicUpdate.tail': 'EpisodicUpdate.last_batch',
    'UcbBonus.measure': 'UcbBonus.statistic',
    'UcbBonus.rows_at_a_time': 'UcbBonus.normalizer_batch',
}
