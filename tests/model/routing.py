"""The run: step by step until all is quiet; copies and replays (rules 2 to 7, 13)."""

from datetime import datetime

from tests.model import books, bounds, due, letters, requests
from tests.model.matching import evaluate, holds, makes, names_target, target_of
from tests.model.order import everywhere, may_take, rank
from tests.model.outcomes import rests, tell
from tests.model.room import has_room, is_stuck, may_put, prune_lines
from tests.model.entries import READY
from tests.model.values import count, nanoseconds
from xump.errors import QueueFull
from xump_ext.outcome import OutcomeFlag


def finish(engine, lets_in=True):
    """The end of a call, or of a moment: whatever its work brings about, what is due by now too; then it is quiet. Publishers
    that wait are let in then (`lets_in`), each as in a call of its own."""
    while True:
        settle_down(engine)
        while due.do_what_is_due(engine):
            settle_down(engine)
        if engine.depth:
            return
        be_quiet(engine)
        if not lets_in or not bounds.let_in(engine):
            return


def settle_down(engine):
    """Runs, unless in a building block: steps; when none is left, what is too much is dropped, and replies are handed out."""
    prune_lines(engine)
    while not engine.depth:
        run(engine)
        if not bounds.drop_surplus(engine) and not requests.hand_out_replies(engine):
            return


def run(engine):
    for queue in engine.queues.values():
        if not queue.held:
            match_recovered(queue)
    for entry in everywhere(engine, "waiting"):
        for selector in entry.queue.selectors:
            if selector.consuming:
                holds(selector, entry)
    while step(engine):
        pass


def be_quiet(engine):
    for queue in engine.queues.values():
        for entry in queue.entries:
            entry.visited = None
            entry.awake = entry.awake or (entry.dead, entry.message.hops, entry.waited)
            entry.dead = False
            if entry.dead_entry and entry.state != "history":     # it has waited
                entry.message = entry.message.replace(hops=0)
            entry.waited = entry.waited or entry.state in READY or entry.by_hand


def wake_up(engine, start):
    """What came from that one on has not waited: the run goes on in which it came."""
    for queue in engine.queues.values():
        for entry in queue.entries:
            if entry.sequence >= start and entry.awake:
                entry.dead, hops, entry.waited = entry.awake
                entry.message, entry.awake = entry.message.replace(hops=hops), None


def is_wanted(engine, entry):
    """Whether something may happen to an entry that waits, if there is room for it."""
    if entry.queue.held:
        return False
    if entry.parked and any(may_act(engine, s, entry) for s in entry.hits):
        return True
    return any(may_take(s, entry) and s.is_able for s in entry.queue.selectors)


def step(engine):
    prune_lines(engine)
    refused = []                    # (selector, target): what is younger must not pass what was refused
    for entry in everywhere(engine, "waiting", lambda entry: is_wanted(engine, entry), lambda entry: is_stuck(engine, entry)):
        if entry.parked and any(may_act(engine, s, entry) for s in entry.hits):
            route_urgent(engine, entry) or act(engine, entry, entry.hits)
            return True
        for selector in sorted(entry.queue.selectors, key=lambda s: s.turn):
            if may_take(selector, entry) and selector.is_able and may_put(
                    engine, selector, entry, refused, urgent_before(entry)):
                route_urgent(engine, entry) or books.take(engine, selector, entry)
                return True
    for entry in everywhere(engine, "unrouted"):
        if is_routable(entry):
            route(engine, entry)
            return True
    return False


def route_urgent(engine, entry):
    """Routes an unrouted message that goes before one that waits, since its priority is higher. Whether there was any."""
    urgent = urgent_before(entry)
    if urgent:
        route(engine, urgent)
    return bool(urgent)


def urgent_before(entry):
    urgent = [e for e in entry.queue.entries if e.state == "unrouted" and is_routable(e) and rank(e)[0] < rank(entry)[0]]
    return min(urgent, key=rank, default=None)


def is_routable(entry):
    """Whether it is an unrouted entry's turn. One that was kept unrouted has to be matched by something."""
    selectors = [s for s in entry.queue.selectors if s.role != "overflow"]
    if entry.queue.transit:
        return not entry.queue.held
    return not entry.queue.held and bool(selectors) and (not entry.kept or bool(hits_of(entry)))


def hits_of(entry):
    selectors = entry.queue.selectors
    hits = [s for s in selectors if s.role == "ordinary" and holds(s, entry) and names_target(s, entry)]
    return hits or [s for s in selectors if s.role == "default" and names_target(s, entry)]


def route(engine, entry):
    if entry.queue.transit:
        pass_on(engine, entry)
        return
    hits = hits_of(entry)
    if hits:
        entry.marked = hits[0].role == "default"
        act(engine, entry, hits)
    elif entry.queue.unmatched == "keep":
        entry.kept = True
    else:
        stays = entry.waited and engine.keeps_what_waited
        letters.dead_letter(engine, entry, "unroutable", or_keep=stays)
        entry.routed = not entry.kept


def pass_on(engine, entry):
    """What comes to a transit queue: all copies, and a discard, by the ordinary selectors, else by the default one. Those that
    are disabled, or name no target, are as if they were not there. What leads nowhere is unroutable."""
    if entry.visited is None:
        entry.visited = [entry.queue]
    for role in ("ordinary", "default"):
        entry.marked = role == "default"
        hits = [s for s in entry.queue.selectors
                if s.role == role and s.enabled and holds(s, entry) and names_target(s, entry)]
        for selector in hits:
            if not selector.consuming:
                copy(engine, selector, entry, entry.visited)
        discards = sorted((s for s in hits if s.consuming), key=lambda s: s.turn)
        if hits:
            entry.state = "waiting"
            books.take(engine, discards[0], entry) if discards else books.settle(engine, entry)
            return
    letters.dead_letter(engine, entry, "unroutable")


