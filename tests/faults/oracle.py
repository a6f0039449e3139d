"""What a store that was opened after a fault must hold: exactly one moment of the model, between the last call that was confirmed
and the last one that had begun.

Of one store beside RAM that is to the letter: queues, properties, counts, frontiers, every message in its order; and, of the
states that are emptied by a consumer, whether each message comes as redelivered. Two durable stores have no common moments (a
MOVE from one to the other is durable in the second before it is settled in the first), so of them it is asked, message by
message,

    there       what was there in all of these moments, is there, and as it was
    gone        what was not there in any of them, and entered before them, is not there; but a message that was moved within its
                store may be back where it was, instead of where it was moved to, if a call was just taking it back
    once        a message that was somewhere in all of these moments is somewhere; in both stores only if it was on its way
    exactly     a store that was the same in all of these moments, is the same now, but for what was on its way
"""

from __future__ import annotations

import itertools
import re
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

from tests.faults.programs import copied, opened_now
from tests.model.engine import ModelEngine
from tests.model.seen import delivery_seen, differences, seen_of
from tests.model.stores import keep_retries, retries_that_may_be_kept
from xump import INFINITE, always, deliver

Seen = dict[str, Any]
HOPS = 8        # its place in what is seen of a message
DELETED = re.compile(r" \(deleted [0-9]+\)$")        # the end of the name of a queue that makes way for a newer one


class Violation(Exception):
    """A reopened state that is none of those that are allowed."""


def seen(engine) -> Seen:
    """What can be seen of an engine or a model whose stores were just opened."""
    found = seen_of(engine)
    found["properties"] = {
        name: (str(getattr(queue.store, "name", queue.store)), queue.limit, queue.history_limit, queue.auto_delete,
               str(queue.dead_letter) if queue.dead_letter is not None else None, queue.delivery_limit, queue.held)
        for name, queue in sorted(engine.queues.items())}
    meta_of = engine.store_meta if isinstance(engine, ModelEngine) else lambda name: engine.stores[name].meta
    found["maps of stores"] = {name: dict(meta_of(name)) for name in sorted(engine.stores) if name != "ram"}
    return found


def emptied(engine) -> list[Any]:
    """Each message as a consumer gets it: its content, and whether it comes again; then those that were still to enter. Spoils
    the engine."""
    names = sorted(name for name, queue in engine.queues.items() if not queue.staged)
    with engine.building():
        for name in names:
            engine.create_selector(name, when=always, do=deliver(name), credit=INFINITE)
    taken, more = engine.take(10_000), True
    while more:
        more = sum(engine.enter(name, 10_000) for name in names)
        taken += engine.take(10_000)
    return [delivery_seen(delivery) for delivery in taken]


@dataclass
class Moment:
    """The model at the end of a call, after a crash; what is seen of it is found out once."""

    model: ModelEngine
    _seen: Seen | None = None
    _emptied: list[Any] | None = None
    _alternatives: list[Moment] | None = None

    def alternatives(self) -> list[Moment]:
        if self._alternatives is None:
            self._alternatives = list(self._retries_kept())
        return self._alternatives

    def _retries_kept(self) -> Iterator[Moment]:
        """The same, but that some queues still delay what is to be tried again."""
        waiting = retries_that_may_be_kept(self.model)
        for size in range(1, len(waiting) + 1):
            for names in itertools.combinations(waiting, size):
                model = copied(self.model)
                for name in names:
                    keep_retries(retries_that_may_be_kept(model)[name])
                yield Moment(model)

    def seen(self) -> Seen:
        if self._seen is None:
            self._seen = seen(self.model)
        return self._seen

    def emptied(self) -> list[Any]:
        if self._emptied is None:
            self._emptied = emptied(opened_now(self.model))
        return self._emptied


    def hidden(self) -> list[Any]:
        """The part of the model that no call shows, and that later crashes depend on."""
        return [list(self.model.queues), *((name, queue.handed, queue.window, [
            (entry.id, entry.logged, entry.foreign, entry.state, entry.routed, entry.due if entry.state == "delayed" else 0)
            for entry in queue.entries]) for name, queue in sorted(self.model.queues.items()))]


@dataclass
class Observed:
    """What opening a state gave."""

    seen: Seen | None = None
    emptied: list[Any] | None = None
    error: Exception | None = None
    known: dict[tuple[int, int, bool], Any] = field(default_factory=dict)     # verdicts, by window


