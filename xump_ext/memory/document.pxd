"""Docstrings for the attributes that Cython makes of `cdef readonly`, which has no place for them."""

cdef extern from *:
    """
    #include <Python.h>

    /* `doc` must live as long as the process: a literal. */
    static int xump_document(PyObject *kind, const char *name, const char *doc) {
        PyTypeObject *type = (PyTypeObject *) kind;
        PyObject *descriptor = PyDict_GetItemString(type->tp_dict, name);
        if (descriptor == NULL || !Py_IS_TYPE(descriptor, &PyGetSetDescr_Type)) {
            PyErr_Format(PyExc_SystemError, "%s has no attribute %s to document", type->tp_name, name);
            return -1;
        }
        ((PyGetSetDescrObject *) descriptor)->d_getset->doc = doc;
        return 0;
    }
    """
    int document "xump_document"(object kind, const char* name, const char* doc) except -1
