"""The compiled core of Xump. Its sub-packages are its layers, lowest first; each imports from those before it only.

`errors`, `infinite` and `store` stand below all of them: plain Python, and with `records` all that a plug-in store needs.
"""

LAYERS = (
    "memory", "message", "records", "match", "state", "log", "select", "route", "recovery", "engine", "arrow", "check", "lmdb",
)
"""From the lowest to the highest; `tests/test_layers.py` holds every import against it."""
