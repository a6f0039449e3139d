"""Room for dead letters: a message is not lost because its store is full when it is refused, or when its time is over.

In a store, a dead letter is a new record, and the room of the message that ended comes back when the log is cleaned. So many of
them may need more room than there is for the moment:

    an answer      raises StoreFull and changes nothing, if its store could not make room meanwhile (`engine.wanting`)
    an expiry      has the message wait, delayed, until there is room (`due.pyx`)

Where the dead letter goes through a transit queue, the store is asked in which the message ends. A store that has failed is not
asked: there the message ends in memory only.
"""

from libc.stdint cimport uintptr_t

from xump_ext.errors import StoreFull
from xump_ext.log.journal cimport Journal
from xump_ext.log.owners cimport store_behind
from xump_ext.log.room cimport COMES_IN, ENDS, letter_bytes, letters_promise, letters_want, store_takes_letters, way_from
from xump_ext.route.letters cimport dead_letter_of
from xump_ext.route.settling cimport ends_fresh, hops_of
from xump_ext.state.constants cimport REASON_EXPIRED, REASON_REJECTED
from xump_ext.state.graph cimport queue_t
from xump_ext.state.lazy_content cimport content_at
from xump_ext.state.limits cimport drops


cdef bint letter_fits(engine_t* engine, entry_t* entry, int reason) except -1:
    cdef int way = ENDS
    cdef bint passes_on = False
    cdef int64_t bytes
    cdef store_t* store = letter_store(engine, entry, reason, &way, &passes_on)
    if store == NULL:
        return True
    bytes = letter_bytes(content_at(entry))
    if store_takes_letters(store, bytes, bytes, way):
        if passes_on:
            letters_promise(store, bytes)
        return True
    engine.wanting, engine.wanted = store, letters_want(store, bytes, bytes, way)
    return False


cdef int letter_room(engine_t* engine, entry_t* entry) except -1:
    if not letter_fits(engine, entry, REASON_REJECTED):
        raise no_room_for_letters(engine.wanting)
    return 0


cdef store_t* letter_store(engine_t* engine, entry_t* entry, int reason, int* way, bint* passes_on) except? NULL:
    """The store that has to have room for the dead letter of an entry; NULL: none has. `way`: gets how far the message is on
    its way there. `passes_on`: whether a transit queue copies it, in the run that is still to come."""
    cdef queue_t* namer
    cdef store_t* behind
    cdef store_t* store
    cdef queue_t* letters
    if engine.store_count == 0:
        return NULL
    letters = dead_letter_of(engine, entry, &namer)
    if letters == NULL or not (letters.durable or letters.transit) or ends_fresh(engine, entry, reason) or (
            letters.durable and letters.ready >= letters.limit and not drops(letters)) or (
            reason == REASON_EXPIRED and hops_of(engine, entry) >= engine.hop_limit):
        return NULL             # it goes nowhere, or its queue's limit decides
    behind = store_behind(entry)
    store = letters.store if letters.durable else behind
    if store == NULL or store.failed or store.leaving_engine:
        return NULL
    way[0] = way_from(store, behind, ENDS)
    passes_on[0] = letters.transit
    return store


cdef object no_room_for_letters(store_t* store):
    return StoreFull(f"store {(<Journal> store.handle).name!r} has no room for the dead letters that this makes: {store.room} "
                     "bytes are left; answer fewer messages at once, take messages out, or allow it more bytes")


cdef class LetterRoom:
    cdef int add(self, engine_t* engine, entry_t* entry, int reason) except -1:
        cdef int way = ENDS
        cdef bint passes_on
        cdef store_t* store = letter_store(engine, entry, reason, &way, &passes_on)
        return 0 if store == NULL else self.count(store, letter_bytes(content_at(entry)), way)

    cdef int add_message(self, store_t* store, int64_t bytes) except -1:
        return self.count(store, bytes, COMES_IN)

    cdef int count(self, store_t* store, int64_t bytes, int way) except -1:
        if self.needs is None:
            self.needs = {}
        all, largest, most = self.needs.get(<uintptr_t> store, (0, 0, ENDS))
        self.needs[<uintptr_t> store] = all + bytes, max(largest, bytes), min(most, way)
        return 0

    cdef int check(self, engine_t* engine) except -1:
        cdef store_t* store
        if self.needs is None:
            return 0
        for address, (bytes, largest, way) in self.needs.items():
            store = <store_t*> <uintptr_t> address
            if not store_takes_letters(store, bytes, largest, way):
                engine.wanting, engine.wanted = store, letters_want(store, bytes, largest, way)
                raise no_room_for_letters(store)
        return 0
