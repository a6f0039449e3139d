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
    32  count u64                                        72  dropped u64[16]   by reason
    flags: MARKED, each of them has a MARK              200  dead_lettered u64[16]
                                                        328  closing u32       0, or a number of this orderly end
    MARK     id: of the message; how it is from here on 332  reserved u32
    32  delivery_count u32                               flags: EXACT, UPSTREAM_FAILED
    36  closing u32       that of the STATE, if `due`
    40  due i64           delayed by a retry until then  QUEUE    id: 0
    flags: as ENTER                                      32  limit u64         2**64 - 1: none
                                                         40  history_limit u64
    SEEN     a message_id came, of the message `id`      48  limit_bytes u64
    32  hash u64[2]       of it, by the queue's key      56  incarnation u64
    48  time i64          when it came                   64  ttl i64           ns
                                                         72  dedup i64         ns
    FORGET   SEENs up to `id` are gone                   80  dedup_limit u64
                                                         88  dedup_key u64[2]  of the hashes of message ids
    GONE     the queue was deleted with all it held     104  delivery_limit u32
                                                        108  retry_count u32
                                                        112  meta_bytes u32    0
                                                        116  name_bytes u16
    ENTER    id: of the message                         118  dead_letter_bytes u16   65535: none
    32  timestamp i64                                   120  group_bytes u16         65535: none
    40  payload_crc u32   of all that follows the head  122  priority u8       the highest; 0: it does not go by it
    44  body_bytes u32                                  123  options u8        DROP_OLDEST, KEEP_UNMATCHED, STAGED,
                                                                               DROP_TO_FIT (with DROP_OLDEST)
                                                        124  rewriter_bytes u16      0: none
                                                        126  reserved u16
                                                        128  retry_delays i64[retry_count], name, dead_letter, group,
                                                             rewriter: its name, a zero byte, its argument
                                                         flags: AUTO_DELETE
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
    86  foreign u16       its origin, or what it is a COPY of, is of this store, and
                            1: came from another one, or may come again after a crash, since copies of it went to another one
                            3: and these copies may be missing there: its origin is hidden only if that is routed
                            4 more, or instead of 2: … only if a MARK of this entry says COPIED
    with the flag TIMED, behind that:
     0  expires i64       of the message itself; the highest number: never
     8  due i64           the end of the delay that it entered with; the highest number: it had none
    16  annex_bytes u32
    20  annex_kind u16    0: there is none
    22  correlation_id_bytes u16     65535: there is none
    24  priority u8
    25  reserved u8[7]
    then address, reply_to, message_id, destination, correlation_id, annex, headers (message/headers.pyx), body
    flags: REDELIVERED, DEAD_ENTRY, HISTORIC, RARE, TIMED, COPIED, ROUTED, UNROUTED

    META     the whole map of a queue; queue 0: of the store. `id`: its number: of several, the one with the highest counts
    32  count u32         names in it
    36  bytes u32         of what follows, without the padding
    40  for each name: name_bytes u32, value_bytes u32, name, value

    ADOPT    all staged queues whose messages have still to enter this queue, in order. `id`: its number: of several, the one with
             the highest counts
    32  first_id u64      the queue's next id when the first message of the oldest adoption entered; 0: none has
    40  count u32         staged queues
    44  reserved u32
    48  for each of them: its number u32, begins u32 (1: it is the first one of an adoption)

**What is routed.** Below the frontier of the STATE messages are routed, and their copies made. Some go out of turn: they are
delayed, or no selector matches them, or your program took one by hand. Such a message says so for itself: it has a `due`, or the
flag UNROUTED, until a MARK says ROUTED. One that has a `due` and no MARK is still delayed. Copies of a message that was routed
before, by a replay or by a queue in RAM where it went, are late: where an origin has to be hidden in spite of them, a MARK of the
entry that hides it says COPIED when they are durable in the other store. So it does where the origin ended unrouted.

**One MARK stands for all.** A store that finds records by key keeps the last MARK of a message only, so each MARK says all that
there is to say. In a log they may come in another order than they were written: a MARK takes nothing back.

The crc of a record is salted with the store's own number, so a record of another store is not valid here. In a group, SETTLE
records apply after all others. An entry with an origin in its own store hides that origin: when the log is read, the origin of
a live entry that is not HISTORIC is settled (`foreign` may say otherwise). The flag EXACT of a STATE says that it is of the last
group before the store was closed: `handed` is 0, and each entry says for itself whether it was handed out. UPSTREAM_FAILED beside
it says that another store of the engine had failed: it may have messages again that came here.
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
    SEEN = 8
    FORGET = 9
    META = 10
    ADOPT = 11
    KINDS = 12
    # flags of ENTER and MARK
    RECORD_REDELIVERED = 1
    RECORD_DEAD_ENTRY = 2
    RECORD_HISTORIC = 4
    RECORD_RARE = 8
    RECORD_TIMED = 16
    RECORD_COPIED = 32
    RECORD_ROUTED = 64
    RECORD_UNROUTED = 128
    # flags of SETTLE
    RECORD_MARKED = 1
    # flags of STATE
    RECORD_EXACT = 1
    RECORD_UPSTREAM_FAILED = 2
    # flags of QUEUE
    RECORD_AUTO_DELETE = 1
    # options of QUEUE
    OPTION_DROP_OLDEST = 1
    OPTION_KEEP_UNMATCHED = 2
    OPTION_STAGED = 4
    OPTION_DROP_TO_FIT = 8
    NO_TEXT = 65535         # the length of a missing text
    REASONS_STORED = 16     # counters of a STATE, by reason
    KEY_BYTES = 13          # of a key in a store that finds records by key
    # of `foreign` of an ENTER
    DOUBTFUL = 1
    NOT_HIDING = 2
    COPIES_AWAITED = 4

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
    uint32_t closing
    int64_t due

cdef packed struct seen_record_t:
    head_t head
    uint64_t hash_low
    uint64_t hash_high
    int64_t time

cdef packed struct meta_record_t:
    head_t head
    uint32_t count
    uint32_t bytes

cdef packed struct adopt_record_t:
    head_t head
    uint64_t first_id
    uint32_t count
    uint32_t reserved

cdef packed struct adopted_t:
    uint32_t queue
    uint32_t begins

cdef packed struct state_record_t:
    head_t head
    uint64_t frontier
    uint64_t handed
    int64_t timestamp
    uint64_t settled
    uint64_t deleted
    uint64_t dropped[REASONS_STORED]
    uint64_t dead_lettered[REASONS_STORED]
    uint32_t closing
    uint32_t reserved

cdef packed struct queue_record_t:
    head_t head
    uint64_t limit
    uint64_t history_limit
    uint64_t limit_bytes
    uint64_t incarnation
    int64_t ttl
    int64_t dedup
    uint64_t dedup_limit
    uint64_t dedup_key
    uint64_t dedup_more_key
    uint32_t delivery_limit
    uint32_t retry_count
    uint32_t meta_bytes
    uint16_t name_bytes
    uint16_t dead_letter_bytes
    uint16_t group_bytes
    uint8_t priority
    uint8_t options
    uint16_t rewriter_bytes
    uint16_t reserved

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

# Follows that of a record with the flag TIMED.
cdef packed struct timed_t:
    int64_t expires
    int64_t due
    uint32_t annex_bytes
    uint16_t annex_kind
    uint16_t correlation_id_bytes
    uint8_t priority
    uint8_t reserved[7]
