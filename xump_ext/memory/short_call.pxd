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

    typedef PyObject *(*xump_making)(PyObject *kind, PyObject **args, size_t count, PyObject *names);

    /* Makes an object of the type by its `__new__` and `__init__`. */
    static PyObject *xump_make(PyObject *kind, PyObject **args, size_t count, PyObject *names) {
        Py_ssize_t given = PyVectorcall_NARGS(count), at;
        PyObject *tuple = PyTuple_New(given), *keywords = names == NULL ? NULL : PyDict_New(), *made = NULL;
        int failed = tuple == NULL || (names != NULL && keywords == NULL);
        for (at = 0; at < given && !failed; at++) PyTuple_SET_ITEM(tuple, at, Py_NewRef(args[at]));
        for (at = 0; names != NULL && at < PyTuple_GET_SIZE(names) && !failed; at++)
            failed = PyDict_SetItem(keywords, PyTuple_GET_ITEM(names, at), args[given + at]);
        if (!failed) made = PyType_Type.tp_call(kind, tuple, keywords);
        Py_XDECREF(tuple);
        Py_XDECREF(keywords);
        return made;
    }

    /* Has calls of the type go to `instead`; returns the way that they went before. */
    static xump_making xump_short_making(PyObject *kind, xump_making instead) {
        PyTypeObject *type = (PyTypeObject *) kind;
        xump_making before = type->tp_vectorcall == NULL ? xump_make : (xump_making) (void (*)(void)) type->tp_vectorcall;
        type->tp_vectorcall = (vectorcallfunc) (void (*)(void)) instead;
        return before;
    }
    #define xump_given(count) PyVectorcall_NARGS(count)
    #define xump_count(tuple) PyTuple_GET_SIZE(tuple)
    #define xump_item(tuple, at) PyTuple_GET_ITEM(tuple, at)
    """
    # `names` are those of the keyword arguments, which follow the `count` others in `args`; NULL: there are none.
    ctypedef object (*call_t "xump_call")(object self, PyObject** args, Py_ssize_t count, PyObject* names)
    call_t short_call "xump_short_call"(object kind, const char* name, call_t instead) except NULL
    # The same of a type that is called. `count` has a flag besides, as in all calls of this kind: see `args_given`.
    ctypedef object (*making_t "xump_making")(object kind, PyObject** args, size_t count, PyObject* names)
    making_t short_making "xump_short_making"(object kind, making_t instead) noexcept
    Py_ssize_t args_given "xump_given"(size_t count) noexcept
    Py_ssize_t name_count "xump_count"(PyObject* names) noexcept
    PyObject* name_at "xump_item"(PyObject* names, Py_ssize_t at) noexcept
