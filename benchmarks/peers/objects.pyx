"""Messages as compiled objects, and as plain memory: made and dropped, or held and then freed; nanoseconds for all."""

cimport cython
from libc.stdlib cimport free, malloc
from libc.string cimport memcpy
from posix.time cimport CLOCK_MONOTONIC, clock_gettime, timespec


@cython.freelist(4096)
cdef class Tracked:
    """The cyclic collector knows it."""
    cdef public object address, body, headers

    def __cinit__(self, address, body, headers):
        self.address, self.body, self.headers = address, body, headers


@cython.no_gc
@cython.freelist(4096)
cdef class Untracked:
    """The collector does not know it; its fields are set from C."""
    cdef public object address, body, headers


cdef struct memory_t:
    memory_t* next
    char address[24]
    char body[100]


cdef double now() noexcept:
    cdef timespec time
    clock_gettime(CLOCK_MONOTONIC, &time)
    return time.tv_sec * 1e9 + time.tv_nsec


def untracked_dropped(Py_ssize_t count, address, body):
    cdef double started = now()
    cdef Py_ssize_t _
    cdef Untracked message
    for _ in range(count):
        message = Untracked.__new__(Untracked)
        message.address = address
        message.body = body
    return now() - started


def untracked_held(Py_ssize_t count, address, body):
    cdef list held = [None] * count
    cdef double started = now()
    cdef Py_ssize_t at
    cdef Untracked message
    for at in range(count):
        message = Untracked.__new__(Untracked)
        message.address = address
        message.body = body
        held[at] = message
    del held, message
    return now() - started


cdef memory_t* made(const char* address, size_t address_size, const char* body) noexcept:
    cdef memory_t* message = <memory_t*> malloc(sizeof(memory_t))
    memcpy(message.address, address, address_size)
    memcpy(message.body, body, 100)
    return message


def memory_dropped(Py_ssize_t count, bytes address not None, bytes body not None):
    assert len(address) <= 24 and len(body) == 100
    cdef double started = now()
    cdef Py_ssize_t _
    cdef memory_t* message
    cdef int read = 0
    for _ in range(count):
        message = made(address, len(address), body)
        read += message.body[99]        # else the compiler leaves all of it out
        free(message)
    return now() - started if read >= 0 else 0.0


def memory_held(Py_ssize_t count, bytes address not None, bytes body not None):
    assert len(address) <= 24 and len(body) == 100
    cdef double started = now()
    cdef Py_ssize_t _
    cdef memory_t* first = NULL
    cdef memory_t* message
    for _ in range(count):
        message = made(address, len(address), body)
        message.next = first
        first = message
    while first != NULL:
        message = first
        first = message.next
        free(message)
    return now() - started
