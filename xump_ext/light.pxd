"""Objects that are made and thrown away for every message, without what Cython adds for the general case.

A light type keeps the objects that died in a pool and hands them out again with their memory as it is; its destructor does not
save and restore the error indicator, which costs more than the rest. Attributes that are read for every message are
offered as members: the interpreter reads those in place, without calling anything.
"""

from cpython.object cimport PyObject

cdef extern from *:
    """
    #include <Python.h>
    #include <stdint.h>
    #include <string.h>
    #include <structmember.h>

    #define XUMP_POOL_SIZE 1024

    typedef struct {
        int count;
        PyObject *spare[XUMP_POOL_SIZE];
    } xump_pool;

    static inline PyObject *xump_pool_get(xump_pool *pool) {
        PyObject *object;
        if (pool->count == 0) return NULL;
        object = pool->spare[--pool->count];
        Py_SET_REFCNT(object, 1);
        return object;
    }

    /* An object that was cleaned, without touching its counter: it has no reference any more. */
    static inline void xump_pool_put(xump_pool *pool, PyObject *object) {
        if (pool->count < XUMP_POOL_SIZE) pool->spare[pool->count++] = object;
        else Py_TYPE(object)->tp_free(object);
    }

    /* A copy of a few bytes, which is what most headers have, without a call. */
    static inline void xump_copy(char *to, const void *bytes, size_t size) {
        const char *from = (const char *) bytes;
        if (size > 16) memcpy(to, from, size);
        else if (size >= 8) { uint64_t a, b; memcpy(&a, from, 8); memcpy(&b, from + size - 8, 8);
                              memcpy(to, &a, 8); memcpy(to + size - 8, &b, 8); }
        else if (size >= 4) { uint32_t a, b; memcpy(&a, from, 4); memcpy(&b, from + size - 4, 4);
                              memcpy(to, &a, 4); memcpy(to + size - 4, &b, 4); }
        else if (size) { to[0] = from[0]; if (size > 1) { to[1] = from[1]; to[size - 1] = from[size - 1]; } }
    }

    /* Replaces the attribute by a member at this offset of the object. */
    static int xump_member(PyTypeObject *type, PyMemberDef *member, const char *name, size_t offset, const char *doc) {
        PyObject *descriptor;
        int failed;
        member->name = name;
        member->type = T_OBJECT_EX;
        member->offset = (Py_ssize_t) offset;
        member->flags = READONLY;
        member->doc = doc;
        descriptor = PyDescr_NewMember(type, member);
        if (descriptor == NULL) return -1;
        failed = PyDict_SetItemString(type->tp_dict, name, descriptor);
        Py_DECREF(descriptor);
        PyType_Modified(type);
        return failed;
    }
    """
    const int XUMP_POOL_SIZE
    ctypedef struct xump_pool:
        int count
    ctypedef struct PyTypeObject:
        void (*tp_dealloc)(PyObject*) noexcept
    ctypedef struct PyMemberDef:
        pass
    PyObject* xump_pool_get(xump_pool* pool) noexcept
    void xump_pool_put(xump_pool* pool, PyObject* object) noexcept
    void xump_copy(char* to, const void* from_, size_t size) noexcept nogil
    int xump_member(PyTypeObject* type, PyMemberDef* member, const char* name, size_t offset, const char* doc) except -1
