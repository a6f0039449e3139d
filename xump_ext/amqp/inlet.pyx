"""Publishes what a decoder has read, straight from the receive buffer into an engine: one call for a run of messages.

Most messages are *plain*: they go to an exchange that was looked up before, and the broker has to look at nothing but their
routing key, expiration and priority. Those go through here without a Python object each. `plain_until` and `rare_until` tell
where such messages end and begin; the broker looks at rare ones itself.
"""

from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_FromStringAndSize, PyBytes_GET_SIZE
from cpython.dict cimport PyDict_Clear, PyDict_GetItem, PyDict_Size
from cpython.object cimport PyObject
from cpython.ref cimport Py_XDECREF, Py_XINCREF
from cpython.unicode cimport PyUnicode_DecodeUTF8
from libc.stdint cimport int64_t, uint8_t, uint32_t, uint64_t
from libc.stdlib cimport free, realloc
from libc.string cimport memcmp, memcpy, memset

from xump_ext.amqp.decoder cimport Decoder, Row
from xump_ext.amqp.envelope cimport AMQP_ANNEX
from xump_ext.engine.handles cimport QueueHandle
from xump_ext.engine.publish cimport EnginePublish
from xump_ext.engine.rows cimport ROWS_HELD, ROWS_LOGGED, publish_rows, row_begin, row_t
from xump_ext.state.constants cimport OUTCOME_STORE_FAILED, OUTCOME_STORE_FULL

cdef enum:
    MANDATORY = 1
    IMMEDIATE = 2
    KEYS_MAX = 1 << 16              # so many routing keys are remembered
    EXPIRATION_DIGITS_MAX = 9       # longer ones are looked at by the broker
    NS_PER_MS = 1000000
    DIGIT_0 = 48                    # in ASCII

cdef bytes REPLY_TO = b"amq.rabbitmq.reply-to"


