"""Free lists for Python objects that are made and thrown away once per message.

A type with a free list keeps its dead objects and hands them out again with their memory as it is. Its destructor does not save
and restore the error indicator, as Cython's does: that costs more than the rest. Attributes that are read for every message
become members, which the interpreter reads in place, without a call.
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
    int xump_member(PyTypeObject* type, PyMemberDef* member, const char* name, size_t offset, const char* doc) except -1
