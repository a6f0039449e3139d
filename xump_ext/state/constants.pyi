"""The verbs, roles and reasons by the names that Python has for them."""

VERBS: dict[str, int]
ROLES: dict[str, int]
REASONS: tuple[str, ...]
DEDUP_LIMIT: int
