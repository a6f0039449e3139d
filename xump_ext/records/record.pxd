"""Declarations of `record.pyx`, and the inline code that finds the parts of a record (`kinds.pxd` draws them)."""

from libc.stdint cimport int64_t, uint16_t, uint32_t, uint64_t

from xump_ext.records.kinds cimport (
    NO_TEXT, RECORD_RARE, RECORD_TIMED, enter_record_t, head_t, queue_record_t, rare_t, timed_t,
)

cdef inline rare_t* rare_of(const enter_record_t* record) noexcept nogil:
    """The rare fields of an entry; NULL if it has none."""
    return <rare_t*> (record + 1) if record.head.flags & RECORD_RARE else NULL

cdef inline timed_t* timed_of(const enter_record_t* record) noexcept nogil:
    """Its time and priority; NULL: it has none."""
    if not record.head.flags & RECORD_TIMED:
        return NULL
    return <timed_t*> (<char*> (record + 1) + (sizeof(rare_t) if record.head.flags & RECORD_RARE else 0))

cdef inline uint32_t enter_fixed(int flags) noexcept nogil:
    """The bytes of an ENTER record with these flags, before its texts."""
    return <uint32_t> (sizeof(enter_record_t) + (sizeof(rare_t) if flags & RECORD_RARE else 0)
                       + (sizeof(timed_t) if flags & RECORD_TIMED else 0))

cdef inline const char* payload_of(const enter_record_t* record) noexcept nogil:
    return <const char*> record + enter_fixed(record.head.flags)

cdef inline uint64_t padded(uint64_t size) noexcept nogil:
    return (size + 7) & ~<uint64_t> 7

cdef inline uint32_t text_bytes(uint16_t size) noexcept nogil:
    return 0 if size == NO_TEXT else size

cdef inline int64_t* delays_of(const queue_record_t* record) noexcept nogil:
    return <int64_t*> (record + 1)

cdef inline char* name_of(const queue_record_t* record) noexcept nogil:
    """The name in a QUEUE record; the dead letter queue's and the group's field follow."""
    return <char*> (record + 1) + record.retry_count * sizeof(int64_t)

# Whether the parts of a QUEUE record fill it up to its padding.
cdef bint queue_fits(const queue_record_t* record) noexcept nogil
# Whether a queue may have the numbers in it, and a staged one no more than its name. O(retry delays).

# The bytes of a record's fixed part, which its crc covers; of a QUEUE, the whole record. 0: no such kind, or a wrong length.
cdef uint32_t head_bytes(const head_t* head) noexcept nogil
cdef uint32_t head_crc(const head_t* head, uint32_t salt) noexcept nogil

cdef enum:
    RECORD_WHOLE = 0
    RECORD_CUT = 1          # the record goes on behind the end of the buffer
    RECORD_NONE = 2         # there is no record here, or its head is damaged
    RECORD_PAYLOAD = 3      # the head is whole, the payload is damaged

# The state of the record at `at`, in a buffer with so many bytes left, at that position of the log.
cdef int record_state(const char* at, uint64_t left, uint64_t position, uint32_t salt) noexcept nogil

# Writes the key of a record in a keyed store. False: records of its kind have no key.
cdef bint key_write(const head_t* head, unsigned char* key) noexcept nogil
# Tells a queue from one of the same name that was deleted before.
cdef uint64_t incarnation_new() except 0
