"""Records are verified and told apart; `records.pxd` draws them. Stores call what is here from Python, by whole buffers."""

from cpython.buffer cimport PyBUF_SIMPLE, PyBuffer_Release, PyObject_GetBuffer
from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_FromStringAndSize
from cpython.unicode cimport PyUnicode_DecodeUTF8

NAMES = {GROUP: "GROUP", QUEUE: "QUEUE", GONE: "GONE", STATE: "STATE", ENTER: "ENTER", MARK: "MARK", SETTLE: "SETTLE"}

# The first byte of a key: so that keys in order are records in the order in which they may be applied.
KEY_QUEUE, KEY_STATE, KEY_ENTER, KEY_MARK = b"\x01", b"\x02", b"\x03", b"\x04"

cdef uint64_t RECORD_BYTES_MAX = <uint64_t> 1 << 31


cdef uint32_t head_bytes(const head_t* head) noexcept nogil:
    if head.kind == ENTER:
        return sizeof(enter_record_t) if head.length >= sizeof(enter_record_t) else 0
    if head.kind == SETTLE:
        return sizeof(settle_record_t) if head.length == sizeof(settle_record_t) else 0
    if head.kind == MARK:
        return sizeof(mark_record_t) if head.length == sizeof(mark_record_t) else 0
    if head.kind == STATE:
        return sizeof(state_record_t) if head.length == sizeof(state_record_t) else 0
    if head.kind == GROUP:
        return sizeof(group_record_t) if head.length == sizeof(group_record_t) else 0
    if head.kind == GONE:
        return sizeof(head_t) if head.length == sizeof(head_t) else 0
    if head.kind == QUEUE:
        return head.length if head.length >= sizeof(queue_record_t) else 0
    return 0


cdef uint32_t head_crc(const head_t* head, uint32_t salt) noexcept nogil:
    return crc32c(salt, <const char*> head + 4, head_bytes(head) - 4)


cdef bint enter_fits(const enter_record_t* record) noexcept nogil:
    """The parts fill the record up to its padding."""
    cdef uint64_t size = sizeof(enter_record_t) + <uint64_t> record.body_bytes + record.header_bytes + record.address_bytes
    size += text_bytes(record.reply_to_bytes) + text_bytes(record.message_id_bytes) + text_bytes(record.destination_bytes)
    return padded(size) == record.head.length


cdef int record_state(const char* at, uint64_t left, uint64_t position, uint32_t salt) noexcept nogil:
    cdef const head_t* head = <const head_t*> at
    cdef const enter_record_t* record = <const enter_record_t*> at
    cdef uint32_t fixed
    if left < sizeof(head_t):
        return RECORD_CUT
    if head.magic != MAGIC or head.position != position or head.length & 7 or head.length > RECORD_BYTES_MAX:
        return RECORD_NONE
    fixed = head_bytes(head)
    if fixed == 0:
        return RECORD_NONE
    if left < fixed:
        return RECORD_CUT
    if head_crc(head, salt) != head.crc or (head.kind == ENTER and not enter_fits(record)):
        return RECORD_NONE
    if left < head.length:
        return RECORD_CUT
    if head.kind == ENTER and crc32c(salt, at + fixed, head.length - fixed) != record.payload_crc:
        return RECORD_PAYLOAD
    return RECORD_WHOLE


# ---- a log of groups

STATES = {RECORD_WHOLE: "whole", RECORD_CUT: "cut", RECORD_NONE: "head", RECORD_PAYLOAD: "payload"}


cdef int group_state(const char* at, uint64_t left, uint64_t position, uint32_t salt, uint64_t* bad) noexcept nogil:
    """Of a group and all its records; `bad`: how far from its start the first one stands that is not whole."""
    cdef const group_record_t* group = <const group_record_t*> at
    cdef uint64_t done = sizeof(group_record_t), count = 0
    cdef int state = record_state(at, left, position, salt)
    bad[0] = 0
    if state != RECORD_WHOLE:
        return state
    if group.head.kind != GROUP or group.bytes < sizeof(group_record_t):
        return RECORD_NONE
    if group.bytes > left:
        return RECORD_CUT
    while done < group.bytes:
        bad[0] = done
        state = record_state(at + done, group.bytes - done, position + done, salt)
        if state != RECORD_WHOLE:
            return RECORD_NONE if state == RECORD_CUT else state
        done += (<const head_t*> (at + done)).length
        count += 1
    bad[0] = 0
    return RECORD_WHOLE if count == group.count else RECORD_NONE


