"""Records of stores: what is made by hand is read, whole, in pieces, cut anywhere and with any bit flipped; never a wrong
answer."""

import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from xump_ext.records import kinds
from xump.testing import records_by_hand as hand
from xump.testing.driver import records_in
from xump_ext import records

SALT = 0xC0FFEE


def a_log():
    """Three groups that have records of every kind."""
    log = hand.Log(SALT, end=4096)
    return log, [
        log.group(hand.queue(1, "jobs", limit=7, dead_letter="dead"), hand.state(1, 1),
                  hand.queue(2, "größer", auto_delete=True)),
        log.group(hand.enter(1, 1, "a.b", b"body", reply_to="r", message_id="", timestamp=5, origin=(0, 2, 9)),
                  hand.enter(1, 2, body=bytes(100)), hand.mark(1, 2, 3, kinds.HISTORIC)),
        log.group(hand.settle(1, 1, 2, marked=True), hand.gone(2), hand.state(1, 3, 3, 2)),
    ]


@pytest.mark.parametrize("data, expected", [
    (b"", 0), (b"123456789", 0xE3069283), (bytes(32), 0x8A9136AA), (b"\xff" * 32, 0x62A8AB43), (bytes(range(32)), 0x46DD794E),
    (bytes(range(31, -1, -1)), 0x113FDB5C),
])
def test_crc_of_the_standard(data, expected):
    """RFC 3720, appendix B.4."""
    assert records.crc(data) == records.crc_soft(data) == expected


@given(st.binary(max_size=100), st.integers(0, 100), st.integers(0, 2**32 - 1))
def test_crc_goes_on(data, cut, seed):
    whole = records.crc(data, seed)
    assert whole == records.crc_soft(data, seed) == records.crc(data[cut:], records.crc(data[:cut], seed))


@pytest.mark.parametrize("salt", [0, 1, SALT, 2**32 - 1])
def test_the_salt_of_a_record(salt):
    """Computed from any of its kind, whatever follows; a damaged one has another."""
    log = hand.Log(salt, end=4096)
    records_made = [hand.queue(1, "jobs"), hand.state(1, 1), hand.enter(1, 1, "a.b", b"body"), hand.mark(1, 1), hand.settle(1, 1),
                    hand.enter(1, 2, reply_to="r", origin=(0, 2, 9)), hand.gone(1)]
    data = log.group(*records_made)
    assert records.salt_of(data) == salt
    for number, record in enumerate(records_made):
        made = hand.packed(record, 4096 + 8 * number, salt)
        assert records.salt_of(made) == records.salt_of(made + b"more") == salt
        assert records.salt_of(made[:31]) is None and records.salt_of(b"\0" * 200) is None
        damaged = bytearray(made)
        damaged[20] ^= 1
        assert records.salt_of(damaged) != salt


def test_whole_groups_are_found_in_any_piece():
    _, groups = a_log()
    data, ends = b"".join(groups), [len(b"".join(groups[:n])) for n in range(4)]
    for size in range(len(data) + 1):
        used, _, state, failed = records.whole_groups(data[:size], 4096, SALT)
        assert used == max(end for end in ends if end <= size)
        assert state == ("whole" if used == size else "cut") and failed == (None if used == size else 4096 + used)


def test_any_flipped_bit_is_seen():
    log, groups = a_log()
    log.synced = 4096
    groups.append(log.group(hand.state(1, 4)))
    data, starts = b"".join(groups), [len(b"".join(groups[:n])) for n in range(4)]
    for at in range(len(data)):
        damaged = bytearray(data)
        damaged[at] ^= 1 << random.Random(at).randrange(8)
        used, _, state, failed = records.whole_groups(damaged, 4096, SALT)
        hit = max(start for start in starts if start <= at)
        assert used == hit and state in ("head", "payload", "cut") and 4096 + hit <= failed <= 4096 + at


def test_another_place_or_store_is_no_record():
    _, groups = a_log()
    assert records.whole_groups(groups[0], 4096, SALT)[2] == "whole"
    assert records.whole_groups(groups[0], 4104, SALT)[2:] == ("head", 4104)
    assert records.whole_groups(groups[0], 4096, SALT + 1)[2:] == ("head", 4096)


def test_what_comes_behind_damage_is_found():
    log, groups = a_log()
    log.synced = 8000
    groups.append(log.group(hand.state(1, 4)))
    data = b"".join(groups)
    start = len(data) - len(groups[3])
    assert records.next_group(b"\xa5" * 24 + data[start:], 4096 + start - 24, SALT) == (24, len(groups[3]), 8000)
    assert records.next_group(data[8:start], 4104, SALT)[0] == len(groups[0]) - 8
    assert records.next_group(b"\xa5" * 1000, 4096, SALT) is None
    damaged = bytearray(groups[1])
    damaged[56 + 88] ^= 1
    assert records.next_record(damaged[56:], 4096 + len(groups[0]) + 56, SALT) == (0, "payload", 96)
    assert records.next_record(damaged[64:], 4096 + len(groups[0]) + 64, SALT)[:2] == (88, "whole")


