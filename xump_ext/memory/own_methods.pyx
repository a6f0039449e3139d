"""A class owns the compiled methods that it inherits, so that a call need not look for their class.

A compiled method checks at each call that its `self` is of the class where it stands. Python compares the two classes, and if
they differ it walks the bases of the first: 5 instructions for each base, 60 a call for the lowest of twelve.
"""

from types import MethodDescriptorType

cdef extern from *:
    """
    #include <Python.h>

    static PyObject *xump_owned(PyObject *kind, PyObject *method) {
        return PyDescr_NewMethod((PyTypeObject *) kind, ((PyMethodDescrObject *) method)->d_method);
    }
    """
    object owned "xump_owned"(object kind, object method)       # a descriptor of the same function in this class


def own_methods(type kind):
    """Have a class own the compiled methods of its bases, but for special ones (`__len__`) and those that are overridden."""
    cdef dict found = {}
    for base in kind.__mro__[:-1]:      # without `object`
        found = dict(base.__dict__) | found
    for name, method in found.items():
        if type(method) is MethodDescriptorType and name not in kind.__dict__ and not name.startswith("__"):
            setattr(kind, name, owned(kind, method))