def whole_groups(data, uint64_t position, uint32_t salt):
    """How much of a piece of the log, which begins with a group, is whole groups: (bytes, synced, state, failed).

    `synced` is the highest position up to which one of them says that the log was synced. `state` says what comes behind them:
    "whole": nothing; "cut": a group that goes on behind the buffer; "head": no record, or one with a damaged head, at position
    `failed`; "payload": one with a damaged payload there. Verifies every crc. O(bytes), without the interpreter's lock.
    """
    cdef Py_buffer view
    cdef const char* at
    cdef uint64_t done = 0, synced = 0, size, bad = 0
    cdef int state = RECORD_WHOLE
    PyObject_GetBuffer(data, &view, PyBUF_SIMPLE)
    try:
        at = <const char*> view.buf
        size = view.len
        with nogil:
            while done < size:
                state = group_state(at + done, size - done, position + done, salt, &bad)
                if state != RECORD_WHOLE:
                    break
                synced = max(synced, (<const group_record_t*> (at + done)).synced)
                done += (<const group_record_t*> (at + done)).bytes
    finally:
        PyBuffer_Release(&view)
    return done, synced, STATES[state], position + done + bad if state != RECORD_WHOLE else None


def next_group(data, uint64_t position, uint32_t salt):
    """Where in a piece of the log the next head of a group stands: (offset, bytes, synced), or None.

    Its records are not looked at. For what comes behind damage: any multiple of 8 bytes is tried. O(bytes).
    """
    cdef Py_buffer view
    cdef const char* at
    cdef const group_record_t* group
    cdef uint64_t offset = (8 - (position & 7)) & 7, size
    cdef bint found = False
    PyObject_GetBuffer(data, &view, PyBUF_SIMPLE)
    try:
        at = <const char*> view.buf
        size = view.len
        with nogil:
            while offset + sizeof(group_record_t) <= size:
                group = <const group_record_t*> (at + offset)
                if (group.head.magic == MAGIC and group.head.kind == GROUP
                        and record_state(at + offset, size - offset, position + offset, salt) == RECORD_WHOLE):
                    found = True
                    break
                offset += 8
        return (offset, group.bytes, group.synced) if found else None
    finally:
        PyBuffer_Release(&view)


def next_record(data, uint64_t position, uint32_t salt):
    """Where the next record with a whole head stands: (offset, state, length), or None: as `next_group`, for repairs."""
    cdef Py_buffer view
    cdef const char* at
    cdef uint64_t offset = (8 - (position & 7)) & 7, size
    cdef int state = RECORD_NONE
    PyObject_GetBuffer(data, &view, PyBUF_SIMPLE)
    try:
        at = <const char*> view.buf
        size = view.len
        with nogil:
            while offset + sizeof(head_t) <= size:
                if (<const head_t*> (at + offset)).magic == MAGIC:
                    state = record_state(at + offset, size - offset, position + offset, salt)
                    if state == RECORD_WHOLE or state == RECORD_PAYLOAD:
                        break
                offset += 8
        if state != RECORD_WHOLE and state != RECORD_PAYLOAD:
            return None
        return offset, STATES[state], (<const head_t*> (at + offset)).length
    finally:
        PyBuffer_Release(&view)


def record_whole(data, uint64_t position, uint32_t salt):
    """What a buffer holds that should be one record at that position: "whole", "cut", "head" or "payload"."""
    cdef Py_buffer view
    PyObject_GetBuffer(data, &view, PyBUF_SIMPLE)
    try:
        return STATES[record_state(<const char*> view.buf, view.len, position, salt)]
    finally:
        PyBuffer_Release(&view)


# ---- single records

def crc(data, uint32_t seed=0):
    """CRC-32C of a buffer, behind others whose CRC is `seed`. O(bytes)."""
    cdef Py_buffer view
    PyObject_GetBuffer(data, &view, PyBUF_SIMPLE)
    try:
        with nogil:
            seed = crc32c(seed, view.buf, view.len)
    finally:
        PyBuffer_Release(&view)
    return seed


def crc_soft(bytes data, uint32_t seed=0):
    """As `crc`, without the instruction: what machines do that have none."""
    return ~crc32c_soft(~seed, data, len(data)) & 0xFFFFFFFF


