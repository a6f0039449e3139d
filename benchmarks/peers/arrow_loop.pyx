"""The compiled loops around our Arrow reader and writer, as an engine has them."""

from libc.stdint cimport INT32_MAX
from libc.stdlib cimport free, malloc
from posix.time cimport CLOCK_MONOTONIC, clock_gettime, timespec

from xump_ext.arrow.read cimport BatchReader
from xump_ext.arrow.write cimport batch_of_rows, batch_row_t
from xump_ext.message.content cimport content_release
from xump_ext.message.headers cimport content_t

cdef enum:
    STEP = 64


cdef double now() noexcept:
    cdef timespec time
    clock_gettime(CLOCK_MONOTONIC, &time)
    return time.tv_sec * 1e9 + time.tv_nsec


def drop(BatchReader reader not None):
    """Read all rows and drop each at once, so that their memory is warm. Nanoseconds for reading, and for dropping."""
    cdef content_t* contents[STEP]
    cdef Py_ssize_t row, count = 1
    cdef double start, middle, reading = 0, dropping = 0
    while count:
        start = now()
        count = reader.fill(contents, STEP)
        middle = now()
        for row in range(count):
            content_release(contents[row])
        reading += middle - start
        dropping += now() - middle
    return reading, dropping


def keep(BatchReader reader not None):
    """Read all rows into fresh memory, then drop them all. Nanoseconds for reading, and for dropping."""
    cdef content_t** contents = <content_t**> malloc((reader.rows + 1) * sizeof(content_t*))
    cdef Py_ssize_t row, count
    cdef double start = now(), middle
    count = reader.fill(contents, reader.rows)
    middle = now()
    for row in range(count):
        content_release(contents[row])
    free(contents)
    return middle - start, now() - middle


def write(BatchReader reader not None, Py_ssize_t size, str destination not None):
    """Read batches of `size` rows and write each. Nanoseconds for writing, and the last batch."""
    cdef content_t** contents = <content_t**> malloc(size * sizeof(content_t*))
    cdef batch_row_t* rows = <batch_row_t*> malloc(size * sizeof(batch_row_t))
    cdef Py_ssize_t row, count
    cdef double start, writing = 0
    batch = None
    while True:
        count = reader.fill(contents, size)
        if count == 0:
            break
        for row in range(count):
            rows[row] = batch_row_t(contents[row], row, row, 1, <void*> destination, <void*> destination, NULL, 0, 0)
        start = now()
        batch = batch_of_rows(rows, count, INT32_MAX, False)
        writing += now() - start
        for row in range(count):
            content_release(contents[row])
    free(rows)
    free(contents)
    return writing, batch
