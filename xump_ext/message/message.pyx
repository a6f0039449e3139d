"""The objects `Message` and `Headers` that Python sees, thin handles over content (`message/content.pyx`).

A message in a queue is an entry (`state/graph.pxd`) that points to its content. `Message` and `Headers` are made when Python
asks. They hold no object that the collector has to visit, so a million waiting messages are invisible to it.

This file also checks what a program gives and makes content of it.
"""

from collections.abc import Mapping

cimport cython
from cpython.bytes cimport PyBytes_CheckExact, PyBytes_GET_SIZE
from cpython.dict cimport PyDict_CheckExact
from cpython.object cimport PyObject
from cpython.ref cimport Py_INCREF, Py_XDECREF
from libc.stdint cimport uint16_t

from xump_ext.memory.document cimport document
from xump_ext.memory.freelist cimport (
    XUMP_POOL_SIZE, PyMemberDef, PyTypeObject, xump_member, xump_pool, xump_pool_get, xump_pool_put,
)
from xump_ext.memory.short_call cimport args_given, making_t, short_making
from xump_ext.memory.short_copy cimport copy_short
from xump_ext.message.content cimport (
    checked_body, checked_text, content_alloc, content_body, content_full, content_of_headers, content_release, content_share,
    content_stamped, content_without_destination, no_parts, object_or_none,
)
from xump_ext.message.headers cimport (
    ADDRESS_BYTES_MAX, BODY_BYTES_MAX, HEADERS_SMALL, NAME_BYTES_MAX, WITH_ANNEX, annex_new, annex_of, annex_release, annex_t,
    ascii_of, correlation_of, expires_of, field_count, field_find, field_value, fields_of, headers_dict, headers_measure,
    headers_of, headers_small, headers_write, raw_text_of,
)
from xump_ext.message.headers import headers_bytes_max as _headers_bytes_max
from xump_ext.message.times cimport NEVER, moment_ns

cdef extern from "Python.h":
    Py_ssize_t Py_REFCNT(PyObject*)
    void PyErr_Clear()
    bint PyUnicode_Check(object)
    Py_ssize_t PyTuple_GET_SIZE(object tuple)
    PyObject* NONE "Py_None"

cdef extern from *:
    """
    #define xump_items(tuple) (((PyTupleObject *) (tuple))->ob_item)
    """
    PyObject** tuple_items "xump_items"(object tuple) noexcept

cdef Py_ssize_t HEADERS_BYTES_MAX = _headers_bytes_max
# For a bounced message: a bounce adds two names and a detail of at most 65535 bytes each, and a reason; it can happen again.
cdef Py_ssize_t BOUNCED_BYTES_MAX = 2 * HEADERS_BYTES_MAX
cdef object DEFAULT_PRIORITY = 0
cdef object PRIORITY_MAX = 255
cdef object ANNEX_KIND_MAX = 65535

address_bytes_max = ADDRESS_BYTES_MAX
body_bytes_max = BODY_BYTES_MAX


# ---- content of what a program gives

cdef content_t* content_new(
    object address, object body, object headers, object reply_to, object message_id, const parts_t* given
) except NULL:
    """Content of the arguments of `Message`. Raises TypeError and ValueError that say what is wrong."""
    cdef PyObject* parts[5]
    if given != NULL:
        return content_checked(address, body, headers, reply_to, message_id, given, HEADERS_BYTES_MAX)
    parts[0] = <PyObject*> address
    parts[1] = <PyObject*> body
    parts[2] = <PyObject*> headers
    parts[3] = <PyObject*> reply_to
    parts[4] = <PyObject*> message_id
    return content_of_parts(parts, 5)


cdef str optional_text(object value, str what):
    return None if value is None else checked_text(value, what)


cdef parts_t parts_given(str correlation_id, object expires, object priority) except *:
    cdef parts_t parts = no_parts()
    if correlation_id is not None:
        parts.correlation_id = <void*> correlation_id
    if expires is not None:
        parts.expires = moment_ns(expires, "expires")
    if <PyObject*> priority != <PyObject*> DEFAULT_PRIORITY:
        if isinstance(priority, bool) or not isinstance(priority, int):
            raise TypeError(f"priority must be an int, got {type(priority).__name__}")
        if not 0 <= priority <= PRIORITY_MAX:
            raise ValueError(f"priority must be from 0 to {PRIORITY_MAX}, got {priority}")
        parts.priority = priority
    return parts


