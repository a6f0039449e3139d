"""The rewriter of dead letters of AMQP queues: it writes `x-death` as RabbitMQ does.

    x-death     an array of tables, the last death first, one for each queue and reason:
                count, reason, queue, time (of the first), exchange, routing-keys, original-expiration if there was one
    x-first-death-reason, x-first-death-queue, x-first-death-exchange

The argument of a queue is `-` if messages that it refuses when it is full are no dead letters, then `=` and a routing key, if it
gives one.

A dead letter names the dead-letter exchange as the one it was published to. It has the routing key that the queue
gives, and no CC then; else it has those that it had, those of CC and BCC among them. It does not expire. A message that dies
again of the same reason in the same queue counts on: its table moves to the front.

**Cycles.** A message that a client rejected may go anywhere: each round has a decision of a client in it. One that dies by
itself does not enter again a queue where it died since it was last rejected.
"""

from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_FromStringAndSize, PyBytes_GET_SIZE
from libc.stdint cimport int64_t, uint16_t, uint32_t
from libc.string cimport memcmp

from xump_ext.amqp.envelope cimport AMQP_ANNEX, AMQP_KEYS_ANNEX, Envelope, envelope_in
from xump_ext.amqp.properties cimport Properties, scan_properties
from xump_ext.amqp.table cimport Field, integer_of, read_field, read_value
from xump_ext.amqp.wire cimport SHORT_BYTES_MAX, read_u16, read_u32, short_bytes, write_u16, write_u32, write_u64
from xump_ext.message.content cimport content_body, content_full, no_parts, parts_t
from xump_ext.message.headers cimport annex_new, annex_of, annex_release, content_t, correlation_of, headers_dict
from xump_ext.message.rewriter cimport death_t, rewriter_register

cdef enum:
    PROPERTIES = 14
    HEADERS = 2                 # the places in the list
    DELIVERY_MODE = 3
    PRIORITY = 4
    CORRELATION_ID = 5
    REPLY_TO = 6
    EXPIRATION = 7
    MESSAGE_ID = 8
    TIMESTAMP = 9
    SECOND = 1_000_000_000

EXCHANGES = "amq.x/"
"""The name of an exchange in the engine begins with it."""

cdef dict REASONS = {"overflow": b"maxlen", "delivery-limit": b"delivery_limit"}


# ---- what is written

cdef bytes number_octets(uint32_t number):
    cdef unsigned char octets[4]
    write_u32(octets, number)
    return octets[:4]


cdef bytes long_octets(int64_t number):
    cdef unsigned char octets[8]
    write_u64(octets, <unsigned long> number)
    return octets[:8]


cdef bytes short_text(bytes text):
    text = text[:short_bytes(PyBytes_AS_STRING(text), len(text))]
    return bytes((len(text),)) + text


cdef bytes sized(bytes octets):
    return number_octets(<uint32_t> len(octets)) + octets


cdef bytes named(bytes name, bytes value):
    """A field: its name, and a value with its type."""
    return short_text(name) + value


cdef bytes text_value(bytes text):
    return b"S" + sized(text)


cdef bytes value_of(object value):
    """A header of the engine's as a value."""
    if isinstance(value, bool):
        return b"t\x01" if value else b"t\x00"
    if isinstance(value, int):
        return b"l" + long_octets(value)
    if isinstance(value, float):
        return b"d" + real_octets(value)
    if isinstance(value, str):
        return text_value(value.encode())
    return b"x" + sized(value)


cdef bytes real_octets(double real):
    cdef int64_t bits = (<int64_t *> <void *> &real)[0]
    return long_octets(bits)


cdef bytes slice_of(const unsigned char *at, const unsigned char *end):
    return PyBytes_FromStringAndSize(<const char *> at, end - at)


# ---- the envelope before

cdef class Before:
    """The envelope of a message when it died: its exchange, and its properties in their places, encoded."""

    cdef bytes exchange
    cdef bytes keys             # those of CC and BCC, as the annex has them, with their size
    cdef list properties        # bytes or None
    cdef bytes headers          # the fields


cdef Before before_of(content_t *content):
    cdef Before before = Before.__new__(Before)
    cdef Envelope envelope
    cdef Properties found
    cdef const unsigned char *annex
    before.properties = [None] * PROPERTIES
    before.exchange = before.keys = b""
    if envelope_in(annex_of(content), &envelope) and (
            scan_properties(envelope.list, envelope.list + envelope.list_bytes, &found)):
        annex = <const unsigned char *> PyBytes_AS_STRING(<object> annex_of(content).data)
        before.keys = slice_of(annex, envelope.exchange - 1) if annex_of(content).kind == AMQP_KEYS_ANNEX else b""
        before.exchange = slice_of(envelope.exchange, envelope.exchange + envelope.exchange_bytes)
        before.headers = slice_of(found.headers, found.headers + found.headers_bytes) if found.headers != NULL else b""
        split(envelope.list, before.properties)
        return before
    from_attributes(content, before)
    return before