def matching(observed: Observed, moments: list[Moment]) -> list[Moment]:
    """The moments that a state may be. Raises `Violation` if there is none."""
    alike = [one for moment in moments for one in (moment, *moment.alternatives()) if one.seen() == observed.seen]
    if not alike:
        raise Violation(f"no moment of {len(moments)}; beside the last one:\n{differences(moments[-1].seen(), observed.seen)}"
                        f"\nbeside the first one:\n{differences(moments[0].seen(), observed.seen)}")
    if observed.emptied is not None:
        found = [moment for moment in alike if moment.emptied() == observed.emptied]
        if not found:
            raise Violation(f"delivered otherwise than at any of {len(alike)} moments; at the last one:\n{alike[-1].emptied()}\n"
                            f"now:\n{observed.emptied}")
        alike = found
    return alike


def check_bodies(found: Seen) -> None:
    """Whatever else may be lost: no payload is wrong. A program's bodies say themselves what is in them."""
    for states in found["messages"].values():
        for message in [message for messages in states.values() for message in messages]:
            name, _, rest = message[2].partition(b" ")
            number = name.partition(b".")[2]
            if not number.isdigit() or rest.strip(bytes([int(number) & 255])):
                raise Violation(f"a wrong payload: {message}")


# ---- two stores

Places = dict[tuple[str, int], tuple[str, Any]]


def places(found: Seen) -> Places:
    """{(queue, id): (ready or history, message)}"""
    return {(name, message[0]): (state, message) for name, states in found["messages"].items()
            for state, messages in states.items() for message in messages}


def tag(message: Any) -> bytes:
    """What a program put at the beginning of each body, the same in all copies."""
    return tag_of(message[2])


def tag_of(body: bytes) -> bytes:
    return bytes(body.partition(b" ")[0])


def check_pair(observed: Observed, moments: list[Moment], apart: bool = False, earlier: Sequence[Moment] = ()) -> None:
    """Two stores: the rules above. Raises `Violation`. `apart`: each may go back to a moment of its own, so that a message on its
    way may be in neither (a power failure, where nothing is synced). `earlier`: what was there then, and is over, may be there
    still."""
    assert observed.seen is not None
    now, sights = places(observed.seen), [moment.seen() for moment in moments]
    before = [moment.seen() for moment in earlier]
    were = [places(sight) for sight in sights]
    known = {name for sight in [*sights, *before] for name in sight["messages"]}
    for name in observed.seen["messages"].keys() | set.intersection(*(set(sight["messages"]) for sight in sights)):
        if all(name in sight["messages"] for sight in sights) and name not in observed.seen["messages"]:
            raise Violation(f"queue {name!r} is gone")
        if DELETED.sub("", name) not in known:
            raise Violation(f"queue {name!r} was never there")
    trimmed = {at for at in set.intersection(*map(set, were)) - set(now) if is_trimmed(at, were, observed.seen)}
    check_places(now, were, sights, [places(sight) for sight in before], trimmed, replaced(moments))
    if not apart:
        check_lineages(now, were)
    check_entered(observed.seen, sights)
    check_marks(observed, moments)


def is_trimmed(at: tuple[str, int], were: list[Places], found: Seen) -> bool:
    """Whether a message has ended, and has left a history that was read from the log. Some that had left it before, in the order
    in which they were processed, are in the log as long as their ends wait for another store; then the last are kept by id."""
    name, id = at
    if name not in found["properties"] or all(place[at][0] != "history" for place in were):
        return False
    kept = [message[0] for message in found["messages"][name]["history"]]
    return len(kept) == found["properties"][name][2] and id < min(kept, default=0)


def replaced(moments: list[Moment]) -> set[str]:
    """The names that more than one queue had."""
    queues = {(name, queue.made) for moment in moments for name, queue in moment.model.queues.items()}
    return {name for name, number in Counter(name for name, _made in queues).items() if number > 1}


def check_places(
    now: Places, were: list[Places], sights: list[Seen], before: list[Places], trimmed: set[tuple[str, int]],
    replaced: set[str],
) -> None:
    """`before`: what was there earlier, and may be still. `replaced`: of these queues ids do not tell which message it is: one
    may have passed through the first of them in the middle of a call."""
    newer = {tag(message) for at, (_, message) in now.items() if is_newer(at, sights[0])}
    stores = {name: properties[0] for sight in sights for name, properties in sight["properties"].items()}
    were_in, are_in = [in_stores(place, stores) for place in were], in_stores(now, stores)
    for at in set.intersection(*map(set, were)) - set(now) - trimmed:
        if tag(were[0][at][1]) not in newer:        # else it is on its way, and the fault found it elsewhere
            raise Violation(f"message {at[1]} of queue {at[0]!r} is lost: {were[0][at]}")
    for at, (_, message) in now.items():
        if at[0] in replaced:
            continue
        known = [place[at][1] for place in [*were, *before] if at in place]
        waits_again = message[HOPS] == 0 and any(     # a dead letter: its hops start at 0
            message[:HOPS] + message[HOPS + 1 :] == one[:HOPS] + one[HOPS + 1 :] for one in known)
        if known and message not in known and not waits_again:
            raise Violation(f"message {at[1]} of queue {at[0]!r} is {message}, and was {known[0]}")
        here = stores.get(at[0]), tag(message)
        if not known and not is_newer(at, sights[0]) and are_in[here] > max(place[here] for place in were_in):
            raise Violation(f"message {at[1]} of queue {at[0]!r} is there again: {message}")