cdef annex_t* annex_given(object annex) except? NULL:
    """A new annex of (kind, bytes); NULL for None."""
    if annex is None:
        return NULL
    if not isinstance(annex, tuple) or len(annex) != 2:
        raise TypeError(f"annex must be a tuple (kind, bytes) or None, got {annex!r:.60}")
    kind, data = annex
    if isinstance(kind, bool) or not isinstance(kind, int):
        raise TypeError(f"the kind of an annex must be an int, got {type(kind).__name__}")
    if not 1 <= kind <= ANNEX_KIND_MAX:
        raise ValueError(f"the kind of an annex must be from 1 to {ANNEX_KIND_MAX}, got {kind}")
    if not isinstance(data, (bytes, bytearray, memoryview)):
        raise TypeError(f"an annex must be bytes, got {type(data).__name__}")
    data = bytes(data)
    if len(data) > HEADERS_BYTES_MAX:
        raise ValueError(f"the annex has {len(data)} bytes, allowed are {HEADERS_BYTES_MAX}")
    return annex_new(kind, data)


def _check_alone(body, headers, reply_to, message_id, correlation_id, expires, priority):
    """Raises TypeError if anything was given beside a `Message` that a `Message` has."""
    cdef parts_t given = parts_given(optional_text(correlation_id, "correlation_id"), expires, priority)
    check_alone(body, headers, reply_to, message_id, &given)


cdef int check_alone(object body, object headers, object reply_to, object message_id, const parts_t* given) except -1:
    if headers is not None or reply_to is not None or message_id is not None or not isinstance(body, bytes) or len(body) or (
            given != NULL and (given.correlation_id != NULL or given.expires != NEVER or given.priority)):
        raise TypeError("a Message is published as it is: give no body, headers, reply_to, message_id, correlation_id, expires "
                        "or priority beside it; message.replace(body=...) makes another one")
    return 0


cdef content_t* content_alone(
    Message message, object body, object headers, object reply_to, object message_id, const parts_t* given
) except NULL:
    """Content of a `Message` that was given in place of an address. Raises as `_check_alone`."""
    check_alone(body, headers, reply_to, message_id, given)
    return content_without_destination(message.content)


cdef content_t* content_of(object message, const parts_t* given) except NULL:
    """Content of a `Message`, or of a tuple in the order of its arguments."""
    if given == NULL and isinstance(message, tuple):
        return content_of_parts(tuple_items(message), PyTuple_GET_SIZE(message))
    return content_of_any(message, given)


cdef content_t* content_of_any(object message, const parts_t* given) except NULL:
    if isinstance(message, tuple):
        return content_of_parts_given(tuple_items(message), PyTuple_GET_SIZE(message), given)
    if isinstance(message, Message):
        if given != NULL:
            check_alone(NO_BYTES, None, None, None, given)
        return content_without_destination((<Message> message).content)
    raise TypeError(f"a message is a Message or a tuple (address, body, headers, reply_to, message_id), got "
                    f"{type(message).__name__}")


cdef str NO_TEXT = ""
cdef bytes NO_BYTES = b""


cdef content_t* content_of_parts(PyObject** parts, Py_ssize_t count) except NULL:
    """Content of up to five parts. Plain text, exact bytes and few short headers go in one pass; all else is checked first."""
    cdef PyObject* address = parts[0] if count > 0 else <PyObject*> NO_TEXT
    cdef PyObject* body = parts[1] if count > 1 else <PyObject*> NO_BYTES
    cdef PyObject* headers = parts[2] if count > 2 else NONE
    cdef char block[HEADERS_SMALL]
    cdef char* end = block
    cdef content_t* content
    cdef Py_ssize_t size
    cdef uint32_t header_count = 0
    if (ascii_of(address, &size) != NULL and size <= ADDRESS_BYTES_MAX
            and PyBytes_CheckExact(<object> body) and PyBytes_GET_SIZE(<object> body) <= BODY_BYTES_MAX
            and (count <= 3 or (count == 5 and parts[3] == NONE and parts[4] == NONE))):
        if headers != NONE:
            end = headers_small(headers, block, &header_count) if PyDict_CheckExact(<object> headers) else NULL
        if end != NULL:
            content = content_alloc(address, body, header_count, <uint32_t> (end - block), 0, False)
            copy_short(<char*> headers_of(content), block, end - block)
            return content
    return content_of_parts_given(parts, count, NULL)


