"""A short way into methods that are called once a message: the arguments are taken as they come, before any is given its default.

Cython gives each argument that a call leaves out a reference to its default, and takes it back at the end. That costs more than
what a call does with most of them.
"""

from cpython.object cimport PyObject

cdef extern from *:
    """
    #include <Python.h>

    typedef PyObject *(*xump_call)(PyObject *self, PyObject **args, Py_ssize_t count, PyObject *names);

    /* Has calls of the method go to `instead`; returns the way that they went before, or NULL with an error. */
    static xump_call xump_short_call(PyObject *kind, const char *name, xump_call instead) {
        PyTypeObject *type = (PyTypeObject *) kind;
        PyObject *method = PyDict_GetItemString(type->tp_dict, name);
        PyMethodDef *definition = method != NULL && Py_IS_TYPE(method, &PyMethodDescr_Type)
            ? ((PyMethodDescrObject *) method)->d_method : NULL;
        xump_call before;
        if (definition == NULL || definition->ml_flags != (METH_FASTCALL | METH_KEYWORDS)) {
            PyErr_Format(PyExc_SystemError, "%s.%s takes no arguments as they come", type->tp_name, name);
            return NULL;
        }
        before = (xump_call) (void (*)(void)) definition->ml_meth;
        definition->ml_meth = (PyCFunction) (void (*)(void)) instead;
        return before;
    }
    #define xump_count(tuple) PyTuple_GET_SIZE(tuple)
    #define xump_item(tuple, at) PyTuple_GET_ITEM(tuple, at)
    """
    # `names` are those of the keyword arguments, which follow the `count` others in `args`; NULL: there are none.
    ctypedef object (*call_t "xump_call")(object self, PyObject** args, Py_ssize_t count, PyObject* names)
    call_t short_call "xump_short_call"(object kind, const char* name, call_t instead) except NULL
    Py_ssize_t name_count "xump_count"(PyObject* names) noexcept
    PyObject* name_at "xump_item"(PyObject* names, Py_ssize_t at) noexcept
