"""Receives and sends the messages of a ZeroMQ socket whole, with one call instead of one a frame.

A call of pyzmq handles one frame: an object for it, options, checks, the GIL given up and taken. All that a broker does with a
message of six frames costs less than that. Here the frames of a message go between libzmq and a list of bytes in one call.

Xump is built without libzmq, and does not need it. The functions come as addresses, from the library that pyzmq has loaded, so
that both speak of the same sockets; `xump/zeromq/messages.py` finds them. libzmq promises that its functions stay as they are,
and that a `zmq_msg_t` has 64 bytes (since 4.1).

Events of every day are values: no message within the time, no room, a peer that is gone. The errors of a socket that is
closed or whose context has ended are raised by what the program gives for that.
"""

cimport cython
from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_Check, PyBytes_FromStringAndSize, PyBytes_GET_SIZE
from cpython.exc cimport PyErr_CheckSignals
from cpython.list cimport PyList_Append
from libc.errno cimport EAGAIN, EINTR, ENOTSOCK
from libc.stdint cimport uintptr_t

cdef enum:
    DONT_WAIT = 1                       # ZMQ_DONTWAIT, ZMQ_SNDMORE
    MORE_FOLLOW = 2

cdef union Message:
    # zmq_msg_t, in the alignment that its header asks for.
    unsigned char data[64]
    void *aligned


cdef struct Functions:
    int (*init)(Message *) noexcept nogil
    int (*recv)(Message *, void *, int) noexcept nogil
    void *(*data)(Message *) noexcept nogil
    size_t (*size)(const Message *) noexcept nogil
    int (*more)(const Message *) noexcept nogil
    int (*close)(Message *) noexcept nogil
    int (*send)(void *, const void *, size_t, int) noexcept nogil
    int (*error)() noexcept nogil


FUNCTIONS = (
    "zmq_msg_init", "zmq_msg_recv", "zmq_msg_data", "zmq_msg_size", "zmq_msg_more", "zmq_msg_close", "zmq_send", "zmq_errno",
)
"""The functions of libzmq, in the order in which `Multipart` wants their addresses."""


@cython.final
cdef class Multipart:
    """The messages of a socket. As a socket, it is for one thread at a time.

    Args:
        socket: A socket of pyzmq.
        addresses: Of the functions of libzmq that `FUNCTIONS` names.
        fail: Is called with the number of an error, and raises it.
        frames_max: A longer message loses all frames but this many and one, so that it is known as too long.
        unreachable: The number of the error of a peer that is gone.
    """

    cdef Functions _libzmq
    cdef void *_handle
    cdef object _socket, _fail
    cdef Py_ssize_t _frames_max
    cdef int _unreachable

    def __cinit__(self, socket, addresses, fail, *, Py_ssize_t frames_max, int unreachable):
        cdef list found = list(addresses)
        if len(found) != len(FUNCTIONS) or not all(found):
            raise ValueError(f"addresses must be those of {', '.join(FUNCTIONS)}, got {found}")
        self._libzmq.init = <int (*)(Message *) noexcept nogil> <uintptr_t> found[0]
        self._libzmq.recv = <int (*)(Message *, void *, int) noexcept nogil> <uintptr_t> found[1]
        self._libzmq.data = <void *(*)(Message *) noexcept nogil> <uintptr_t> found[2]
        self._libzmq.size = <size_t (*)(const Message *) noexcept nogil> <uintptr_t> found[3]
        self._libzmq.more = <int (*)(const Message *) noexcept nogil> <uintptr_t> found[4]
        self._libzmq.close = <int (*)(Message *) noexcept nogil> <uintptr_t> found[5]
        self._libzmq.send = <int (*)(void *, const void *, size_t, int) noexcept nogil> <uintptr_t> found[6]
        self._libzmq.error = <int (*)() noexcept nogil> <uintptr_t> found[7]
        self._socket, self._fail, self._frames_max, self._unreachable = socket, fail, frames_max, unreachable
        self._handle = <void *> <uintptr_t> socket.underlying

    cdef int _check_open(self) except -1:
        """A handle is an address: libzmq must not see one whose socket is closed."""
        if self._socket.closed:
            self._fail(ENOTSOCK)
        return 0

    def receive(self, bint wait=False):
        """The frames of the next message; None: there is none, or none came in time.

        `wait`: wait for it, as long as the socket's `rcvtimeo` says.
        """
        cdef Message message
        cdef list frames = []
        self._check_open()
        self._libzmq.init(&message)
        try:
            if not self._next_frame(&message, wait):
                return None
            PyList_Append(frames, self._bytes(&message))
            while self._libzmq.more(&message):
                if not self._next_frame(&message, False):
                    self._fail(EAGAIN)                      # does not happen: the frames of a message come all at once
                if len(frames) <= self._frames_max:
                    PyList_Append(frames, self._bytes(&message))
        finally:
            self._libzmq.close(&message)
        return frames

    cdef bint _next_frame(self, Message *message, bint wait) except -1:
        """Whether there is one. The GIL is given up only to wait: what does not wait takes less than that."""
        cdef int error
        while True:
            if wait:
                with nogil:
                    error = 0 if self._libzmq.recv(message, self._handle, 0) >= 0 else self._libzmq.error()
            else:
                error = 0 if self._libzmq.recv(message, self._handle, DONT_WAIT) >= 0 else self._libzmq.error()
            if error == 0:
                return True
            if error == EAGAIN:
                return False
            if error != EINTR:
                self._fail(error)
            PyErr_CheckSignals()

    cdef inline bytes _bytes(self, Message *message):
        return PyBytes_FromStringAndSize(<char *> self._libzmq.data(message), self._libzmq.size(message))

    def send(self, frames):
        """Send a message; False: there is no room for it, or its peer is gone, of which a socket tells only if it is asked to.

        Never waits. A frame that is not bytes raises TypeError, and no frames ValueError, before anything is sent.
        """
        cdef tuple given = tuple(frames)
        cdef bint first = True, sent = True
        cdef Py_ssize_t left = len(given)
        if left == 0:
            raise ValueError("a message has at least one frame, which may be empty: b\"\"")
        for frame in given:
            if not PyBytes_Check(frame):
                raise TypeError(f"a frame of a message must be bytes, got {frame!r}")
        self._check_open()
        for frame in given:
            left -= 1
            if not self._send_frame(<bytes> frame, MORE_FOLLOW if left else 0):
                if first:
                    return False
                # Its peer went in the middle. libzmq drops what comes until the end of the message, so it must get all of it.
                sent = False
            first = False
        return sent

    cdef bint _send_frame(self, bytes frame, int more) except -1:
        cdef int error
        while self._libzmq.send(self._handle, PyBytes_AS_STRING(frame), PyBytes_GET_SIZE(frame), DONT_WAIT | more) < 0:
            error = self._libzmq.error()
            if error == EAGAIN or error == self._unreachable:
                return False
            if error != EINTR:
                self._fail(error)
            PyErr_CheckSignals()
        return True
