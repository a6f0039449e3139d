"""Declarations of `message.pyx`: the objects `Message` and `Headers`, and content of what a program gives."""

from cpython.object cimport PyObject
from cpython.ref cimport Py_XDECREF
from libc.stdint cimport int64_t, uint32_t, uint64_t

from xump_ext.message.content cimport parts_t
from xump_ext.message.headers cimport content_t

# Content of what a program gives: of the arguments of `Message`, or of a `Message` or a tuple. `given` has the other parts; NULL:
# these are the default ones.
cdef content_t* content_new(
    object address, object body, object headers, object reply_to, object message_id, const parts_t* given) except NULL
cdef content_t* content_alone(
    Message message, object body, object headers, object reply_to, object message_id, const parts_t* given) except NULL
cdef content_t* content_of(object message, const parts_t* given) except NULL
# The value as an exact str within the limit, or None; else an error that names `what`.
cdef str optional_text(object value, str what)
# The parts that few messages have. `correlation_id` is exact, and outlives them.
cdef parts_t parts_given(str correlation_id, object expires, object priority) except *

cdef class Headers:
    cdef content_t* content

cdef class Message:
    cdef content_t* content
    cdef void* address_member       # the content's address and body, where the interpreter reads them in place
    cdef void* body_member
    cdef PyObject* headers_member   # Headers of the same content, owned
    cdef readonly uint64_t id
    cdef readonly int64_t timestamp
    cdef readonly uint32_t hops

# A `Message` that shares `content`. The caller owns the reference.
cdef PyObject* message_new(content_t* content, uint64_t id, int64_t timestamp, uint32_t hops) except NULL
# The same as an object.
cdef inline Message message_object(content_t* content, uint64_t id, int64_t timestamp, uint32_t hops):
    cdef PyObject* made = message_new(content, id, timestamp, hops)
    message = <Message> made
    Py_XDECREF(made)
    return message