cdef int split(const unsigned char *at, list properties) except -1:
    """The properties of a list that `scan_properties` has checked."""
    cdef uint16_t flags = read_u16(at)
    cdef int place
    cdef uint32_t size
    at += 2
    for place in range(PROPERTIES):
        if not flags >> (15 - place) & 1:
            continue
        if place == HEADERS:
            size = 4 + read_u32(at)
        elif place == DELIVERY_MODE or place == PRIORITY:
            size = 1
        elif place == TIMESTAMP:
            size = 8
        else:
            size = 1 + at[0]
        properties[place] = slice_of(at, at + size)
        at += size
    return 0


cdef list encoded_names(dict headers):
    """Headers by their names in bytes, but those with names that AMQP cannot say: they are left out, as from deliveries."""
    return [(name, value) for name, value in [(name.encode(), value) for name, value in headers.items()]
            if len(name) <= SHORT_BYTES_MAX]


cdef int from_attributes(content_t *content, Before before) except -1:
    """Of a message that the embedding program published."""
    before.headers = b"".join([named(name, value_of(value)) for name, value in encoded_names(headers_dict(content))])
    if content.priority:
        before.properties[PRIORITY] = bytes((content.priority,))
    if content.reply_to != NULL:
        before.properties[REPLY_TO] = short_text((<str> content.reply_to).encode())
    if content.message_id != NULL:
        before.properties[MESSAGE_ID] = short_text((<str> content.message_id).encode())
    correlation_id = correlation_text(content)
    if correlation_id is not None:
        before.properties[CORRELATION_ID] = short_text(correlation_id.encode())
    return 0


cdef object correlation_text(content_t *content):
    cdef void *text = correlation_of(content)
    return None if text == NULL else <object> text


# ---- deaths

cdef class HeaderTable:
    """The table of headers, taken apart."""

    cdef list others            # encoded fields
    cdef bytes copies           # the encoded field CC, or None
    cdef list keys              # what CC and BCC say
    cdef list deaths            # of XDeath, the last one first
    cdef bint has_first


cdef class XDeath:
    cdef bytes fields           # encoded
    cdef bytes rest             # the same without `count`
    cdef bytes queue
    cdef bytes reason
    cdef int64_t count


cdef inline bint is_named(const Field *field, const char *name, int size) noexcept nogil:
    return field.name_bytes == size and memcmp(field.name, name, size) == 0


cdef HeaderTable headers_of(bytes fields):
    cdef HeaderTable headers = HeaderTable.__new__(HeaderTable)
    cdef const unsigned char *at = <const unsigned char *> PyBytes_AS_STRING(fields)
    cdef const unsigned char *end = at + PyBytes_GET_SIZE(fields)
    cdef const unsigned char *next
    cdef Field field
    headers.others, headers.keys, headers.deaths = [], [], []
    while at != end:
        next = read_field(at, &field)
        if is_named(&field, "x-death", 7):
            headers.deaths = deaths_of(&field)
        elif is_named(&field, "CC", 2):
            headers.copies = slice_of(at, next)
            add_keys(&field, headers.keys)
        else:
            if is_named(&field, "BCC", 3):
                add_keys(&field, headers.keys)
            elif is_named(&field, "x-first-death-reason", 20):
                headers.has_first = True
            headers.others.append(slice_of(at, next))
        at = next
    return headers


cdef int add_keys(const Field *copies, list keys) except -1:
    """Add the texts of an array."""
    cdef const unsigned char *at = copies.value
    cdef Field item
    while copies.kind == b"A" and at != copies.value + copies.value_bytes:
        at = read_value(at, &item)
        if item.kind == b"S":
            keys.append(slice_of(item.value, item.value + item.value_bytes))
    return 0


cdef list deaths_of(const Field *array):
    """The deaths that an array tells; what is no table is left out, and so is what is no array."""
    cdef list deaths = []
    cdef const unsigned char *at = array.value
    cdef Field item
    while array.kind == b"A" and at != array.value + array.value_bytes:
        at = read_value(at, &item)
        if item.kind == b"F":
            deaths.append(death_of(&item))
    return deaths


cdef XDeath death_of(const Field *table):
    cdef XDeath death = XDeath.__new__(XDeath)
    cdef const unsigned char *at = table.value
    cdef const unsigned char *end = at + table.value_bytes
    cdef const unsigned char *next
    cdef Field field
    cdef list kept = []
    death.queue = death.reason = b""
    while at != end:
        next = read_field(at, &field)
        if is_named(&field, "count", 5):
            if not integer_of(&field, &death.count):
                death.count = 0
        else:
            kept.append(slice_of(at, next))
            if is_named(&field, "queue", 5) and field.kind == b"S":
                death.queue = slice_of(field.value, field.value + field.value_bytes)
            elif is_named(&field, "reason", 6) and field.kind == b"S":
                death.reason = slice_of(field.value, field.value + field.value_bytes)
        at = next
    death.fields = slice_of(table.value, end)
    death.rest = b"".join(kept)
    return death


