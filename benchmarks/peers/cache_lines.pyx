"""What memory costs by itself: entries and extras of the core lie anywhere, and are touched where what falls due touches them."""

from cpython.array cimport array
from libc.stdlib cimport calloc, free
from posix.time cimport CLOCK_THREAD_CPUTIME_ID, clock_gettime, timespec

from xump_ext.memory.prefetch cimport prefetch
from xump_ext.memory.slab cimport cell_get, cell_put
from xump_ext.state.graph cimport entry_t, extra_t


cdef double now() noexcept:
    cdef timespec time
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &time)
    return time.tv_sec * 1e9 + time.tv_nsec


cdef inline void fetch(char** cells, Py_ssize_t place) noexcept:
    prefetch(cells[2 * place])
    prefetch(cells[2 * place] + sizeof(entry_t) - 1)
    prefetch(cells[2 * place + 1])


def touched(array order, Py_ssize_t ahead):
    """Nanoseconds a place: the first and the last byte of an entry, and the first of its extra, are changed, in this order of the
    places; memory is fetched so many places ahead."""
    cdef long long[:] places = order
    cdef Py_ssize_t count = len(order), i
    cdef char** cells = <char**> calloc(2 * count, sizeof(char*))
    cdef double began, ended
    if cells == NULL:
        raise MemoryError()
    for i in range(count):
        cells[2 * i] = <char*> cell_get(sizeof(entry_t))
        cells[2 * i + 1] = <char*> cell_get(sizeof(extra_t))
        cells[2 * i][0] = cells[2 * i][sizeof(entry_t) - 1] = cells[2 * i + 1][0] = 0
    began = now()
    for i in range(count):
        if i + ahead < count:
            fetch(cells, places[i + ahead])
        cells[2 * places[i]][0] += 1
        cells[2 * places[i]][sizeof(entry_t) - 1] += 1
        cells[2 * places[i] + 1][0] += 1
    ended = now()
    for i in range(count):
        cell_put(cells[2 * i], sizeof(entry_t))
        cell_put(cells[2 * i + 1], sizeof(extra_t))
    free(cells)
    return (ended - began) / count
