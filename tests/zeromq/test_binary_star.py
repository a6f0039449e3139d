"""The Binary Star's machine: its table row by row, and every order of events that a pair can see, step by step."""

import copy
import itertools

import pytest

from xump.zeromq.binary_star import TABLE, BinaryStar, Event, SplitBrain, Star

PEER = {Event.PEER_PRIMARY: b"1", Event.PEER_BACKUP: b"2", Event.PEER_ACTIVE: b"3", Event.PEER_PASSIVE: b"4"}

GUIDE = """
PRIMARY PEER_BACKUP ACTIVE
PRIMARY PEER_ACTIVE PASSIVE
PRIMARY VOTE ACTIVE
BACKUP PEER_ACTIVE PASSIVE
ACTIVE PEER_ACTIVE error
PASSIVE PEER_PRIMARY ACTIVE
PASSIVE PEER_BACKUP ACTIVE
PASSIVE PEER_PASSIVE error
PASSIVE VOTE ACTIVE
"""


def star(state=Star.PRIMARY, **options):
    said = []
    made = BinaryStar("primary" if state is not Star.BACKUP else "backup", said.append, 0.0, **options)
    if state is Star.ACTIVE:
        made.peer_said(b"2", 0.0)
    elif state is Star.PASSIVE:
        made.peer_said(b"3", 0.0)
    assert made.state is state
    said.clear()
    return made, said


def test_the_table_is_that_of_the_guide():
    rows = {f"{state.name} {event.name} {'error' if after is None else after.name}" for (state, event), after in TABLE.items()}
    assert rows == set(GUIDE.strip().split("\n"))


@pytest.mark.parametrize("state", list(Star))
@pytest.mark.parametrize("event", list(Event))
def test_each_state_and_event(state, event):
    made, said = star(state)
    expected = TABLE.get((state, event), state)
    act = (lambda: made.peer_said(PEER[event], 1.0)) if event in PEER else None
    if act is None:
        now = 1.0 if event is Event.REQUEST else 2.0
        made.tick(1.0)                      # it did not stand still
        said.clear()
        assert made.admits(now) == (expected is Star.ACTIVE)
    elif expected is None:
        with pytest.raises(SplitBrain):
            act()
        expected = state
    else:
        act()
    assert made.state is expected
    assert said == ([b"%d" % expected] if expected is not state else []), "a change is said at once"


def test_the_state_is_said_at_every_heartbeat():
    made, said = star()
    assert made.due() == 1.0
    made.tick(0.5)
    assert said == []
    made.tick(1.0)
    assert (said, made.due()) == ([b"1"], 2.0)


@pytest.mark.parametrize("noise", [b"", b"0", b"5", b"33", b"\x03", bytes(1000)])
def test_what_is_no_state_changes_nothing_and_is_no_sign_of_life(noise):
    made, said = star(Star.PASSIVE)
    made.peer_said(noise, 1.9)
    assert (made.state, made.ignored, said) == (Star.PASSIVE, 1, [])
    assert made.admits(2.0)


def test_a_server_that_cannot_become_active_does_not_and_tries_again():
    can = iter([False, True])
    made, said = star(Star.PASSIVE, activate=lambda: next(can))
    assert not made.admits(2.0)
    assert (made.state, said) == (Star.PASSIVE, [])
    assert made.admits(2.1)


@pytest.mark.parametrize("wakes", [lambda made, now: made.tick(now), lambda made, now: made.admits(now),
                                   lambda made, now: made.peer_said(b"4", now)])
def test_an_active_server_that_stood_still_ends_before_it_says_anything(wakes):
    made, said = star(Star.ACTIVE)
    with pytest.raises(SplitBrain, match="stood still for 2.0 seconds"):
        wakes(made, 2.0)
    assert said == []


def test_an_active_server_whose_peer_was_dead_before_may_stand_still():
    made, _ = star(Star.ACTIVE)
    for now in (1.0, 2.0, 3.0):
        made.tick(now)
    made.tick(100.0)
    assert made.admits(100.0)


