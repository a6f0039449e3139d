"""The compiled core of Xump.

Its sub-packages are its layers. Each imports only from those before it in `LAYERS`. `death`, `errors`, `infinite`, `outcome` and
`store` are plain Python and lie below all layers; together with `records` they are all that a plug-in store needs.
"""

LAYERS = (
    "memory", "message", "records", "match", "state", "log", "select", "route", "recovery", "engine", "arrow", "check", "lmdb",
    "amqp", "zeromq",
)
"""The layers, lowest first; `tests/test_layers.py` checks every import against this list."""
