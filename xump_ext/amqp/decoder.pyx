"""Reads frames from the receive buffer of a connection: frequent ones as rows, the rest as channel and payload.

    octet   0      1         3        7              7 + size
            type   channel   size     payload ...    0xCE

A message is a method (basic.publish), a header and bodies, a frame each. The decoder looks first whether all of a message lies in
the buffer; then its row points there, and nothing is copied. A message that comes in pieces is put together aside, frame by
frame, and its row points to that. Both ways give the same rows, however the bytes are cut.

`next` goes on until there is something to be done in between: a method that is rare, for the caller to decode; an error; or as
many rows as a batch may have. The rows before that come first, so the order in a channel is that of the wire.

Only channels that the caller has opened have rows. Frames for one that is being closed are dropped, but for the two methods that
close it. Everything that is wrong ends in an error, a code of the protocol and a text; after it nothing more is read.
"""

cimport cython
from libc.stdint cimport uint16_t, uint32_t, uint64_t
from libc.stdlib cimport free, malloc, realloc
from libc.string cimport memcpy, memset

from cpython.bytes cimport PyBytes_FromStringAndSize

from xump_ext.amqp.properties cimport Properties, scan_properties
from xump_ext.amqp.wire cimport (
    BASIC_ACK, BASIC_NACK, BASIC_PUBLISH, BASIC_REJECT, CHANNEL_CLOSE, CHANNEL_CLOSE_OK, CLASS_BASIC, FRAME_BODY,
    FRAME_EMPTY_BYTES, FRAME_END, FRAME_HEAD_BYTES, FRAME_HEADER, FRAME_HEARTBEAT, FRAME_METHOD, HEADER_BYTES_MIN, read_u16,
    read_u32, read_u64,
)

cdef enum:
    SLOT_NONE = 0
    SLOT_OPEN = 1
    SLOT_CLOSING = 2

    FRAME_ERROR = 501
    SYNTAX_ERROR = 502
    UNEXPECTED_FRAME = 505
    RESOURCE_ERROR = 506
    PRECONDITION_FAILED = 406

    BODY_BYTES_FIRST = 1 << 16          # a body grows as it comes: what its header promises is not believed

cdef enum:
    DONE = 0
    FOUND_METHOD = 1
    FOUND_ERROR = 2
    FOUND_CHANNEL_ERROR = 3
    FOUND_ROWS = 4
    ON = 5

NEED = DONE
"""`next`: everything was read."""
METHOD = FOUND_METHOD
"""`next`: a method that is rare: `channel` and `payload`."""
ERROR = FOUND_ERROR
"""`next`: the connection has to end: `code`, `text` and `method`."""
CHANNEL_ERROR = FOUND_CHANNEL_ERROR
"""`next`: the channel has to end: `channel`, `code`, `text` and `method`."""
ROWS = FOUND_ROWS
"""`next`: a batch of rows is full; call it again."""

KIND_PUBLISH = ROW_PUBLISH
KIND_ACK = ROW_ACK
KIND_NACK = ROW_NACK
KIND_REJECT = ROW_REJECT

cdef enum:
    FRAME_MAX_BEFORE_TUNE = 4096
    BODY_BYTES_MAX = 64 << 20
    BYTES_IN_FLIGHT_MAX = 256 << 20
    ROWS_MAX = 4096


cdef inline bint publish_holds(const unsigned char *payload, uint32_t size) noexcept nogil:
    """Whether this is basic.publish and its fields: a number, exchange, routing key and bits, and nothing behind them."""
    return size >= 9 and payload[6] + 9 <= size and payload[6] + payload[7 + payload[6]] + 9 == size


def erlang_binary(bytes octets not None):
    """Octets as RabbitMQ prints them in its texts: `<<"text">>` if all can be printed, else `<<1,2,3>>`."""
    if octets and all(0x20 <= octet < 0x7F or octet >= 0xA0 or octet in (8, 9, 10, 11, 12, 13, 27) for octet in octets):
        shown = octets.decode("latin-1").replace("\\", "\\\\").replace('"', '\\"')
        for octet, letter in zip("\b\t\n\v\f\r\x1b", "btnvfre"):
            shown = shown.replace(octet, "\\" + letter)
        return f'<<"{shown}">>'
    return f"<<{','.join(str(octet) for octet in octets)}>>"


