"""`publish_rows` for tests, called as a face calls it. Compiled by the tests; nothing here is shipped."""

from cpython.object cimport PyObject
from libc.stdlib cimport calloc, free
from libc.string cimport memset

from xump_ext.engine.publish cimport EnginePublish
from xump_ext.engine.rows cimport publish_rows, row_begin, row_join, row_t


def publish(EnginePublish engine, list given):
    """Rows of (queue, address, body, {"annex": (kind, bytes), "priority": ..., "ttl": ns}), or of (queue,), which joins the one
    before. Returns what the call returned, and (id, copies, refused, flags) of each row. All buffers are overwritten after it."""
    cdef row_t* rows = <row_t*> calloc(len(given) + 1, sizeof(row_t))
    cdef int i
    cdef list buffers = []
    cdef bytearray buffer, annex
    try:
        for i, (queue, *rest) in enumerate(given):
            if not rest:
                row_join(&rows[i], <PyObject*> queue)
                continue
            address, body, terms = rest
            buffer = bytearray(body)
            buffers.append(buffer)
            row_begin(&rows[i], <PyObject*> queue, <PyObject*> address, <const char*> buffer, len(body))
            if "annex" in terms:
                annex = bytearray(terms["annex"][1])
                buffers.append(annex)
                rows[i].annex_kind, rows[i].annex, rows[i].annex_bytes = terms["annex"][0], <const char*> annex, len(annex)
            rows[i].priority = terms.get("priority", 0)
            if "ttl" in terms:
                rows[i].ttl = terms["ttl"]
        done = publish_rows(engine, rows, len(given))
        for one in buffers:
            memset(<char*> <bytearray> one, 0xFF, len(one))
        return done, [
            (rows[i].tally.id, rows[i].tally.copies, rows[i].tally.refused, rows[i].tally.flags) for i in range(len(given))]
    finally:
        free(rows)
