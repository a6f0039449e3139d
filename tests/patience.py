"""How long a test waits for what must come."""

# Seconds. Only a test that would fail waits so long: a core of a shared machine has stood still for two minutes.
PATIENCE = 300
