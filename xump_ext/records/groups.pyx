"""Verifies the groups of a log, whole groups at a time: in memory, or as a store reads them from its file.

`records/kinds.pxd` draws the groups and their records.
"""

from os import strerror

from cpython.buffer cimport PyBUF_SIMPLE, PyBUF_WRITABLE, PyBuffer_Release, PyObject_GetBuffer
from cpython.exc cimport PyErr_CheckSignals
from libc.errno cimport EINTR, errno
from libc.stdint cimport int64_t, uint32_t, uint64_t
from libc.string cimport memset
from posix.types cimport off_t

from xump_ext.records.kinds cimport GROUP, group_record_t, head_t
from xump_ext.records.record cimport RECORD_CUT, RECORD_NONE, RECORD_WHOLE, record_state
from xump_ext.records.record import STATES

cdef extern from "<unistd.h>" nogil:
    ssize_t pread(int fd, void* to, size_t size, off_t at)

cdef struct verified_t:
    uint64_t bytes          # of whole groups
    uint64_t synced         # up to where one of them says that the log was synced
    uint64_t bad            # behind them, the offset of the record that is not whole
    int state               # of what stands there


cdef int group_state(const char* at, uint64_t left, uint64_t position, uint32_t salt, uint64_t* bad) noexcept nogil:
    """The state of a group and all its records. `bad` is the offset of the first record that is not whole."""
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


cdef verified_t verified(const char* at, uint64_t size, uint64_t position, uint32_t salt) noexcept nogil:
    """How much of this is whole groups."""
    cdef verified_t found
    cdef uint64_t bad = 0
    found.bytes = found.synced = found.bad = 0
    found.state = RECORD_WHOLE
    while found.bytes < size:
        found.state = group_state(at + found.bytes, size - found.bytes, position + found.bytes, salt, &bad)
        if found.state != RECORD_WHOLE:
            found.bad = found.bytes + bad
            break
        found.synced = max(found.synced, (<const group_record_t*> (at + found.bytes)).synced)
        found.bytes += (<const group_record_t*> (at + found.bytes)).bytes
    return found


def whole_groups(data, uint64_t position, uint32_t salt):
    """How much of a piece of the log, which begins with a group, is whole groups: (bytes, synced, state, failed).

    `bytes` is the size of the whole groups. `synced` is the highest position up to which one of them says that the log was
    synced. `state` says what comes behind them: "whole": nothing. "cut": a group that goes on behind the buffer. "head": no
    record, or a record with a damaged head, at position `failed`. "payload": a record with a damaged payload there. Verifies
    every crc. O(bytes), without the interpreter's lock.
    """
    cdef Py_buffer view
    cdef verified_t found
    PyObject_GetBuffer(data, &view, PyBUF_SIMPLE)
    try:
        with nogil:
            found = verified(<const char*> view.buf, view.len, position, salt)
    finally:
        PyBuffer_Release(&view)
    return answer(&found, position)


cdef tuple answer(const verified_t* found, uint64_t position):
    return found.bytes, found.synced, STATES[found.state], position + found.bad if found.state != RECORD_WHOLE else None


def read_groups(int fd, int64_t at, data, uint64_t kept, uint64_t position, uint32_t salt):
    """Read a piece of the log from byte `at` of a file into a buffer, behind the `kept` bytes that are there, and look through
    all of the buffer as `whole_groups` does, whose answer this returns: (bytes, synced, state, failed).

    `position` is that of the buffer's first byte. Zeros stand for what is behind the end of the file; if `at` is negative, for
    all that is to be read. The interpreter's lock is released once, for both, so another thread applies records meanwhile.
    Raises OSError if the file cannot be read. O(bytes).
    """
    cdef Py_buffer view
    cdef verified_t found
    cdef uint64_t done = kept
    cdef int error = EINTR
    PyObject_GetBuffer(data, &view, PyBUF_WRITABLE)
    try:
        if kept > <uint64_t> view.len:
            raise ValueError(f"kept={kept}; the buffer has {view.len} bytes")
        while error == EINTR:
            PyErr_CheckSignals()
            with nogil:
                error = read_on(fd, at - <int64_t> kept, <char*> view.buf, view.len, &done)
                if error == 0:
                    found = verified(<const char*> view.buf, view.len, position, salt)
        if error:
            raise OSError(error, strerror(error))
    finally:
        PyBuffer_Release(&view)
    return answer(&found, position)


cdef int read_on(int fd, int64_t start, char* to, uint64_t size, uint64_t* done) noexcept nogil:
    """Read until the buffer is full, which has `done` bytes already; returns an errno, or 0. The buffer's first byte stands at
    byte `start` of the file."""
    cdef ssize_t got
    while done[0] < size:
        got = pread(fd, to + done[0], size - done[0], start + <int64_t> done[0]) if start + <int64_t> done[0] >= 0 else 0
        if got < 0:
            return errno
        if got == 0:
            memset(to + done[0], 0, size - done[0])
            break
        done[0] += got
    return 0