cdef content_t* content_of_parts_given(PyObject** parts, Py_ssize_t count, const parts_t* given) except NULL:
    """Content of up to five parts, all of them checked."""
    cdef PyObject* address = parts[0] if count > 0 else <PyObject*> NO_TEXT
    cdef PyObject* body = parts[1] if count > 1 else <PyObject*> NO_BYTES
    cdef PyObject* headers = parts[2] if count > 2 else NONE
    if count > 5:
        raise TypeError(f"a message has at most 5 parts (address, body, headers, reply_to, message_id), got {count}")
    return content_checked(
        <object> address, <object> body, <object> headers, <object> (parts[3] if count > 3 else NONE),
        <object> (parts[4] if count > 4 else NONE), given, HEADERS_BYTES_MAX)


cdef content_t* content_checked(
    object address, object body, object headers, object reply_to, object message_id, const parts_t* given, Py_ssize_t bytes_max
) except NULL:
    """Content of any parts, all of them checked."""
    cdef parts_t parts = no_parts() if given == NULL else given[0]
    cdef content_t* content
    cdef content_t* shared
    cdef const char* fields
    cdef Py_ssize_t size = 0
    cdef uint32_t count = 0
    address = checked_text(address, "address")
    body = checked_body(body)
    if reply_to is not None:
        reply_to = checked_text(reply_to, "reply_to")
        parts.reply_to = <void*> reply_to
    if message_id is not None:
        message_id = checked_text(message_id, "message_id")
        parts.message_id = <void*> message_id
    if headers is not None:
        if isinstance(headers, Headers):
            shared = (<Headers> headers).content
            fields = fields_of(shared, &count)
            return content_of_headers(address, body, &parts, fields, field_count(shared), count)
        if not PyDict_CheckExact(headers):
            if not isinstance(headers, Mapping):
                raise TypeError(f"headers must be a mapping of str to values, got {type(headers).__name__}")
            headers = dict(headers)
        size = headers_measure(<dict> headers, &count, bytes_max)
    content = content_full(address, body, &parts, count, <uint32_t> size)
    if count:
        headers_write(<dict> headers, <char*> headers_of(content))
    return content


# ---- what Python sees

cdef bint making = False        # True while the core makes a blank object, which it fills; so `__new__` from Python is told apart
cdef xump_pool headers_pool
cdef xump_pool message_pool
cdef PyMemberDef address_member_def
cdef PyMemberDef body_member_def
cdef PyMemberDef headers_member_def


cdef void headers_dealloc(PyObject* object) noexcept:
    if (<Headers> object).content != NULL:
        content_release((<Headers> object).content)
        (<Headers> object).content = NULL
    xump_pool_put(&headers_pool, object)


cdef PyObject* headers_new() except NULL:
    """Headers without content; the caller owns the reference."""
    global making
    cdef PyObject* spare = xump_pool_get(&headers_pool)
    if spare == NULL:
        making = True
        try:
            headers = Headers.__new__(Headers)
        finally:
            making = False
        Py_INCREF(headers)
        spare = <PyObject*> headers
    return spare


cdef inline void message_clean(PyObject* object) noexcept:
    cdef PyObject* headers = (<Message> object).headers_member
    if (<Message> object).content == NULL:
        return
    if Py_REFCNT(headers) == 1 and message_pool.count < XUMP_POOL_SIZE:     # the headers stay with the spare message
        content_release((<Message> object).content)
        (<Headers> headers).content = NULL
    else:       # the headers take over the reference to the content
        (<Message> object).headers_member = NULL
        Py_XDECREF(headers)
    (<Message> object).content = NULL


cdef void message_dealloc(PyObject* object) noexcept:
    message_clean(object)
    xump_pool_put(&message_pool, object)