cdef bytes key_of(bytes kind, uint32_t queue, uint64_t id):
    """Numbers with their highest byte first, so that keys are in their order."""
    cdef bytes key = PyBytes_FromStringAndSize(NULL, 13)
    cdef unsigned char* at = <unsigned char*> PyBytes_AS_STRING(key)
    cdef int i
    at[0] = <unsigned char> PyBytes_AS_STRING(kind)[0]
    for i in range(4):
        at[1 + i] = <unsigned char> (queue >> (24 - 8 * i))
    for i in range(8):
        at[5 + i] = <unsigned char> (id >> (56 - 8 * i))
    return key


def entry_key(queue, id):
    """The key of a message's ENTER record in a keyed store: keys of one queue are in order of id."""
    return key_of(KEY_ENTER, queue, id)


def items(data):
    """What a batch changes in a keyed store, in order: (key, record) to put, (key, None) to delete.

    `data` is a whole group, as `write` gets it. A deleted queue is given as (key, None) of its QUEUE and STATE; its messages were
    deleted before by SETTLEs. O(records and settled ids).
    """
    cdef Py_buffer view
    cdef const head_t* head
    cdef uint64_t at = 0, i
    cdef list late = []
    PyObject_GetBuffer(data, &view, PyBUF_SIMPLE)
    try:
        while at < <uint64_t> view.len:
            head = <const head_t*> (<char*> view.buf + at)
            if head.kind == SETTLE:
                for i in range((<const settle_record_t*> head).count):
                    late.append((key_of(KEY_ENTER, head.queue, head.id + i), None))
                    if head.flags & RECORD_MARKED:
                        late.append((key_of(KEY_MARK, head.queue, head.id + i), None))
            elif head.kind == GONE:
                late.append((key_of(KEY_QUEUE, head.queue, 0), None))
                late.append((key_of(KEY_STATE, head.queue, 0), None))
            elif head.kind != GROUP:
                kind = KEY_ENTER if head.kind == ENTER else KEY_MARK if head.kind == MARK else (
                    KEY_QUEUE if head.kind == QUEUE else KEY_STATE)
                record = PyBytes_FromStringAndSize(<const char*> head, head.length)
                yield key_of(kind, head.queue, head.id if head.kind == ENTER or head.kind == MARK else 0), record
            at += head.length
    finally:
        PyBuffer_Release(&view)
    yield from late


def describe(data, uint64_t at=0):
    """The record that begins at that byte of a buffer, as a dict, for people; its crc is not looked at."""
    cdef Py_buffer view
    PyObject_GetBuffer(data, &view, PyBUF_SIMPLE)
    try:
        if at + sizeof(head_t) > <uint64_t> view.len:
            raise ValueError(f"a record has at least {sizeof(head_t)} bytes, there are {view.len - <int64_t> at}")
        return described(<const head_t*> (<const char*> view.buf + at), view.len - at)
    finally:
        PyBuffer_Release(&view)


cdef dict described(const head_t* head, uint64_t left):
    cdef const enter_record_t* enter = <const enter_record_t*> head
    cdef const state_record_t* state = <const state_record_t*> head
    cdef const queue_record_t* queue = <const queue_record_t*> head
    cdef const group_record_t* group = <const group_record_t*> head
    cdef dict found = {"kind": NAMES.get(head.kind, f"kind {head.kind}"), "queue": head.queue, "id": head.id,
                       "position": head.position, "length": head.length, "flags": head.flags}
    if head_bytes(head) == 0 or head_bytes(head) > left:
        return found
    if head.kind == ENTER:
        found.update(timestamp=enter.timestamp, body_bytes=enter.body_bytes, hops=enter.hops, delivery_count=enter.delivery_count,
                     origin=(enter.origin_store, enter.origin_queue, enter.origin_id) if enter.origin_id else None)
        if head.length <= left and enter_fits(enter):
            found["address"] = PyUnicode_DecodeUTF8(<const char*> (enter + 1), enter.address_bytes, "replace")
    elif head.kind == SETTLE:
        found["count"] = (<const settle_record_t*> head).count
    elif head.kind == MARK:
        found["delivery_count"] = (<const mark_record_t*> head).delivery_count
    elif head.kind == STATE:
        found.update(next_id=head.id, frontier=state.frontier, handed=state.handed, settled=state.settled)
    elif head.kind == QUEUE and head.length <= left and sizeof(queue_record_t) + queue.name_bytes <= head.length:
        found["name"] = PyUnicode_DecodeUTF8(<const char*> (queue + 1), queue.name_bytes, "replace")
    elif head.kind == GROUP:
        found.update(count=group.count, bytes=group.bytes, synced=group.synced)
    return found