@cython.final
cdef class Publish:
    """A row of basic.publish and its content, as Python sees it."""

    cdef readonly int channel
    cdef readonly int bits
    cdef readonly bytes exchange
    cdef readonly bytes key
    cdef readonly bytes properties
    cdef readonly bytes body
    cdef readonly bytes headers
    cdef readonly bytes expiration
    cdef readonly bytes user_id
    cdef readonly bytes reply_to
    cdef readonly int priority
    cdef readonly int delivery_mode
    cdef readonly bint has_copies


@cython.final
cdef class Settle:
    """A row of basic.ack, basic.nack or basic.reject, as Python sees it."""

    cdef readonly int channel
    cdef readonly int kind
    cdef readonly uint64_t tag
    cdef readonly bint multiple
    cdef readonly bint requeue


cdef inline object text_or_none(const unsigned char *at, Py_ssize_t size):
    return None if at == NULL else PyBytes_FromStringAndSize(<const char *> at, size)


cdef object publish_of(Row *row):
    cdef Publish publish = Publish.__new__(Publish)
    publish.channel = row.channel
    publish.bits = row.bits
    publish.exchange = PyBytes_FromStringAndSize(<const char *> row.exchange, row.exchange_bytes)
    publish.key = PyBytes_FromStringAndSize(<const char *> row.key, row.key_bytes)
    publish.properties = PyBytes_FromStringAndSize(<const char *> row.list, row.list_bytes)
    publish.body = PyBytes_FromStringAndSize(<const char *> row.body, row.body_bytes)
    publish.headers = text_or_none(row.properties.headers, row.properties.headers_bytes)
    publish.expiration = text_or_none(row.properties.expiration, row.properties.expiration_bytes)
    publish.user_id = text_or_none(row.properties.user_id, row.properties.user_id_bytes)
    publish.reply_to = text_or_none(row.properties.reply_to, row.properties.reply_to_bytes)
    publish.priority = row.properties.priority
    publish.delivery_mode = row.properties.delivery_mode
    publish.has_copies = row.properties.has_copies
    return publish


cdef object settle_of(Row *row):
    cdef Settle settle = Settle.__new__(Settle)
    settle.channel = row.channel
    settle.kind = row.kind
    settle.tag = row.tag
    settle.multiple = row.kind != ROW_REJECT and row.bits & 1
    settle.requeue = row.bits & (1 if row.kind == ROW_REJECT else 2) != 0
    return settle


