"""The layout of the records that a store keeps, byte by byte.

Numbers are little-endian. A record starts at a multiple of 8 bytes of the log.

A store is a log of records. Applied in order, they give the state of its queues. So a copy of the log in order is the same
store, and so is any selection of records that leaves out what later records undo.

    every record                                        a group: what one write makes durable, all of it or nothing

     0  crc u32           of what follows in the head    GROUP   count of records, bytes of the group, and up to where
     4  magic u16         0x5A58                                 the log was synced before it was written
     6  kind u8                                          ENTER   MARK   SETTLE   QUEUE   GONE   STATE   …
     7  flags u8
     8  length u32        with the padding to 8 bytes, which is zero
    12  queue u32         its number in the store, from 1 on; 0: none
    16  position u64      where in the log the record begins: tells a record of an earlier lap
    24  id u64

    GROUP    id: the number of the group                 STATE    id: the next id to issue
    32  count u64         records that follow            32  frontier u64      ids below are routed, copies made
    40  bytes u64         of the group, this head too    40  handed u64        ids up to it may have been handed out
    48  synced u64        position                       48  timestamp i64     of the newest
                                                         56  settled u64
    SETTLE   ids that are gone, from `id` on             64  deleted u64
    32  count u64                                        72  dropped u64[8]    by reason
    flags: MARKED, each of them has a MARK              136  dead_lettered u64[8]
    MARK     id: of the message; its delivery count and flags from here on
    32  delivery_count u32                               QUEUE    id: 0
    36  reserved u32                                     32  limit u64         2**64 - 1: none
    flags: HISTORIC, REDELIVERED, DEAD_ENTRY             40  history_limit u64
                                                         48  delivery_limit u32
    GONE     the queue was deleted with all it held      52  name_bytes u16
                                                         54  dead_letter_bytes u16   65535: none
    ENTER    id: of the message                          56  incarnation u64
    32  timestamp i64                                    64  name, then dead_letter
    40  payload_crc u32   of all that follows the head   flags: AUTO_DELETE
    44  body_bytes u32
    48  header_bytes u32
    52  header_count u32
    56  delivery_count u16
    58  hops u16
    60  address_bytes u16
    62  reserved u16
    with the flag RARE:
    64  origin_id u64     the message that it came from by MOVE, as long as that is unpaid, or by COPY from another store; 0: none
    72  origin_queue u32
    76  origin_store u32  0: this one; else a CRC of the other store's identity
    80  reply_to_bytes u16       65535: there is none; so for the next two
    82  message_id_bytes u16
    84  destination_bytes u16
    86  foreign u16       1: its origin, or what it is a COPY of, is of this store, and came from another one
    then address, reply_to, message_id, destination, headers (message/headers.pyx), body
    flags: REDELIVERED, DEAD_ENTRY, HISTORIC, RARE; four are free, for more such fields: a group key, an expiry

The crc of a record is salted with the store's own number, so a record of another store is not valid here. In a group, SETTLE
records apply after all others. An entry with an origin in its own store hides that origin: when the log is read, the origin of
a live entry that is not HISTORIC is settled. The flag EXACT of a STATE says that it is of the last group before the store was
closed: `handed` is 0, and each entry says for itself whether it was handed out. UPSTREAM_FAILED beside it says that another store
of the engine had failed: it may have messages again that came here.
"""

from libc.stdint cimport int64_t, uint8_t, uint16_t, uint32_t, uint64_t

cdef enum:
    MAGIC = 0x5A58
    # kinds
    GROUP = 1
    QUEUE = 2
    GONE = 3
    STATE = 4
    ENTER = 5
    MARK = 6
    SETTLE = 7
    KINDS = 8
    # flags of ENTER and MARK
    RECORD_REDELIVERED = 1
    RECORD_DEAD_ENTRY = 2
    RECORD_HISTORIC = 4
    RECORD_RARE = 8
    # flags of SETTLE
    RECORD_MARKED = 1
    # flags of STATE
    RECORD_EXACT = 1
    RECORD_UPSTREAM_FAILED = 2
    # flags of QUEUE
    RECORD_AUTO_DELETE = 1
    NO_TEXT = 65535         # the length of a missing text
    REASONS_STORED = 8      # counters of a STATE, by reason
    KEY_BYTES = 13          # of a key in a store that finds records by key

cdef packed struct head_t:
    uint32_t crc
    uint16_t magic
    uint8_t kind
    uint8_t flags
    uint32_t length
    uint32_t queue
    uint64_t position
    uint64_t id

cdef packed struct group_record_t:
    head_t head
    uint64_t count
    uint64_t bytes
    uint64_t synced

cdef packed struct settle_record_t:
    head_t head
    uint64_t count

cdef packed struct mark_record_t:
    head_t head
    uint32_t delivery_count
    uint32_t reserved

cdef packed struct state_record_t:
    head_t head
    uint64_t frontier
    uint64_t handed
    int64_t timestamp
    uint64_t settled
    uint64_t deleted
    uint64_t dropped[REASONS_STORED]
    uint64_t dead_lettered[REASONS_STORED]

cdef packed struct queue_record_t:
    head_t head
    uint64_t limit
    uint64_t history_limit
    uint32_t delivery_limit
    uint16_t name_bytes
    uint16_t dead_letter_bytes
    uint64_t incarnation

cdef packed struct enter_record_t:
    head_t head
    int64_t timestamp
    uint32_t payload_crc
    uint32_t body_bytes
    uint32_t header_bytes
    uint32_t header_count
    uint16_t delivery_count
    uint16_t hops
    uint16_t address_bytes
    uint16_t reserved

# Follows the head of an ENTER record with the flag RARE: the fields that few messages have.
cdef packed struct rare_t:
    uint64_t origin_id
    uint32_t origin_queue
    uint32_t origin_store
    uint16_t reply_to_bytes
    uint16_t message_id_bytes
    uint16_t destination_bytes
    uint16_t foreign