cdef XDeath new_death(bytes queue, bytes reason, Before before, list keys, int64_t seconds):
    cdef XDeath death = XDeath.__new__(XDeath)
    cdef list fields = [
        named(b"reason", text_value(reason)), named(b"queue", text_value(queue)), named(b"time", b"T" + long_octets(seconds)),
        named(b"exchange", text_value(before.exchange)),
        named(b"routing-keys", b"A" + sized(b"".join([text_value(key) for key in keys])))]
    expiration = before.properties[EXPIRATION]
    if expiration is not None:
        fields.append(named(b"original-expiration", text_value(expiration[1:])))
    death.rest, death.queue, death.reason = b"".join(fields), queue, reason
    return death


cdef int record(list deaths, XDeath death) except -1:
    """Put a death in front of the others: the one of that queue and reason, if it is there."""
    cdef XDeath other
    for other in deaths:
        if other.queue == death.queue and other.reason == death.reason:
            deaths.remove(other)
            death = other
            break
    death.count += 1
    death.fields = named(b"count", b"l" + long_octets(death.count)) + death.rest
    deaths.insert(0, death)
    return 0


cdef bytes encoded_deaths(list deaths):
    cdef XDeath death
    return b"A" + sized(b"".join([b"F" + sized(death.fields) for death in deaths]))


# ---- the rewriter

cdef content_t *rewrite(content_t *content, death_t *death, list barred) except NULL:
    cdef Before before = before_of(content)
    cdef HeaderTable headers = headers_of(before.headers)
    cdef str name = <str> death.reason, queue = <str> death.queue, argument = <str> death.argument
    cdef bytes reason = REASONS.get(name) or name.encode()
    cdef bytes died_in = queue.encode()
    if argument.startswith("-"):        # what the full queue refuses is no dead letter
        argument = argument[1:]
        if name == "overflow":
            barred.append(<str> death.letters)
    cdef str address = <str> content.address
    record(headers.deaths, new_death(
        died_in, reason, before, [address.encode(), *headers.keys], death.time // SECOND))
    if argument:
        address, before.keys = argument[1:], b""
    elif headers.copies is not None:
        headers.others.append(headers.copies)
    headers.others.append(named(b"x-death", encoded_deaths(headers.deaths)))
    if not headers.has_first:
        headers.others.append(named(b"x-first-death-reason", text_value(reason)))
        headers.others.append(named(b"x-first-death-queue", text_value(died_in)))
        headers.others.append(named(b"x-first-death-exchange", text_value(before.exchange)))
    death.begins = True
    if reason != b"rejected":
        bar(headers.deaths, barred)
    before.properties[HEADERS] = sized(b"".join(headers.others))
    before.properties[EXPIRATION] = None
    return content_after(
        content, address, AMQP_KEYS_ANNEX if before.keys else AMQP_ANNEX,
        before.keys + short_text(exchange_of(<str> death.letters)) + joined(before.properties))


cdef int bar(list deaths, list barred) except -1:
    """The queues where it died since it was last rejected."""
    cdef XDeath death
    for death in deaths:
        if death.reason == b"rejected":
            break
        barred.append(death.queue.decode("utf-8", "replace"))
    return 0


cdef bytes exchange_of(str letters):
    return letters[len(EXCHANGES):].encode() if letters.startswith(EXCHANGES) else b""


cdef bytes joined(list properties):
    """Flags and list."""
    cdef unsigned char octets[2]
    cdef uint16_t flags = 0
    cdef int place
    for place in range(PROPERTIES):
        if properties[place] is not None:
            flags |= <uint16_t> (1 << (15 - place))
    write_u16(octets, flags)
    return octets[:2] + b"".join([encoded for encoded in properties if encoded is not None])


cdef content_t *content_after(content_t *content, object address, uint32_t kind, bytes annex) except NULL:
    """The same body under this address with this annex, and what else a program sees of the message, but its own headers."""
    cdef parts_t parts = no_parts()
    cdef content_t *made
    parts.reply_to, parts.message_id, parts.correlation_id = content.reply_to, content.message_id, correlation_of(content)
    parts.priority = content.priority
    parts.annex = annex_new(kind, annex)
    try:
        made = content_full(address, content_body(content), &parts, 0, 0)
    finally:
        annex_release(parts.annex)
    return made


rewriter_register("amqp", rewrite, None)
