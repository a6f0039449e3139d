"""The memory of runs that were decided, in the map of their target: a commit that is asked for again does nothing.

    flight.key/APP      the last version that APP has committed, with its run, its rows, the time, and when it was asked for last.
                        A lower one is an error
    flight.run/RUN      what became of a run without a key: committed, aborted, or dropped since it took too long

They are bounded: keys by 30 days, 500 and their bytes, runs by 24 hours and 100. The one used longest ago goes first, and is
logged.
"""

from __future__ import annotations

import json
import logging
import time
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, NamedTuple

from xump.errors import TransactionError

if TYPE_CHECKING:
    from xump._meta import Meta

logger = logging.getLogger("xump")

KEY, RUN = "flight.key/", "flight.run/"
"""The names in the map, before that of the application or the run."""

KEY_SECONDS, RUN_SECONDS = 30 * 86_400, 86_400
"""So long they are kept."""
USED_SECONDS = 86_400
"""How exactly it is known when a version was asked for last."""
KEYS_MAX, RUNS_MAX = 500, 100
"""So many are kept."""
BYTES_MAX = 40 << 10
"""So much of the map they take at most, names included; the map has 64 KiB."""

COMMITTED, ABORTED, DROPPED = "committed", "aborted", "dropped"

Key = tuple[str, int]
"""An application, and its version."""


class Decision(NamedTuple):
    """The end of a run."""

    state: str
    """Committed, aborted or dropped."""
    rows: int
    """How many rows it had."""
    at: int
    """When, in POSIX seconds."""
    why: str
    """Why it was dropped, or an empty text."""
    run: str
    """The run that it is of: for a version, the one that committed it."""


def find(meta: Mapping[str, bytes], run: str, key: Key | None) -> Decision | None:
    """The decision about this run, or this version. Raises `TransactionError` for a version before the last one."""
    if key is not None and (kept := meta.get(KEY + key[0])) is not None:
        known = json.loads(kept)
        if known["version"] == key[1]:
            return Decision(COMMITTED, known["rows"], known["time"], "", known["run"])
        if known["version"] > key[1]:
            raise TransactionError(
                f"version {key[1]} of {key[0]!r} is before the last one that was committed, {known['version']}: it may have been "
                "published already. If these rows are new, as after the checkpoint was deleted, use a new name for the "
                "application, or a new checkpoint")
    return find_run(meta, run)


def find_run(meta: Mapping[str, bytes], run: str) -> Decision | None:
    """The decision about this run."""
    kept = meta.get(RUN + run)
    if kept is not None:
        known = json.loads(kept)
        return Decision(known["state"], known["rows"], known["time"], known["why"], run)
    for name, value in meta.items():
        if name.startswith(KEY):
            known = json.loads(value)
            if known["run"] == run:
                return Decision(COMMITTED, known["rows"], known["time"], "", known["run"])
    return None


def changes(
    meta: Mapping[str, bytes], run: str, key: Key | None, state: str, rows: int, why: str = ""
) -> dict[str, bytes | None]:
    """The changes of the map that record a decision, and those that make room for it."""
    now = int(time.time())
    if key is not None and state == COMMITTED:
        name, value = KEY + key[0], {"version": key[1], "run": run, "rows": rows, "time": now}
    else:
        name, value = RUN + run, {"state": state, "rows": rows, "time": now, "why": why}
    made: dict[str, bytes | None] = {name: json.dumps(value).encode()}
    for gone in _too_many(meta, name, now, len(name.encode()) + len(made[name] or b"")):
        logger.info("what was decided of %r is forgotten now", gone)
        made[gone] = None
    return made


def remember_use(meta: Meta, key: Key | None) -> None:
    """A version was asked for again: it is kept for another 30 days. That is written once a day."""
    kept = None if key is None else meta.get(KEY + key[0])
    if key is None or kept is None:
        return
    known, now = json.loads(kept), int(time.time())
    if now - _used(known) >= USED_SECONDS:
        meta[KEY + key[0]] = json.dumps({**known, "used": now}).encode()


def _used(known: Mapping[str, int]) -> int:
    """When it was asked for last."""
    return known.get("used", known["time"])


def _too_many(meta: Mapping[str, bytes], but: str, now: int, more: int) -> list[str]:
    """The names that go, the one that was used longest ago first."""
    gone: list[str] = []
    left: list[tuple[int, str, int]] = []
    for prefix, seconds, most in ((KEY, KEY_SECONDS, KEYS_MAX), (RUN, RUN_SECONDS, RUNS_MAX)):
        found = sorted((_used(json.loads(value)), name, len(name.encode()) + len(value))
                       for name, value in meta.items() if name.startswith(prefix) and name != but)
        most -= but.startswith(prefix)
        gone += [name for at, name, _ in found if now - at > seconds]
        found = [one for one in found if now - one[0] <= seconds]
        gone += [name for _, name, _ in found[:max(0, len(found) - most)]]
        left += found[max(0, len(found) - most):]
    left.sort()
    taken = more + sum(size for _, _, size in left)
    while taken > BYTES_MAX and left:
        _, name, size = left.pop(0)
        gone.append(name)
        taken -= size
    return gone


def as_key(given: Any) -> Key | None:
    """A key as it was sent, [application, version]. Raises ValueError."""
    if given is None:
        return None
    if not (isinstance(given, (list, tuple)) and len(given) == 2 and isinstance(given[0], str) and 1 <= len(given[0]) <= 200
            and type(given[1]) is int and 0 <= given[1] < 1 << 63):
        raise ValueError(f"key={given!r}: expected the name of an application, of 1 to 200 characters, and a version from 0 on")
    return given[0], given[1]