cdef inline const char* field_named(const content_t* content, object name) except? NULL:
    cdef Py_ssize_t size
    cdef const char* text = ascii_of(<PyObject*> name, &size)
    if text == NULL:
        return field_named_otherwise(content, name)
    return field_find(content, text, <uint16_t> size) if size <= NAME_BYTES_MAX else NULL


cdef const char* field_named_otherwise(const content_t* content, object name) except? NULL:
    """As `field_named`, for a name that is not an exact ASCII str."""
    cdef Py_ssize_t size
    cdef const char* text
    if not PyUnicode_Check(name):
        return NULL
    text = raw_text_of(name, &size)
    if text == NULL:
        PyErr_Clear()
        return NULL                 # a lone surrogate is in no header
    return field_find(content, text, <uint16_t> size) if size <= NAME_BYTES_MAX else NULL


@cython.final
cdef class Headers:
    """The headers of a message: a read-only mapping of str to bool, int, float, str or bytes, in the order of publishing.

    Cost: a look-up compares the name with each header before it. A value is made anew at every access.
    """

    def __cinit__(self):
        if not making:
            raise TypeError("headers come with a message: Message(headers={...}).headers")

    def __getitem__(self, name):
        cdef const char* at = field_named(self.content, name)
        if at == NULL:
            raise KeyError(name)
        return field_value(at)

    def get(self, name, default=None):
        """The value of the header `name`, or `default` if there is none."""
        cdef const char* at = field_named(self.content, name)
        return default if at == NULL else field_value(at)

    def __contains__(self, name):
        return field_named(self.content, name) != NULL

    def __len__(self):
        return field_count(self.content)

    def __iter__(self):
        return iter(headers_dict(self.content))

    def keys(self):
        """The names of the headers, as `dict.keys` gives them."""
        return headers_dict(self.content).keys()

    def values(self):
        """The values of the headers, as `dict.values` gives them."""
        return headers_dict(self.content).values()

    def items(self):
        """The names and values of the headers, as `dict.items` gives them."""
        return headers_dict(self.content).items()

    def __eq__(self, other):
        if isinstance(other, Headers):
            return headers_dict(self.content) == headers_dict((<Headers> other).content)
        if isinstance(other, Mapping):
            return headers_dict(self.content) == dict(other)
        return NotImplemented

    __hash__ = None

    def __repr__(self):
        return repr(headers_dict(self.content))

    def __reduce__(self):
        return dict, (headers_dict(self.content),)


Mapping.register(Headers)


