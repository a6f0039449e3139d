"""Rewriters of dead letters: what a compiled one is given, and how it is registered and called.

    from xump_ext.message.rewriter cimport death_t, rewriter_register

    cdef content_t* rewrite(content_t* content, death_t* death, list barred) except NULL:
        death.begins = True
        barred.append("jobs")
        return content_share(content)

    rewriter_register("plain", rewrite, None)
"""

from libc.stdint cimport int64_t, uint32_t, uint64_t

from xump_ext.message.headers cimport content_t

cdef struct death_t:
    # borrowed; each a str
    void* reason
    void* queue
    void* letters           # the name of the queue that it goes to
    void* argument
    void* detail            # or NULL
    int64_t time
    # of the message where it died; 0: it had not entered
    uint64_t id
    int64_t timestamp
    uint32_t hops
    # what the rewriter says: the dead letter begins a trip of its own, in which it does not enter the barred queues
    bint begins

# Returns a new reference to the content of the dead letter, and adds names of queues to `barred`.
ctypedef content_t* (*rewriter_t)(content_t* content, death_t* death, list barred) except NULL

cdef class Rewriter:
    cdef readonly str name
    cdef rewriter_t compiled        # NULL: there is none
    cdef object function            # or None

# Has dead letters rewritten under that name by this function, or by a Python function if it is NULL.
cdef int rewriter_register(str name, rewriter_t compiled, object function) except -1
# The rewriter of that name, or None.
cdef Rewriter rewriter_named(object name)
# The content of the dead letter, a new reference; NULL without an error: the rewriter has failed, and said so.
cdef content_t* rewritten(Rewriter rewriter, content_t* content, death_t* death, list barred) except? NULL
