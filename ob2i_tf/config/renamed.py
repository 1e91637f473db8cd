"""Bindings that were renamed."""

# Old 'Name' or 'Name.parameter' -> the new one, with new values if they changed too.
RENAMED: dict[str, str] = {}
