"""The verbs, roles and reasons by the names that Python has for them: the one table of each."""

VERBS = {"copy": COPY, "move": MOVE, "deliver": DELIVER, "bounce": BOUNCE, "discard": DISCARD}
"""The kinds of actions; `xump.actions` says what each verb needs."""

ROLES = {"always": ORDINARY, "default": DEFAULT, "overflow": OVERFLOW}
"""When a selector is invoked, by the name of its condition: `always` stands for every ordinary one."""

REASONS = ("overflow", "unroutable", "rejected", "delivery-limit", "hops", "no-queue", "expired", "late")
"""Why a message is dead-lettered or dropped, in the order of their numbers."""

assert len(REASONS) == REASON_COUNT
DEDUP_LIMIT = DEDUP_LIMIT_DEFAULT
"""How many message ids a queue that looks for duplicates remembers, if its `create_queue` does not say."""