@pytest.mark.parametrize(("role", "heartbeat"), [("leader", 1.0), ("primary", 0.0), ("backup", float("nan"))])
def test_a_wrong_role_or_heartbeat_is_refused(role, heartbeat):
    with pytest.raises(ValueError, match="role|heartbeat"):
        BinaryStar(role, print, 0.0, heartbeat=heartbeat)


# ---- all orders of events

class Pair:
    """Two servers in steps of half a heartbeat. What one says the other hears at the next step; who is down hears nothing."""

    ROLES = ("primary", "backup")

    def __init__(self):
        self.now, self.stars, self.said = 0.0, [None, None], [[], []]
        for at in (0, 1):
            self.start(at)

    def start(self, at):
        self.said[1 - at].clear()           # a new connection: what went to the old one is lost
        self.stars[at] = BinaryStar(self.ROLES[at], self.said[at].append, self.now)

    def step(self, restart, asked, first):
        """One step; returns how many are active."""
        self.now += 0.5
        for at in (0, 1):
            if restart == at:
                if self.stars[at] is None:
                    self.start(at)
                else:
                    self.stars[at] = None
        heard, self.said[0][:], self.said[1][:] = (self.said[0][:], self.said[1][:]), [], []
        for at in (first, 1 - first):
            if self.stars[at] is not None:
                for digit in heard[1 - at]:
                    self.stars[at].peer_said(digit, self.now)
                self.stars[at].tick(self.now)
                if asked & 1 << at:
                    self.stars[at].admits(self.now)
        return sum(made is not None and made.active for made in self.stars)

    def key(self):
        """What decides the future."""
        ages = [None if made is None else (made.state, self.now - made._told, min(self.now - made._heard, 2.0))
                for made in self.stars]
        return repr((ages, self.said))

    def copy(self):
        other = copy.copy(self)
        other.said = [list(said) for said in self.said]
        other.stars = [copy.copy(made) for made in self.stars]
        for made, said in zip(other.stars, other.said, strict=True):
            if made is not None:
                made._tell = said.append
        return other


def test_whatever_happens_there_are_never_two_active_servers_while_the_link_works():
    """Every order of starts, deaths and requests, until no new state is found."""
    seen, edge = set(), [Pair()]
    actives = set()
    while edge:
        new = []
        for pair in edge:
            for restart, asked, first in itertools.product((None, 0, 1), range(4), (0, 1)):
                after = pair.copy()
                count = after.step(restart, asked, first)
                actives.add(count)
                assert count < 2, (pair.key(), restart, asked, first)
                if after.key() not in seen:
                    seen.add(after.key())
                    new.append(after)
        edge = new
    assert actives == {0, 1}
    assert len(seen) > 50


def test_with_clients_that_ask_one_server_is_active_soon_whoever_is_up():
    for up in ((True, True), (True, False)):
        pair = Pair()
        if not up[1]:
            pair.stars[1] = None
        counts = [pair.step(None, 3, 0) for _ in range(6)]
        assert counts[-1] == 1


def test_the_backup_takes_over_within_two_heartbeats_of_silence_and_the_primary_comes_back_passive():
    pair = Pair()
    for _ in range(4):
        pair.step(None, 1, 0)
    assert [made.state for made in pair.stars] == [Star.ACTIVE, Star.PASSIVE]
    pair.step(0, 0, 0)
    counts = [pair.step(None, 2, 0) for _ in range(4)]
    assert counts[-1] == 1
    pair.step(0, 3, 0)
    for _ in range(4):
        assert pair.step(None, 3, 0) == 1
    assert [made.state for made in pair.stars] == [Star.PASSIVE, Star.ACTIVE]


def test_a_backup_alone_serves_nobody():
    pair = Pair()
    pair.stars[0] = None
    assert {pair.step(None, 3, 0) for _ in range(20)} == {0}