@cython.final
cdef class Message:
    """Message(address='', body=b'', headers=None, *, reply_to=None, message_id=None, correlation_id=None, expires=None, \
priority=0, annex=None)\n--\n
    An immutable message: an address, a body and headers.

    Args:
        address: The text that the message is routed by (a routing key), at most 65,534 bytes of UTF-8.
        body: Up to 64 MiB of bytes; a bytearray or memoryview is copied.
        headers: Values by name: bool, int (64 bits, signed), float, str or bytes; together at most 1 MiB.
        reply_to: The address for answers.
        message_id: Your own name for the message.
        correlation_id: The `message_id` of the message that this one answers, or what else joins the two.
        expires: When the message expires (from then on it is not delivered): an aware datetime, or POSIX nanoseconds.
        priority: 0 to 255; queues with a priority take higher ones first.
        annex: (kind, bytes): bytes that travel with the message, and which only the reader of that kind understands
            (`register_annex`); at most 1 MiB. Without `headers`, the message has those that the reader yields.

    Raises:
        TypeError, ValueError: An argument is wrong.

    `id`, `timestamp` and `hops` come from the queue that the message was read from; in a new message they are 0.

    Cost: one allocation, and a copy of the headers.

    >>> from xump import Message
    >>> Message("jobs", b"...", {"size": 700}).headers["size"]
    700
    """

    def __cinit__(self):
        if not making:
            message_fill(self, content_share(nothing))

    def __init__(
        self, address="", body=b"", headers=None, *, reply_to=None, message_id=None, correlation_id=None, expires=None,
        priority=0, annex=None,
    ):
        cdef parts_t given
        cdef content_t* content
        if (correlation_id is None and expires is None and <PyObject*> priority == <PyObject*> DEFAULT_PRIORITY
                and annex is None):
            content = content_new(address, body, headers, reply_to, message_id, NULL)
        else:
            correlation_id = optional_text(correlation_id, "correlation_id")
            given = parts_given(correlation_id, expires, priority)
            given.annex = annex_given(annex)
            try:
                content = content_new(address, body, headers, reply_to, message_id, &given)
            finally:
                annex_release(given.annex)
        message_begin(self, content)

    @property
    def reply_to(self):
        """The address for answers, or None."""
        return object_or_none(self.content.reply_to)

    @property
    def message_id(self):
        """The sender's own name for the message, or None; queues with `dedup`, and requests, know it by that."""
        return object_or_none(self.content.message_id)

    @property
    def correlation_id(self):
        """Joins the message with another one: in an answer, the `message_id` of the question. None: it has none."""
        return object_or_none(correlation_of(self.content))

    @property
    def expires(self):
        """When the message expires, in POSIX nanoseconds of the engine's clock: from then on it is not delivered. None: it does
        not expire by itself."""
        cdef int64_t expires = expires_of(self.content)
        return None if expires == NEVER else expires

    @property
    def priority(self):
        """0 to 255: queues with a priority take higher ones first; 0 is the default."""
        return self.content.priority

    @property
    def annex(self):
        """(kind, bytes) of the message's annex, or None. Its headers are in `headers`, if there is a reader of that kind."""
        cdef annex_t* annex = annex_of(self.content)
        return None if annex == NULL else (annex.kind, <object> annex.data)

    @property
    def destination(self):
        """The destination that `deliver(destination, queue)` stamped on the message; None until then."""
        return object_or_none(self.content.destination)

    def replace(self, **changes):
        """Return a new message in which some values are others; its id is 0.

        Args:
            changes: The new values, by name: `address`, `body`, `headers`, `reply_to`, `message_id`, `correlation_id`, `expires`,
                `priority`, `annex`.

        Raises:
            TypeError, ValueError: A value is wrong, or cannot be replaced.

        Cost: that of a new message.

        >>> from xump import Message
        >>> Message("a", b"x").replace(address="b").address
        'b'
        """
        wrong = [name for name in changes if name not in CHANGEABLE]
        if wrong:
            raise TypeError(f"cannot replace {', '.join(map(repr, wrong))}; allowed are {', '.join(CHANGEABLE)}")
        if "headers" not in changes and self.content.header_bytes:
            changes["headers"] = own_headers(self.content)
        if self.content.reply_to != NULL:
            changes.setdefault("reply_to", self.reply_to)
        if self.content.message_id != NULL:
            changes.setdefault("message_id", self.message_id)
        if self.content.priority:
            changes.setdefault("priority", self.priority)
        if self.content.has_trailer:
            for name in IN_A_TRAILER:
                if name not in changes:
                    changes[name] = getattr(self, name)
        address = changes.pop("address", <object> self.address_member)
        body = changes.pop("body", <object> self.body_member)
        headers = changes.pop("headers", None)
        return Message(address, body, headers, **changes) if changes else Message(address, body, headers)

    def __eq__(self, other):
        if not isinstance(other, Message):
            return NotImplemented
        return self.__reduce__()[1] == (<Message> other).__reduce__()[1]

    def __hash__(self):
        return hash((self.address, self.body, self.message_id, self.id))

    def __repr__(self):
        parts = [repr(self.address), repr(self.body if len(self.body) <= 60 else self.body[:60] + b"...")]
        if self.content.header_count:
            parts.append(repr(self.headers))
        if self.content.has_trailer == WITH_ANNEX:
            parts.append(f"annex={self.annex if len(self.annex[1]) <= 60 else (self.annex[0], self.annex[1][:60] + b'...')!r}")
        for name in ("reply_to", "message_id", "correlation_id", "destination", "expires"):
            if getattr(self, name) is not None:
                parts.append(f"{name}={getattr(self, name)!r}")
        if self.priority:
            parts.append(f"priority={self.priority}")
        if self.id:
            parts.append(f"id={self.id}")
        return f"Message({', '.join(parts)})"

    def __reduce__(self):
        return _rebuild, (self.address, self.body, own_headers(self.content), self.reply_to, self.message_id, self.destination,
                          self.id, self.timestamp, self.hops, self.correlation_id, self.expires, self.priority, self.annex)