def release(engine, queues):
    """Queues are not held any more. What fell due while their store was closed, or since it was opened, does so now."""
    for queue in queues:
        queue.held = queue.reopened = False
    due.do_what_is_due(engine)


def match_recovered(queue):
    """What was routed in an earlier engine and waits: as if routed to the default role, if nobody else wants it now."""
    for entry in [e for e in queue.entries if e.recovered and e.state == "waiting"]:
        entry.recovered = False
        ordinary = [s for s in queue.selectors if s.role == "ordinary"]
        if not any(holds(s, entry) and names_target(s, entry) for s in ordinary):
            entry.marked = any(s.role == "default" for s in queue.selectors)      # one that names no queue yet may do so later


def act(engine, entry, hits):
    """Rules 3 and 7: all copies; then the entry waits for a consuming selector, or was copied only, or is parked."""
    if entry.visited is None:
        entry.visited = [entry.queue]
    acting = [s for s in hits if may_act(engine, s, entry)]
    for selector in acting:
        if not selector.consuming and not selector.has_replayed(entry):
            copy(engine, selector, entry, entry.visited)
    entry.state = "waiting"
    entry.routed = True
    entry.kept = False
    entry.parked = not acting
    entry.hits = hits if entry.parked else []
    if acting and not any(s.consuming for s in hits):
        books.settle(engine, entry)


def may_act(engine, selector, entry):
    """Whether the selector, in the hit set of an entry, does something about it now (or did, by a replay)."""
    if selector.has_replayed(entry):
        return True
    live = selector.consuming or entry.id >= selector.start or entry in selector.aside
    return selector.enabled and live and names_target(selector, entry)


def copy(engine, selector, entry, visited, replaying=False):
    target = target_of(selector, entry.message)
    if target in visited:
        return
    message = makes(selector, entry)
    if message.hops <= engine.hop_limit and has_room(engine, target, message, pushes=True, copier=selector):
        original = books.owner_of(engine, entry)
        books.enter(engine, target, message, visited, dead=entry.dead, came=original)
        engine.copies[message.body] += original is not None and original.queue.store == target.store
        selector.copied += 1
        if rests(engine, target) and not entry.dead:
            tell(visited, copies=1)
        return
    visited.append(target)
    if message.hops > engine.hop_limit:
        reason, place, (dead_letter, namer) = "hops", entry.queue, letters.dead_letter_of(engine, entry)
    elif replaying:
        raise QueueFull(f"queue {target.name!r} has no room for all that selector {selector.id} replays")
    else:
        reason, place, (dead_letter, namer) = "overflow", target, letters.to_own(engine, target)
    came = books.owner_of(engine, entry)
    if not entry.dead:
        tell(visited, refused=reason == "overflow")
    if not entry.dead and letters.enter_dead(
            engine, dead_letter, message, reason, place.name, None, visited, came=came, namer=namer):
        count(place.dead_lettered, reason)
        tell(visited, flags=OutcomeFlag.DEAD_LETTERED)
    else:
        selector.dropped += 1
        if not entry.dead:
            tell(visited, flags=OutcomeFlag.DROPPED)


def start_copying(engine, selector, start):
    """Rule 13, for a new COPY."""
    queue = selector.source
    if start in ("current", "tail"):
        selector.start = 0 if queue.transit else queue.frontier if start == "current" else queue.next_id
        selector.aside = [e for e in queue.entries if is_aside(e)]
        return
    if start == "head":
        start = 1
    elif isinstance(start, datetime):
        time = nanoseconds(start)
        start = next((e.id for e in queue.entries if e.message.timestamp >= time), queue.next_id)
    start = min(max(start, 1), queue.next_id)
    if selector.enabled:
        replay(engine, selector, start)
    else:
        selector.replay_at_enable = start


def is_aside(entry):
    """Unrouted, and not in its place now: when it is there again it is for a COPY as if it had just come."""
    return (entry.state == "delayed" or entry.by_hand) and entry.home == "unrouted"


def comes_later(entry):
    """Delayed at its entry."""
    return entry.state == "delayed" and not entry.retrying and (not entry.lacking or entry.never_due)


def replay(engine, selector, start):
    """Copies all that the queue holds from `start` on; what comes after that is live."""
    queue = selector.source
    selector.replay_at_enable = None
    selector.replayed = start
    selector.start = queue.next_id
    selector.aside = [e for e in queue.entries if is_aside(e) and (e.id < start or comes_later(e))]
    for entry in list(queue.entries):
        if due.is_late(engine, entry.message):
            continue
        if selector.has_replayed(entry) and replays(engine, selector, entry) and names_target(selector, entry):
            copy(engine, selector, entry, [queue], replaying=True)


def replays(engine, selector, entry):
    """A replay is no routing: its condition is evaluated for itself, a default's by what no ordinary selector matches now."""
    if selector.role == "default":
        ordinary = [s for s in entry.queue.selectors if s.role == "ordinary"]
        return not any(evaluate(s, entry) and names_target(s, entry) for s in ordinary)
    return evaluate(selector, entry)