def test_a_group_as_keys_and_values():
    _, groups = a_log()
    first, second = records.entry_key(1, 1), records.entry_key(1, 2)
    other = (2).to_bytes(4, "big") + bytes(8)
    queues, entries, ends = (records.items(group) for group in groups)
    assert [key[:5] for key, _ in queues[0]] == [b"\1\0\0\0\1", b"\1\0\0\0\2", b"\2\0\0\0\1"]
    assert [key for key, _ in entries[0]] == [first, second, kinds.KEY_MARK + second[1:]]
    assert entries[0][0][1] == groups[1][56 : 56 + len(entries[0][0][1])] and not entries[1]
    assert [key[:1] for key, _ in ends[0]] == [kinds.KEY_STATE]
    assert ends[1] == [(kinds.KEY_QUEUE + other,) * 2, (kinds.KEY_STATE + other,) * 2, (first, second),
                       (kinds.KEY_MARK + first[1:], kinds.KEY_MARK + second[1:]),
                       (kinds.KEY_SEEN + other, kinds.KEY_SEEN + other[:4] + b"\xff" * 8), (kinds.KEY_META + other,) * 2,
                       (kinds.KEY_ADOPT + other,) * 2]


def changed(group, entries):
    """As a store would that looks at records one by one."""
    late = set()
    for kind, flags, queue, id, record in records_in(group[56:], SALT):
        if kind == kinds.SETTLE:
            of = (kinds.KEY_ENTER, kinds.KEY_MARK) if flags else (kinds.KEY_ENTER,)
            late |= {first + key(queue, id + at) for at in range(records.describe(record)["count"]) for first in of}
        elif kind == kinds.GONE:
            late |= {first + key(queue, 0) for first in (kinds.KEY_QUEUE, kinds.KEY_STATE, kinds.KEY_META, kinds.KEY_ADOPT)}
            late |= {kinds.KEY_SEEN + key(queue, one) for one in SOME_IDS}
        elif kind == kinds.FORGET:
            late |= {kinds.KEY_SEEN + key(queue, one) for one in SOME_IDS if one <= id}
        else:
            first, id = {kinds.QUEUE: (kinds.KEY_QUEUE, 0), kinds.STATE: (kinds.KEY_STATE, 0),
                         kinds.ENTER: (kinds.KEY_ENTER, id), kinds.MARK: (kinds.KEY_MARK, id),
                         kinds.SEEN: (kinds.KEY_SEEN, id), kinds.META: (kinds.KEY_META, 0),
                         kinds.ADOPT: (kinds.KEY_ADOPT, 0)}[kind]
            entries[first + key(queue, id)] = record
    for gone in late:
        entries.pop(gone, None)


def key(queue, id):
    return queue.to_bytes(4, "big") + id.to_bytes(8, "big")


numbers = st.integers(1, 3)
SOME_IDS = [*range(1, 10), *range(250, 261), 2**32]
ids = st.sampled_from(SOME_IDS)
some_records = st.lists(st.one_of(
    st.builds(hand.enter, numbers, ids, body=st.binary(max_size=20)), st.builds(hand.mark, numbers, ids, numbers),
    st.builds(hand.queue, numbers, st.just("q")), st.builds(hand.state, numbers, ids), st.builds(hand.gone, numbers),
    st.builds(hand.meta, numbers, ids, st.dictionaries(st.text(max_size=3), st.binary(max_size=9), max_size=3)),
    st.builds(hand.adopt, numbers, ids, st.lists(st.lists(numbers, min_size=1, max_size=3), max_size=3), ids),
    st.builds(hand.seen, numbers, ids, st.just((1, 2))), st.builds(hand.forget, numbers, ids),
    st.builds(hand.settle, numbers, ids, st.integers(1, 5), marked=st.booleans())), max_size=30)


@given(some_records, some_records)
def test_any_group_as_keys_and_values(before, then):
    """In order, each key once, and the same as if its records were applied one by one."""
    log, expected, entries = hand.Log(SALT, end=4096), {}, {}
    for some in (before, then):
        group = log.group(*some)
        puts, gone = records.items(group)
        assert [key for key, _ in puts] == sorted({key for key, _ in puts})
        bounds = [bound for bounds in gone for bound in bounds]
        assert bounds == sorted(bounds)
        entries.update(puts)
        entries = {key: record for key, record in entries.items() if not any(first <= key <= last for first, last in gone)}
        assert entries.keys() >= dict(puts).keys()
        changed(group, expected)
        assert entries == expected


def test_records_are_described():
    _, groups = a_log()
    found, at = [], 0
    data = b"".join(groups)
    while at < len(data):
        found.append(records.describe(data, at))
        at += found[-1]["length"]
    assert [one["kind"] for one in found] == [
        "GROUP", "QUEUE", "STATE", "QUEUE", "GROUP", "ENTER", "ENTER", "MARK", "GROUP", "SETTLE", "GONE", "STATE"]
    assert found[5]["address"] == "a.b" and found[5]["origin"] == (0, 2, 9) and found[3]["name"] == "größer"
    with pytest.raises(ValueError, match="at least 32 bytes"):
        records.describe(data[:31])
