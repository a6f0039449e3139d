"""Rewriters of dead letters: they say what a message is where it goes when it cannot be processed.

A rewriter is known by its name, which stores keep. It makes the content of a dead letter of the content of the message, in place
of the envelope that the engine writes otherwise. It may bar queues: then the dead letter begins a trip of its own, and enters
none of them in it.

A Python function that fails, or returns something else, leaves the dead letter as the engine makes it. Nothing can raise in the
middle of a run, so the error goes where errors go that nothing can raise.
"""

from xump_ext.death import Death
from xump_ext.message.content cimport content_release, content_stamped, content_undying, object_or_none
from xump_ext.message.message cimport Message, message_object

cdef extern from "Python.h":
    void PyErr_SetInterrupt()
    void PyErr_SetObject(object, object)
    void PyErr_WriteUnraisable(object)

cdef dict rewriters = {}            # by name
cdef dict stand_ins = {}


cdef class Rewriter:
    pass


cdef int rewriter_register(str name, rewriter_t compiled, object function) except -1:
    cdef Rewriter rewriter = Rewriter.__new__(Rewriter)
    rewriter.name, rewriter.compiled, rewriter.function = name, compiled, function
    rewriters[name] = rewriter
    return 0


cdef Rewriter rewriter_named(object name):
    return rewriters.get(name) or stand_ins.get(name)


def stand_in(str name not None):
    """Queues of a store that is only looked at may have a rewriter of that name, though it is not registered."""
    cdef Rewriter rewriter = Rewriter.__new__(Rewriter)
    rewriter.name = name
    stand_ins[name] = rewriter


def _register(str name not None, function):
    """Has `function` rewrite dead letters under that name."""
    rewriter_register(name, NULL, function)


def rewriter_names():
    """The names of the registered rewriters, in the order of their registration."""
    return list(rewriters)


def rewriter_function(name):
    """The Python function of a registered rewriter; None: it is compiled."""
    return (<Rewriter> rewriters[name]).function


cdef content_t* rewritten(Rewriter rewriter, content_t* content, death_t* death, list barred) except? NULL:
    death.begins = False
    if rewriter.compiled != NULL:
        return rewriter.compiled(content, death, barred)
    try:
        return rewritten_by(rewriter.function, content, death, barred)
    except KeyboardInterrupt:       # nothing can raise here: it is raised as soon as something can
        PyErr_SetInterrupt()
    except BaseException as error:
        PyErr_SetObject(type(error), error)
        PyErr_WriteUnraisable(rewriter.function)
    death.begins = False
    barred.clear()
    return NULL


cdef content_t* rewritten_by(object function, content_t* content, death_t* death, list barred) except NULL:
    cdef content_t* letter
    message = message_object(content, death.id, death.timestamp, death.hops)
    made = function(message, Death(<object> death.reason, <object> death.queue, <object> death.letters, <object> death.argument,
                                   object_or_none(death.detail), death.time))
    if isinstance(made, tuple) and len(made) == 2:
        made, names = made
        if isinstance(names, str):
            raise TypeError(f"a rewriter bars several queues, or none: return [{names!r}] for this one")
        death.begins = True
        for name in names:
            if not isinstance(name, str):
                raise TypeError(f"a rewriter bars queues by name, got {type(name).__name__}")
            barred.append(str.__str__(name))
    if not isinstance(made, Message):
        raise TypeError("a rewriter returns the Message that the dead letter is, or a tuple of it and the names of barred "
                        f"queues, got {type(made).__name__}")
    letter = content_undying((<Message> made).content)
    if content.destination == letter.destination:
        return letter
    try:                # no program can set it, and `Message.replace` leaves it out: the stamp stays, as in any dead letter
        return content_stamped(letter, object_or_none(content.destination))
    finally:
        content_release(letter)