CHANGEABLE = ("address", "body", "headers", "reply_to", "message_id", "correlation_id", "expires", "priority", "annex")
cdef tuple IN_A_TRAILER = ("correlation_id", "expires", "annex")


cdef dict own_headers(const content_t* content):
    """The headers without those that an annex yields."""
    return headers_dict(content) if content.header_bytes else {}


def _rebuild(
    address, body, headers, reply_to, message_id, destination, id, timestamp, hops, correlation_id, expires, priority, annex=None
):
    """A message from its pickle. A bounced message may have more headers than can be published."""
    cdef str correlation = optional_text(correlation_id, "correlation_id")
    cdef parts_t given = parts_given(correlation, expires, priority)
    cdef content_t* content
    cdef content_t* stamped
    given.annex = annex_given(annex)
    try:
        content = content_checked(address, body, headers, reply_to, message_id, &given, BOUNCED_BYTES_MAX)
    finally:
        annex_release(given.annex)
    if destination is not None:
        stamped = content_stamped(content, checked_text(destination, "destination"))
        content_release(content)
        content = stamped
    message = message_object(content, id, timestamp, hops)
    content_release(content)
    return message


cdef int message_fill(Message message, content_t* content) except -1:
    """Fills a blank message; takes over the reference to the content.

    The members are borrowed from the content, which the message holds. Its headers share the reference, and take it over if
    they outlive the message.
    """
    if content.body == NULL:
        content_body(content)
    if message.headers_member == NULL:
        message.headers_member = headers_new()
    (<Headers> message.headers_member).content = content
    message.content = content
    message.address_member = content.address
    message.body_member = content.body
    return 0


cdef int message_begin(Message message, content_t* content) except -1:
    """The part of `__init__` that makes the content."""
    if message.content != nothing:
        content_release(content)
        raise TypeError("a message is immutable: use replace()")
    content_release(nothing)
    return message_fill(message, content)


cdef object message_short(object kind, PyObject** args, size_t count, PyObject* names):
    """`Message(…)` without keywords: up to three arguments, taken as they come (see `memory/short_call.pxd`)."""
    cdef content_t* content
    if names != NULL or args_given(count) > 3:
        return message_long(kind, args, count, names)
    content = content_of_parts(args, args_given(count))
    try:
        return message_object(content, 0, 0, 0)
    finally:
        content_release(content)


cdef making_t message_long = short_making(Message, message_short)


cdef Message message_blank():
    global making
    making = True
    try:
        return Message.__new__(Message)
    finally:
        making = False


cdef PyObject* message_new(content_t* content, uint64_t id, int64_t timestamp, uint32_t hops) except NULL:
    cdef PyObject* spare = xump_pool_get(&message_pool)
    if spare == NULL:
        made = message_blank()
        Py_INCREF(made)
        spare = <PyObject*> made
    message_fill(<Message> spare, content_share(content))
    (<Message> spare).id = id
    (<Message> spare).timestamp = timestamp
    (<Message> spare).hops = hops
    return spare


cdef content_t* nothing = content_new("", b"", None, None, None, NULL)     # of a message that is not filled yet

(<PyTypeObject*> Headers).tp_dealloc = headers_dealloc
(<PyTypeObject*> Message).tp_dealloc = message_dealloc
xump_member(
    <PyTypeObject*> Message, &address_member_def, b"address", <size_t> &(<Message> NULL).address_member,
    b"The text that the message is usually routed by (a routing key), often words separated by dots.")
xump_member(
    <PyTypeObject*> Message, &headers_member_def, b"headers", <size_t> &(<Message> NULL).headers_member,
    b"The headers: a read-only mapping of names to bool, int, float, str or bytes.")
xump_member(
    <PyTypeObject*> Message, &body_member_def, b"body", <size_t> &(<Message> NULL).body_member,
    b"The payload: bytes, which Xump does not look into.")
document(Message, b"id", b"The number that its queue gave it: 1, 2, 3 ... in each queue; 0 before it entered one.")
document(
    Message, b"timestamp",
    b"When it entered its queue: POSIX nanoseconds of the engine's clock, never less than its predecessor's there.")
document(
    Message, b"hops", b"How many COPY, MOVE and BOUNCE steps led here; past the engine's hop_limit a message is dead-lettered.")