@cython.final
cdef class Decoder:
    """The frames of one connection."""

    def __cinit__(self, *, uint64_t body_bytes_max=BODY_BYTES_MAX, uint64_t bytes_in_flight_max=BYTES_IN_FLIGHT_MAX,
                  uint64_t rows_max=ROWS_MAX):
        self._frame_max = FRAME_MAX_BEFORE_TUNE
        self._body_bytes_max = body_bytes_max
        self._bytes_in_flight_max = bytes_in_flight_max
        self._rows_max = rows_max

    def __dealloc__(self):
        cdef uint64_t channel
        cdef Content *content
        for channel in range(self._slots_count):
            self._drop(&self._slots[channel])
        while self._whole != NULL:
            content = self._whole
            self._whole = content.next
            free(content.pieces)
            free(content.body)
            free(content)
        free(self._slots)
        free(self._rows)
        free(self._rest)

    # ---- what the connection agrees on

    def tune(self, uint32_t frame_max):
        """Both sides agreed on this size of a frame; at least 4096."""
        self._frame_max = frame_max

    def open(self, uint16_t channel):
        """From now on there are rows of this channel."""
        cdef uint64_t count
        cdef void *more
        if channel >= self._slots_count:
            count = max(<uint64_t> channel + 1, min(2 * self._slots_count, 65536))
            more = realloc(self._slots, count * sizeof(Slot))
            if more == NULL:
                raise MemoryError()
            self._slots = <Slot *> more
            memset(&self._slots[self._slots_count], 0, (count - self._slots_count) * sizeof(Slot))
            self._slots_count = count
        self._slots[channel].state = SLOT_OPEN
        self._slots[channel].expects = FRAME_METHOD

    def closing(self, uint16_t channel):
        """We have closed it: what comes is dropped, until the other side has answered."""
        self._set_state(channel, SLOT_CLOSING)

    def closed(self, uint16_t channel):
        """Both sides have closed it."""
        self._set_state(channel, SLOT_NONE)

    def _set_state(self, channel, state):
        cdef Slot *slot = self._slot(channel)
        if slot != NULL:
            self._drop(slot)
            slot.state = state
            slot.expects = FRAME_METHOD

    # ---- reading

    def feed(self, object data, uint64_t size):
        """Give the first `size` bytes of `data`, which must stay as they are until `next` has returned NEED and `clear` ran."""
        cdef const unsigned char[::1] view = data
        if size > <uint64_t> view.shape[0]:
            raise ValueError(f"size must be at most {view.shape[0]}, the bytes of data, got {size}")
        if self._at != self._end:
            raise ValueError("call next() until it returns NEED before you feed more")
        self._input = view
        self._at = &view[0] if size else NULL
        self._end = self._at + size

    def next(self):
        """Read on. Returns METHOD, ERROR, CHANNEL_ERROR, ROWS, or NEED when all is read. Rows that were read before: `rows`."""
        cdef int found
        while not self._failed:
            if self._rows_count >= self._rows_max:
                return FOUND_ROWS
            found = self._step()
            if found != ON:
                return found
        self._at = self._end
        return DONE

    def rest(self):
        """Take out what was fed and is not read yet, as bytes, to feed it again later; for when `next` has returned METHOD."""
        rest = PyBytes_FromStringAndSize(<const char *> self._at, self._end - self._at)
        self._at = self._end
        return rest

    def rows(self):
        """The rows since the last `clear`, in their order, as `Publish` and `Settle`."""
        cdef uint64_t number
        return [publish_of(&self._rows[number]) if self._rows[number].kind == ROW_PUBLISH else settle_of(&self._rows[number])
                for number in range(self._rows_count)]

    def row(self, uint64_t number):
        """One row."""
        cdef Row *row
        if number >= self._rows_count:
            raise IndexError(number)
        row = &self._rows[number]
        return publish_of(row) if row.kind == ROW_PUBLISH else settle_of(row)

    def runs(self):
        """The rows as runs of one channel that are all publishes, or all something else: (channel, whether they are publishes,
        where the run begins, where it ends)."""
        cdef uint64_t first = 0, number
        cdef list found = []
        for number in range(1, self._rows_count + 1):
            if number == self._rows_count or self._rows[number].channel != self._rows[first].channel or (
                    (self._rows[number].kind == ROW_PUBLISH) != (self._rows[first].kind == ROW_PUBLISH)):
                found.append((self._rows[first].channel, self._rows[first].kind == ROW_PUBLISH, first, number))
                first = number
        return found

    def clear(self):
        """Forget the rows; their memory is used again."""
        cdef Content *content
        self._rows_count = 0
        while self._whole != NULL:
            content = self._whole
            self._whole = content.next
            self.bytes_in_flight -= content.held
            free(content.pieces)
            free(content.body)
            free(content)

    def trim(self):
        """Give back the memory that a burst has left: for a connection on which nothing comes. Call it between reads."""
        if self._rows_count == 0:
            free(self._rows)
            self._rows = NULL
            self._rows_room = 0
        if self._rest_bytes == 0:
            free(self._rest)
            self._rest = NULL
            self._rest_room = 0

    @property
    def room(self):
        """Bytes that are kept for rows and for a frame that is cut, in use or not."""
        return self._rows_room * sizeof(Row) + self._rest_room

    def __len__(self):
        return self._rows_count

    cdef Slot *_slot(self, uint16_t channel) noexcept nogil:
        return &self._slots[channel] if channel < self._slots_count else NULL

    cdef int _step(self) except -1:
        """One frame, or one message that lies in the buffer as a whole. Returns what `next` returns, or ON."""
        cdef uint64_t here = self._end - self._at
        cdef const unsigned char *frame
        cdef uint32_t size
        if self._rest_bytes:
            if self._rest_bytes < FRAME_HEAD_BYTES:
                here = min(here, FRAME_HEAD_BYTES - self._rest_bytes)
                self._keep(self._at, here)
                self._at += here
                if self._rest_bytes < FRAME_HEAD_BYTES:
                    return DONE
                here = self._end - self._at
            size = read_u32(self._rest + 3)
            if size > self._frame_max:
                return self._too_large(self._rest)
            here = min(here, <uint64_t> size + FRAME_EMPTY_BYTES - self._rest_bytes)
            self._keep(self._at, here)
            self._at += here
            if self._rest_bytes < <uint64_t> size + FRAME_EMPTY_BYTES:
                return DONE
            self._rest_bytes = 0
            return self._frame(self._rest, size)
        if here < FRAME_HEAD_BYTES:
            self._keep(self._at, here)
            self._at = self._end
            return DONE
        if self._whole_publish():
            return ON
        frame = self._at
        size = read_u32(frame + 3)
        if size > self._frame_max:
            return self._too_large(frame)
        if here < <uint64_t> size + FRAME_EMPTY_BYTES:
            self._keep(frame, here)
            self._at = self._end
            return DONE
        self._at += size + FRAME_EMPTY_BYTES
        return self._frame(frame, size)

    cdef int _too_large(self, const unsigned char *frame) except -1:
        # RabbitMQ lets payloads through that are 8 bytes too long: clients forget the 8 bytes around them.
        cdef uint32_t size = read_u32(frame + 3)
        return self._fail_at(FRAME_ERROR, frame[0], frame, 0, f"{{frame_too_large,{size},{self._frame_max - FRAME_EMPTY_BYTES}}}")

    cdef int _frame(self, const unsigned char *frame, uint32_t size) except -1:
        """A frame that is there as a whole."""
        cdef unsigned char kind = frame[0]
        cdef uint16_t channel = read_u16(frame + 1)
        cdef const unsigned char *payload = frame + FRAME_HEAD_BYTES
        cdef Slot *slot = self._slot(channel)
        cdef uint32_t method
        if payload[size] != FRAME_END:
            return self._fail_at(FRAME_ERROR, kind, frame, size, f"{{invalid_frame_end_marker,{payload[size]}}}")
        self.frames += 1
        if kind == FRAME_METHOD and size < 4 or kind == FRAME_HEADER and size < HEADER_BYTES_MIN - 2 or (
                kind == FRAME_HEARTBEAT and size) or kind == 0 or kind > FRAME_BODY and kind != FRAME_HEARTBEAT:
            return self._fail_at(FRAME_ERROR, kind, frame, size, "unknown_frame")
        if kind == FRAME_HEARTBEAT:
            return ON if channel == 0 else self._fail_at(UNEXPECTED_FRAME, kind, frame, size, None)
        if channel == 0:
            return self._rare(channel, payload, size) if kind == FRAME_METHOD else (
                self._fail_at(UNEXPECTED_FRAME, kind, frame, size, None))
        if slot == NULL or slot.state == SLOT_NONE:
            if kind == FRAME_METHOD:
                return self._rare(channel, payload, size)
            return self._fail(UNEXPECTED_FRAME, "expected method frame, got non method frame instead", 0)
        if slot.state == SLOT_CLOSING:
            if kind == FRAME_METHOD:
                method = read_u32(payload)
                if method == CHANNEL_CLOSE or method == CHANNEL_CLOSE_OK:
                    return self._rare(channel, payload, size)
            return ON
        if slot.expects == FRAME_METHOD:
            return self._method_frame(slot, channel, kind, payload, size)
        if slot.expects == FRAME_HEADER:
            return self._header_frame(slot, channel, kind, payload, size)
        return self._body_frame(slot, kind, payload, size)

    cdef int _rare(self, uint16_t channel, const unsigned char *payload, uint32_t size) except -1:
        self.channel = channel
        self.payload = PyBytes_FromStringAndSize(<const char *> payload, size)
        return FOUND_METHOD

    cdef int _method_frame(
        self, Slot *slot, uint16_t channel, unsigned char kind, const unsigned char *payload, uint32_t size
    ) except -1:
        cdef uint32_t method
        cdef Content *content
        cdef Row *row
        cdef uint32_t exchange_bytes, key_bytes
        if kind != FRAME_METHOD:
            return self._fail(UNEXPECTED_FRAME, "expected method frame, got non method frame instead", 0)
        method = read_u32(payload)
        if method == BASIC_ACK or method == BASIC_NACK or method == BASIC_REJECT:
            if size != 13:
                return self._cannot_decode(method, payload, size)
            row = self._add_row()
            row.kind = ROW_ACK if method == BASIC_ACK else ROW_NACK if method == BASIC_NACK else ROW_REJECT
            row.channel = channel
            row.tag = read_u64(payload + 4)
            row.bits = payload[12]
            return ON
        if method != BASIC_PUBLISH:
            return self._rare(channel, payload, size)
        if not publish_holds(payload, size):
            return self._cannot_decode(method, payload, size)
        exchange_bytes = payload[6]
        key_bytes = payload[7 + exchange_bytes]
        content = <Content *> malloc(sizeof(Content))
        if content == NULL:
            raise MemoryError()
        memset(content, 0, sizeof(Content))
        content.pieces = <unsigned char *> malloc(exchange_bytes + key_bytes + 1)
        if content.pieces == NULL:
            free(content)
            raise MemoryError()
        memcpy(content.pieces, payload + 7, exchange_bytes)
        memcpy(content.pieces + exchange_bytes, payload + 8 + exchange_bytes, key_bytes)
        content.row.kind = ROW_PUBLISH
        content.row.channel = channel
        content.row.bits = payload[size - 1]
        content.row.exchange_bytes = exchange_bytes
        content.row.key_bytes = key_bytes
        slot.content = content
        slot.expects = FRAME_HEADER
        return ON

    cdef int _header_frame(
        self, Slot *slot, uint16_t channel, unsigned char kind, const unsigned char *payload, uint32_t size
    ) except -1:
        cdef Content *content = slot.content
        cdef uint32_t list_bytes = size - (HEADER_BYTES_MIN - 2), before
        cdef unsigned char *pieces
        if kind != FRAME_HEADER or read_u16(payload + 2) != 0:
            return self._fail(
                UNEXPECTED_FRAME, "expected content header for class 60, got non content header frame instead", BASIC_PUBLISH)
        if read_u16(payload) != CLASS_BASIC:
            return self._fail(
                UNEXPECTED_FRAME, f"expected content header for class 60, got one for class {read_u16(payload)} instead",
                BASIC_PUBLISH)
        content.row.body_bytes = read_u64(payload + 4)
        if content.row.body_bytes > self._body_bytes_max:
            self.channel = channel
            self.code, self.method = PRECONDITION_FAILED, BASIC_PUBLISH
            self.text = (f"message size {content.row.body_bytes} is larger than configured max size {self._body_bytes_max}")
            self._drop(slot)
            slot.expects = FRAME_METHOD
            return FOUND_CHANNEL_ERROR
        if not self._hold(content, list_bytes):
            return self._too_many_bytes()
        before = content.row.exchange_bytes + content.row.key_bytes
        pieces = <unsigned char *> realloc(content.pieces, before + list_bytes + 1)
        if pieces == NULL:
            raise MemoryError()
        content.pieces = pieces
        memcpy(pieces + before, payload + (HEADER_BYTES_MIN - 2), list_bytes)
        if not scan_properties(pieces + before, pieces + before + list_bytes, &content.row.properties):
            return self._fail(SYNTAX_ERROR, "the properties of the message cannot be decoded", BASIC_PUBLISH)
        content.row.exchange = pieces
        content.row.key = pieces + content.row.exchange_bytes
        content.row.list = pieces + before
        content.row.list_bytes = list_bytes
        slot.expects = FRAME_BODY
        content.promised = content.row.body_bytes
        self.bytes_promised += content.promised
        return self._finish(slot) if content.row.body_bytes == 0 else ON

    cdef int _body_frame(self, Slot *slot, unsigned char kind, const unsigned char *payload, uint32_t size) except -1:
        cdef Content *content = slot.content
        cdef uint64_t room
        cdef void *more
        if kind != FRAME_BODY:
            return self._fail(UNEXPECTED_FRAME, "expected content body, got non content body frame instead", BASIC_PUBLISH)
        if size > content.row.body_bytes - content.body_here:
            # RabbitMQ waits for more, and finds that it is none: it says so of the frame that comes next.
            return self._fail(UNEXPECTED_FRAME, "expected content body, got non content body frame instead", BASIC_PUBLISH)
        if content.body_here + size > content.body_room:
            room = min(content.row.body_bytes, max(2 * content.body_room, content.body_here + size, BODY_BYTES_FIRST))
            if not self._hold(content, room - content.body_room):
                return self._too_many_bytes()
            more = realloc(content.body, room)
            if more == NULL:
                raise MemoryError()
            content.body = <unsigned char *> more
            content.body_room = room
        if size:
            memcpy(content.body + content.body_here, payload, size)
        content.body_here += size
        return self._finish(slot) if content.body_here == content.row.body_bytes else ON

    cdef int _finish(self, Slot *slot) except -1:
        """The message is whole."""
        cdef Content *content = slot.content
        cdef Row *row = self._add_row()
        content.row.body = content.body
        row[0] = content.row
        self.bytes_promised -= content.promised
        content.next = self._whole
        self._whole = content
        slot.content = NULL
        slot.expects = FRAME_METHOD
        return ON

    cdef bint _whole_publish(self) except -1:
        """Make a row of a message that lies in the buffer as a whole, in one frame of body at most. Anything else, and whatever
        is wrong, is left to the way frame by frame."""
        cdef const unsigned char *at = self._at
        cdef const unsigned char *payload = at + FRAME_HEAD_BYTES
        cdef const unsigned char *header
        cdef const unsigned char *body
        cdef const unsigned char *key
        cdef uint64_t body_bytes, here = self._end - at
        cdef uint32_t size, header_bytes
        cdef Properties properties
        cdef Row *row
        cdef Slot *slot
        if at[0] != FRAME_METHOD or here < 3 * FRAME_EMPTY_BYTES + HEADER_BYTES_MIN + 9 or read_u32(payload) != BASIC_PUBLISH:
            return False
        slot = self._slot(read_u16(at + 1))
        size = read_u32(at + 3)
        if slot == NULL or slot.state != SLOT_OPEN or slot.expects != FRAME_METHOD or size > 600 or (
                here < <uint64_t> size + 2 * FRAME_EMPTY_BYTES + HEADER_BYTES_MIN):
            return False
        if payload[size] != FRAME_END or not publish_holds(payload, size):
            return False
        key = payload + 7 + payload[6]
        header = payload + size + 1
        header_bytes = read_u32(header + 3)
        if header[0] != FRAME_HEADER or read_u16(header + 1) != read_u16(at + 1) or header_bytes > self._frame_max or (
                header_bytes < HEADER_BYTES_MIN
                or <uint64_t> (self._end - header) < <uint64_t> header_bytes + FRAME_EMPTY_BYTES):
            return False
        header += FRAME_HEAD_BYTES
        body_bytes = read_u64(header + 4)
        if read_u32(header) != CLASS_BASIC << 16 or header[header_bytes] != FRAME_END or body_bytes > self._body_bytes_max:
            return False
        body = header + header_bytes + 1
        if body_bytes:
            if <uint64_t> (self._end - body) < body_bytes + FRAME_EMPTY_BYTES or body[0] != FRAME_BODY or (
                    read_u16(body + 1) != read_u16(at + 1) or read_u32(body + 3) != body_bytes or body_bytes > self._frame_max
                    or body[FRAME_HEAD_BYTES + body_bytes] != FRAME_END):
                return False
        if not scan_properties(header + HEADER_BYTES_MIN - 2, header + header_bytes, &properties):
            return False
        row = self._add_row()
        row.kind = ROW_PUBLISH
        row.bits = payload[size - 1]
        row.channel = read_u16(at + 1)
        row.exchange = payload + 7
        row.exchange_bytes = payload[6]
        row.key = key + 1
        row.key_bytes = key[0]
        row.list = header + HEADER_BYTES_MIN - 2
        row.list_bytes = header_bytes - (HEADER_BYTES_MIN - 2)
        row.body = body + FRAME_HEAD_BYTES
        row.body_bytes = body_bytes
        row.properties = properties
        self._at = body + body_bytes + FRAME_EMPTY_BYTES if body_bytes else body
        self.frames += 3 if body_bytes else 2
        return True

    cdef Row *_add_row(self) except NULL:
        cdef uint64_t room
        cdef void *more
        if self._rows_count == self._rows_room:
            room = max(2 * self._rows_room, 16)
            more = realloc(self._rows, room * sizeof(Row))
            if more == NULL:
                raise MemoryError()
            self._rows = <Row *> more
            self._rows_room = room
        self._rows_count += 1
        return &self._rows[self._rows_count - 1]

    cdef void _drop(self, Slot *slot) noexcept:
        """Forget the message that a channel is sending."""
        cdef Content *content = slot.content
        if content != NULL:
            self.bytes_in_flight -= content.held
            self.bytes_promised -= content.promised
            free(content.pieces)
            free(content.body)
            free(content)
            slot.content = NULL

    cdef bint _hold(self, Content *content, uint64_t more) noexcept:
        """Count bytes of a message in the making. Returns whether the connection may have them. The property list counts, too:
        else each channel could hold a frame of headers beside the bound."""
        if self.bytes_in_flight + more > self._bytes_in_flight_max:
            return False
        self.bytes_in_flight += more
        content.held += more
        return True

    # ---- what is wrong

    cdef int _too_many_bytes(self) except -1:
        return self._fail(RESOURCE_ERROR, f"messages in the making have more than {self._bytes_in_flight_max} bytes "
                                          "on this connection", BASIC_PUBLISH)

    cdef int _fail(self, int code, str text, uint32_t method) except -1:
        self.code, self.text, self.method = code, text, method
        self.channel = 0
        self._failed = True
        return FOUND_ERROR

    cdef int _cannot_decode(self, uint32_t method, const unsigned char *payload, uint32_t size) except -1:
        cdef bytes fields = PyBytes_FromStringAndSize(<const char *> payload + 4, size - 4)
        return self._fail(FRAME_ERROR, f"cannot decode <<{','.join(map(str, fields))}>>", method)

    cdef int _fail_at(self, int code, unsigned char kind, const unsigned char *frame, uint32_t size, str why) except -1:
        """An error that shows the first octets of the payload, as RabbitMQ's do."""
        cdef bytes octets = PyBytes_FromStringAndSize(<const char *> frame + FRAME_HEAD_BYTES, min(size, 16))
        shown = f"type {kind}, {'all' if size <= 16 else 'first 16'} octets = {erlang_binary(octets)}"
        return self._fail(code, shown if why is None else f"{shown}: {why}", 0)

    cdef int _keep(self, const unsigned char *data, uint64_t size) except -1:
        """Put bytes behind those of the frame that is cut."""
        cdef uint64_t room
        cdef void *more
        if self._rest_bytes + size > self._rest_room:
            room = max(self._rest_bytes + size, 2 * self._rest_room, 512)
            more = realloc(self._rest, room)
            if more == NULL:
                raise MemoryError()
            self._rest = <unsigned char *> more
            self._rest_room = room
        if size:
            memcpy(self._rest + self._rest_bytes, data, size)
        self._rest_bytes += size
        return 0
