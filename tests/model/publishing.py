"""Messages from outside (rule 1; section 9: delay, expiry, duplicates)."""

from dataclasses import dataclass

from tests.model import books, due, letters, routing, staging, told
from tests.model.entries import Message
from tests.model.outcomes import Trip, rests, tell
from tests.model.room import has_room
from tests.model.values import after, count, integer, moment, name_of, optional_duration
from xump.errors import QueueFull, QueueNotFound, StoreFull
from xump_ext.outcome import OutcomeFlag


@dataclass(frozen=True)
class Terms:
    """What a publish says about time and order, checked. What is None the message may say itself."""

    delay: int | None = None        # ns
    at: int | None = None
    ttl: int | None = None
    expires: int | None = None
    priority: int | None = None
    correlation_id: str | None = None


def terms_of(delay=None, at=None, ttl=None, expires=None, priority=None, correlation_id=None):
    if delay is not None and at is not None:
        raise ValueError("delay and at exclude each other")
    if ttl is not None and expires is not None:
        raise ValueError("ttl and expires exclude each other")
    if correlation_id is not None and not isinstance(correlation_id, str):
        raise TypeError(f"correlation_id must be a str or None, got {type(correlation_id).__name__}")
    return Terms(
        optional_duration("delay", delay), None if at is None else moment("at", at), optional_duration("ttl", ttl),
        None if expires is None else moment("expires", expires),
        None if priority is None else integer("priority", priority, 0, 255), correlation_id)


def on_terms(engine, message, terms):
    """The message as it enters now, and when its delay ends (None: it has none)."""
    end = after(engine.time, terms.delay) if terms.delay is not None else terms.at
    end = None if end is None or end <= engine.time else end
    changes = {"expires": terms.expires, "priority": terms.priority, "correlation_id": terms.correlation_id}
    if terms.ttl is not None:
        changes["expires"] = after(engine.time if end is None else end, terms.ttl)
    return message.replace(**{name: value for name, value in changes.items() if value is not None}), end


def publish(engine, queue, message, terms, in_turn=False):
    """Rule 1 for a message from outside: the id, 0 when it was dead-lettered, or an error and nothing has changed."""
    return publish_once(engine, queue, message, terms, in_turn)[0]


def publish_once(engine, queue, message, terms, in_turn=False, trip=None):
    """The same, and whether the id is a new one. `in_turn`: a transit queue routes it in the run, not at once. `trip`: its
    visited set."""
    name = name_of(queue)
    message, end = on_terms(engine, message, terms)
    trip = [] if trip is None else trip
    if name not in engine.queues:
        target = letters.living(engine, engine.dead_letter)
        tell(trip, flags=OutcomeFlag.NO_QUEUE)
        if not letters.enter_dead(engine, target, message, "no-queue", name, None, []):
            raise QueueNotFound(f"no queue {name!r}; there are {', '.join(engine.queues)}")
        tell(trip, flags=OutcomeFlag.DEAD_LETTERED)
        return 0, False
    queue = engine.queues[name]
    if queue.transit:
        return publish_through(engine, queue, message, end, in_turn, trip)
    if queue.staged:
        return stage(engine, queue, message, terms, end, trip)
    first = first_of(engine, queue, message)
    if first is not None:
        queue.duplicates += 1
        tell(trip, flags=OutcomeFlag.DUPLICATE)
        return first, False
    told.check(engine, "publish", queue)        # even if it goes elsewhere (decision 81)
    if due.is_late(engine, message):
        entry = enter(engine, queue, message, trip, late=True)
        letters.dead_letter(engine, entry, "expired")
    elif has_room(engine, queue, message, pushes=True, delayed=end is not None, asks=False):
        entry = enter(engine, queue, message, trip, end=end)
    elif letters.enter_dead(engine, letters.own_dead_letter(engine, queue), message, "overflow", name, None, [], namer=queue):
        count(queue.dead_lettered, "overflow")
        tell(trip, refused=1, flags=OutcomeFlag.DEAD_LETTERED)
        return 0, False
    else:
        tell(trip, refused=1)
        raise QueueFull(f"queue {name!r} has no room within limit={queue.limit}, limit_bytes={queue.limit_bytes}")
    tell(trip, copies=1)
    remember(engine, queue, entry)
    return entry.id, True


def enter(engine, queue, message, trip, **terms):
    if told.comes_later(engine, queue, message):
        raise QueueFull(f"the store of queue {queue.name!r} makes room")
    return books.enter(engine, queue, message, trip, **terms)


def publish_asking(engine, queue, message, terms):
    """As a row, for which nothing is raised: the trip that tells its outcome."""
    trip = Trip()
    if engine.told is not None:
        engine.told.begin_row()
    try:
        trip.id, _ = publish_once(engine, queue, message, terms, trip=trip)
    except StoreFull:
        tell(trip, flags=OutcomeFlag.STORE_FULL)
    except (QueueFull, QueueNotFound):
        pass
    return trip


def publish_through(engine, queue, message, end, in_turn, trip):
    """A transit queue routes what is published into it before anything else happens, but for what waits there already, and gives
    no id."""
    if end is not None:
        raise ValueError(f"queue {queue.name!r} keeps nothing, so it delays nothing")
    in_turn = in_turn or any(entry.state == "unrouted" for entry in queue.entries)
    late = due.is_late(engine, message)
    entry = books.enter(engine, queue, message, trip, late=late)
    if rests(engine, queue) and not late:
        tell(trip, copies=1)
    if late:
        letters.dead_letter(engine, entry, "expired")
    elif not (in_turn or engine.depth or queue.held):
        routing.route(engine, entry)
    return 0, False


def stage(engine, queue, message, terms, end, trip):
    """A staged queue keeps what comes as it is; what it says of time counts when it enters its target."""
    staging.check_publish(engine, queue, terms.delay)
    told.check(engine, "stage", queue)
    entry = books.enter(engine, queue, message, trip)
    entry.due = end or 0
    tell(trip, copies=1)
    return entry.id, True


def first_of(engine, queue, message):
    """The id of the message of which this one is a duplicate, or None."""
    if queue.dedup is None or message.message_id is None:
        return None
    return next((id for known, id, time in queue.window
                 if known == message.message_id and engine.time - time < queue.dedup), None)


def remember(engine, queue, entry):
    if queue.dedup is not None and entry.message.message_id is not None:
        time = max([engine.time, *(item[2] for item in queue.window[-1:])])     # none is forgotten before the one before it
        window = [*queue.window, (entry.message.message_id, entry.id, time)][-queue.dedup_limit :]
        queue.window = [item for item in window if engine.time - item[2] < queue.dedup]


def fresh(message):
    """A message from outside, or a tuple in publish's order, without what it went through before."""
    if isinstance(message, tuple):
        message = Message(*message)
    expires = getattr(message, "expires", None)
    return Message(
        message.address, message.body, dict(message.headers or {}), message.reply_to, message.message_id,
        expires=None if expires is None else moment("expires", expires), priority=getattr(message, "priority", 0),
        correlation_id=getattr(message, "correlation_id", None))