cdef class Inlet:
    """The way of plain messages into one engine.

    `special`: names of queues for which the broker routes itself.
    """

    cdef EnginePublish engine
    cdef readonly set special
    cdef dict keys                  # bytes -> str: one object each, by which the engine knows routes again
    cdef row_t *rows
    cdef Row **sources              # of each row, what it was in the decoder
    cdef uint64_t room
    cdef char *annexes
    cdef uint64_t annexes_room
    cdef bytes last_octets          # of the key, and of the exchange, that was looked at last: often it comes again
    cdef str last_key
    cdef bytes last_exchange

    def __cinit__(self, EnginePublish engine not None):
        self.engine = engine
        self.special = set()
        self.keys = {}
        self.last_octets = self.last_exchange = b""
        self.last_key = ""

    def __dealloc__(self):
        free(self.rows)
        free(self.sources)
        free(self.annexes)

    def plain_until(self, Decoder decoder not None, uint64_t at, uint64_t end, dict exchanges not None):
        """Where the plain messages end that begin at row `at`."""
        while at < end and self.is_plain(&decoder._rows[at], exchanges):
            at += 1
        return at

    def rare_until(self, Decoder decoder not None, uint64_t at, uint64_t end, dict exchanges not None):
        """Where the rare messages end that begin at row `at`."""
        while at < end and not self.is_plain(&decoder._rows[at], exchanges):
            at += 1
        return at

    cdef bint is_plain(self, const Row *row, dict exchanges) except -1:
        cdef PyObject *exchange
        cdef uint8_t i
        if row.bits & IMMEDIATE or row.properties.user_id != NULL or row.properties.has_copies:
            return False
        if row.properties.reply_to_bytes == 21 and memcmp(row.properties.reply_to, PyBytes_AS_STRING(REPLY_TO), 21) == 0:
            return False
        if row.properties.expiration != NULL:
            if not 0 < row.properties.expiration_bytes <= EXPIRATION_DIGITS_MAX or row.properties.expiration[0] == DIGIT_0:
                return False
            for i in range(row.properties.expiration_bytes):
                if not DIGIT_0 <= row.properties.expiration[i] <= DIGIT_0 + 9:
                    return False
        exchange = PyDict_GetItem(exchanges, self.exchange_of(row))
        if exchange == NULL:
            return False
        key = self.key_of(row)
        if key is None or not self.special:
            return key is not None
        return row.exchange_bytes == 0 and key not in self.special

    cdef bytes exchange_of(self, const Row *row):
        """The name of the exchange."""
        if row.exchange_bytes != PyBytes_GET_SIZE(self.last_exchange) or memcmp(
                row.exchange, PyBytes_AS_STRING(self.last_exchange), row.exchange_bytes):
            self.last_exchange = PyBytes_FromStringAndSize(<const char *> row.exchange, row.exchange_bytes)
        return self.last_exchange

    cdef str key_of(self, const Row *row):
        """The routing key; None: it is not UTF-8."""
        cdef PyObject *found
        if row.key_bytes == PyBytes_GET_SIZE(self.last_octets) and memcmp(
                row.key, PyBytes_AS_STRING(self.last_octets), row.key_bytes) == 0:
            return self.last_key
        octets = PyBytes_FromStringAndSize(<const char *> row.key, row.key_bytes)
        found = PyDict_GetItem(self.keys, octets)
        if found != NULL:
            key = <str> found
        else:
            try:
                key = PyUnicode_DecodeUTF8(<char *> row.key, row.key_bytes, NULL)
            except UnicodeDecodeError:
                return None
            if PyDict_Size(self.keys) >= KEYS_MAX:
                PyDict_Clear(self.keys)
            self.keys[octets] = key
        self.last_octets, self.last_key = octets, key
        return key

    def publish(self, Decoder decoder not None, uint64_t at, uint64_t end, dict exchanges not None):
        """Publish plain messages: rows `at` to `end`.

        Returns:
            None if another thread is in a `building()` block: nothing was done. Else (places of those that were refused, places
            of those that went nowhere though they are mandatory, whether a store had no room, whether something is to be
            written to disk); places count from `at`.
        """
        cdef uint64_t count = end - at, number
        cdef list refused = [], returned = []
        cdef bint full = False
        cdef uint8_t flags
        cdef int done
        self.reserve(decoder, at, end)
        try:
            self.fill(decoder, at, count, exchanges)
            done = publish_rows(self.engine, self.rows, count)
        finally:
            for number in range(count):
                Py_XDECREF(self.rows[number].queue)
                Py_XDECREF(self.rows[number].address)
        if done == ROWS_HELD:
            return None
        for number in range(count):
            flags = self.rows[number].tally.flags
            if self.rows[number].tally.refused or flags & (OUTCOME_STORE_FULL | OUTCOME_STORE_FAILED):
                refused.append(number)
                full |= flags & OUTCOME_STORE_FULL != 0
            elif self.rows[number].tally.copies == 0 and self.sources[number].bits & MANDATORY:
                returned.append(number)     # no flag says so: some ways may lead nowhere, or in a circle, and others to a queue
        return refused, returned, full, done & ROWS_LOGGED != 0

    cdef int fill(self, Decoder decoder, uint64_t at, uint64_t count, dict exchanges) except -1:
        cdef uint64_t number
        cdef char *annex = self.annexes
        cdef Row *source
        cdef row_t *row
        cdef str key
        cdef object queue
        memset(self.rows, 0, count * sizeof(row_t))
        for number in range(count):
            source = &decoder._rows[at + number]
            row = &self.rows[number]
            self.sources[number] = source
            key = self.key_of(source)
            if source.exchange_bytes == 0:
                queue = self.engine._queues.get(key)
                if queue is None or is_no_clients(<QueueHandle> queue):
                    queue = NOWHERE
            else:
                queue = exchanges[self.exchange_of(source)]
            row_begin(row, <PyObject *> queue, <PyObject *> key, <const char *> source.body, <uint32_t> source.body_bytes)
            Py_XINCREF(row.queue)       # another thread may delete the queue while the engine waits for room
            Py_XINCREF(row.address)
            row.annex = annex
            row.annex_bytes = 1 + source.exchange_bytes + source.list_bytes
            row.annex_kind = AMQP_ANNEX
            annex[0] = <char> source.exchange_bytes
            memcpy(annex + 1, source.exchange, source.exchange_bytes)
            memcpy(annex + 1 + source.exchange_bytes, source.list, source.list_bytes)
            annex += row.annex_bytes
            row.priority = <uint8_t> max(source.properties.priority, 0)
            if source.properties.expiration != NULL:
                row.ttl = milliseconds(source) * NS_PER_MS
        return 0

    cdef int reserve(self, Decoder decoder, uint64_t at, uint64_t end) except -1:
        """Room for rows and annexes, which is used again."""
        cdef uint64_t bytes = 0, number
        cdef void *more
        for number in range(at, end):
            bytes += 1 + decoder._rows[number].exchange_bytes + decoder._rows[number].list_bytes
        if end - at > self.room:
            more = realloc(self.rows, (end - at) * sizeof(row_t))
            if more == NULL:
                raise MemoryError()
            self.rows = <row_t *> more
            more = realloc(self.sources, (end - at) * sizeof(Row *))
            if more == NULL:
                raise MemoryError()
            self.sources = <Row **> more
            self.room = end - at
        if bytes > self.annexes_room:
            more = realloc(self.annexes, bytes)
            if more == NULL:
                raise MemoryError()
            self.annexes = <char *> more
            self.annexes_room = bytes
        return 0


cdef inline bint is_no_clients(QueueHandle handle) noexcept:
    """Whether clients find no queue there: it has gone, or is one that the program keeps to itself."""
    return handle.queue == NULL or handle.queue.transit or handle.queue.staged


cdef int64_t milliseconds(const Row *row) noexcept:
    cdef int64_t found = 0
    cdef uint8_t i
    for i in range(row.properties.expiration_bytes):
        found = found * 10 + row.properties.expiration[i] - DIGIT_0
    return found


cdef QueueHandle NOWHERE = QueueHandle.__new__(QueueHandle)         # as a queue that was deleted
