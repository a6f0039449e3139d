"""A sealed group: the records that one write makes durable, all of them or none.

Sealing merges the ends (SETTLE records) into runs of ids. The CRCs are left to the thread that writes the group.
"""

from cpython.buffer cimport PyBuffer_FillInfo
from libc.stdint cimport int64_t, uint32_t, uint64_t
from libc.stdlib cimport free, malloc, qsort
from libc.string cimport memmove

from xump_ext.log.writer cimport records_lost
from xump_ext.records.crc cimport crc32c
from xump_ext.records.kinds cimport ENTER, GROUP, MAGIC, SETTLE, enter_record_t, group_record_t, head_t, settle_record_t
from xump_ext.records.record cimport head_bytes, head_crc


cdef class Group:
    def __cinit__(self):
        self.data = NULL

    def __dealloc__(self):
        free(self.data)

    def __getbuffer__(self, Py_buffer* buffer, int flags):
        PyBuffer_FillInfo(buffer, self, self.data, self.size, 1, flags)

    def __len__(self):
        return self.size

    def finish(self):
        """Fill in the GROUP record and all CRCs. The thread that writes the group calls this, without the engine lock."""
        cdef uint64_t at = 0
        cdef head_t* head
        cdef group_record_t* group = <group_record_t*> self.data
        cdef uint32_t fixed
        if self.finished or self.data == NULL:
            return
        with nogil:
            group.head.magic = MAGIC
            group.head.kind = GROUP
            group.head.flags = 0
            group.head.length = sizeof(group_record_t)
            group.head.queue = 0
            group.head.position = self.position
            group.head.id = self.number
            group.count = self.records
            group.bytes = self.size
            group.synced = self.synced
            while at < self.size:
                head = <head_t*> (self.data + at)
                if head.kind == ENTER:
                    fixed = head_bytes(head)
                    (<enter_record_t*> head).payload_crc = crc32c(self.salt, self.data + at + fixed, head.length - fixed)
                head.crc = head_crc(head, self.salt)
                at += head.length
        self.finished = True


cdef int by_run(const void* a, const void* b) noexcept nogil:
    """Orders records by queue, flags and id."""
    cdef const settle_record_t* x = <const settle_record_t*> a
    cdef const settle_record_t* y = <const settle_record_t*> b
    if x.head.queue != y.head.queue:
        return 1 if x.head.queue > y.head.queue else -1
    if x.head.flags != y.head.flags:
        return 1 if x.head.flags > y.head.flags else -1
    return (x.head.id > y.head.id) - (x.head.id < y.head.id)


cdef int merge_ends(store_t* store) except -1:
    """Sort the ends of the open group and merge them into runs of ids, so that an ack of a million messages takes little space.

    Ends count after all else in their group. Here they go to its end; the other records move up, and get their new positions. A
    store may free the first records of a group before the others, so no end may stand before the message that it ends.
    """
    cdef settle_record_t* ends = <settle_record_t*> malloc(store.ends * sizeof(settle_record_t))
    cdef settle_record_t* run
    cdef head_t* head
    cdef uint64_t at = sizeof(group_record_t), end = at, count = 0, length, i
    if ends == NULL:
        records_lost(store)
        return 0
    while at < store.size:
        head = <head_t*> (store.data + at)
        length = head.length
        if head.kind == SETTLE:
            ends[count] = (<settle_record_t*> head)[0]
            count += 1
        else:
            memmove(store.data + end, head, length)
            (<head_t*> (store.data + end)).position = store.position + end
            end += length
        at += length
    store.records -= count
    qsort(ends, count, sizeof(settle_record_t), by_run)
    run = NULL
    for i in range(count):
        if run != NULL and run.head.queue == ends[i].head.queue and run.head.flags == ends[i].head.flags and (
                run.head.id + run.count == ends[i].head.id):
            run.count += ends[i].count
            continue
        run = <settle_record_t*> (store.data + end)
        run[0] = ends[i]
        run.head.position = store.position + end
        end += sizeof(settle_record_t)
        store.records += 1
    store.room += <int64_t> (store.size - end)
    store.size = end
    free(ends)
    return 0
