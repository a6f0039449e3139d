"""The books; for the compiled modules only."""

REASONS: tuple[str, ...]