def in_stores(place: Places, stores: dict[str, str]) -> Counter[tuple[str | None, bytes]]:
    """How often each message waits in each store: {(store, tag): number}"""
    return Counter((stores.get(name), tag(message)) for (name, _), (state, message) in place.items() if state == "ready")


def is_newer(at: tuple[str, int], sight: Seen) -> bool:
    """Whether a message entered its queue later."""
    return at[1] > sight["queues"].get(at[0], {"entered": 0})["entered"]


def check_lineages(now: Places, were: list[Places]) -> None:
    """None is lost on its way from one store to the other. One that has ended there is in a history at most, which the first
    store does not wait for."""
    tags = [{tag(message) for state, message in place.values() if state != "history"} for place in were]
    lost = set.intersection(*tags) - {tag(message) for _, message in now.values()}
    if lost:
        raise Violation(f"in neither store: {sorted(lost)}")


def check_entered(found: Seen, sights: list[Seen]) -> None:
    """No id is issued twice, none was issued that nobody asked for."""
    for name, counts in found["queues"].items():
        entered = [sight["queues"][name]["entered"] for sight in sights if name in sight["queues"]]
        if len(entered) == len(sights) and not min(entered) <= counts["entered"] <= max(entered):
            raise Violation(f"queue {name!r} has issued {counts['entered']} ids, and had {min(entered)} to {max(entered)}")


def check_marks(observed: Observed, moments: list[Moment]) -> None:
    """A message that waits in one more place than it ever did comes as redelivered from the later one. If it has ended there
    before the fault, nothing tells the first store, and it comes unmarked from there. Nor is it marked where it came from RAM, as
    a copy, or taken back (docs/stores.md)."""
    if observed.emptied is None or observed.seen is None:
        return
    most = Counter[bytes]()
    for moment in moments:
        most |= waiting(moment.seen()) | most_in_a_queue(moment.seen()) | with_original(moment.model)
        most |= with_copies(moments[0], moment)
    marked = {tag(message) for message, *_, redelivered, _ in observed.emptied if redelivered}
    strayed = {tag_of(body) for moment in moments for body in moment.model.strayed}
    # One that expired when its queue was released has come as a new dead letter, which is not marked.
    given = {(queue, message[0]) for message, _, queue, *_ in observed.emptied}
    expired = {tag(message) for at, (state, message) in places(observed.seen).items() if state == "ready" and at not in given}
    now = waiting(observed.seen)
    unmarked = {name for name, number in now.items() if number > max(1, most[name])} - marked - strayed - expired
    if unmarked:
        raise Violation(f"twice, and not marked as redelivered: {sorted(unmarked)}")


def most_in_a_queue(found: Seen) -> Counter[bytes]:
    """How often a message is in the queue that has it most often, in any state: a COPY and a MOVE brought it there, say. So many
    waited in the middle of a call, and do again if what they became was not durable."""
    most = Counter[bytes]()
    for states in found["messages"].values():
        most |= Counter(tag(message) for messages in states.values() for message in messages)
    return most


def with_original(model: ModelEngine) -> Counter[bytes]:
    """How often a message was copied within a store, and once more: in the middle of a call all these waited, and do again if
    their ends waited for another store."""
    return Counter({tag_of(body): number + 1 for body, number in model.copies.items()})


def with_copies(first: Moment, moment: Moment) -> Counter[bytes]:
    """How often a message that waited more than once in the first moment may wait now: each store may have come further by
    itself, one to copies that it made since, the other not yet to an end."""
    since = {body: number - first.model.copies[body] for body, number in moment.model.copies.items()}
    return waiting(first.seen()) + Counter({tag_of(body): number for body, number in since.items()})


def waiting(found: Seen) -> Counter[bytes]:
    return Counter(tag(message) for state, message in places(found).values() if state == "ready")
