"""Deliveries: from the engine into the output buffer of a connection, and what becomes of them, by their delivery tags.

All that a connection consumes is offered to one outlet, whose destinations are its consumers. `Outgoing.drain` writes what is
there straight into the buffer. A delivery that this does not settle gets a slot in the book of its channel, `Unacked`: pages of
32 slots in order of delivery tags, each slot a pointer that the engine clears when it takes the message back. A page is freed
when all of its tags are settled, so one old message keeps one page.
"""

from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_GET_SIZE
from libc.stdint cimport int64_t, uint16_t, uint32_t, uint64_t, uintptr_t
from libc.stdlib cimport calloc, free

from xump_ext.amqp.decoder cimport ROW_ACK, ROW_REJECT, Decoder, Row
from xump_ext.amqp.envelope cimport Envelope, envelope_in
from xump_ext.amqp.wire cimport short_bytes
from xump_ext.engine.delivery cimport Delivery, delivery_to_settle, is_redelivered
from xump_ext.engine.outlet cimport forget_slot, give_back_slot, pay_slot, refuse_slot
from xump_ext.errors import StoreFull
from xump_ext.message.headers cimport annex_of, annex_t, headers_of
from xump_ext.message.message cimport message_object
from xump_ext.route.offering cimport PAID, in_hands
from xump_ext.route.routing cimport go_on
from xump_ext.state.graph cimport engine_t, store_t
from xump_ext.state.lazy_content cimport content_at

cdef extern from "Python.h":
    const char *PyUnicode_AsUTF8AndSize(object text, Py_ssize_t *size) except NULL


cdef class Unacked:
    """Messages that a channel has sent and the client has not settled, by delivery tag."""

    def __cinit__(self, EngineLock engine not None):
        self.core = engine
        self.pages = {}

    def __dealloc__(self):
        cdef tags_t *page = self.head
        cdef tags_t *next
        cdef uint32_t at
        while page != NULL:
            next = page.next
            for at in range(PAGE_TAGS):
                forget_slot(&page.slots[at])
            free(page)
            page = next

    def __len__(self):
        return self.count

    def next_tag(self):
        """The next delivery tag, of something that is settled already."""
        self.last_tag += 1
        return self.last_tag

    def keep(self, Delivery delivery not None, double now):
        """Give a delivery, which was taken by hand, the next tag. The book has it from then on. A stale one stays so."""
        cdef entry_t **slot = self.slot_next(now)
        slot[0] = delivery.entry
        if in_hands(delivery.entry):
            delivery.entry.below.delivery = slot
        delivery.entry = NULL
        return self.last_tag

    def oldest(self):
        """When the oldest message was sent that is not settled, by the clock of the loop; None: there is none."""
        cdef uint64_t tag = self.first_tag()
        return self.page_of(tag).sent[tag % PAGE_TAGS] if tag else None

    cdef entry_t **slot_next(self, double now) except NULL:
        """The slot of the next delivery tag."""
        cdef uint64_t tag = self.last_tag + 1
        cdef tags_t *page = self.tail
        if page == NULL or page.number != tag // PAGE_TAGS:
            page = <tags_t *> calloc(1, sizeof(tags_t))
            if page == NULL:
                raise MemoryError()
            page.number = tag // PAGE_TAGS
            try:
                self.pages[page.number] = <uintptr_t> page
            except BaseException:
                free(page)
                raise
            page.previous = self.tail
            if self.tail == NULL:
                self.head = page
            else:
                self.tail.next = page
            self.tail = page
        self.last_tag = tag
        self.count += 1
        page.used |= <uint32_t> 1 << tag % PAGE_TAGS
        page.sent[tag % PAGE_TAGS] = <uint32_t> now + 1        # in whole seconds, never too early
        return &page.slots[tag % PAGE_TAGS]

    cdef tags_t *page_of(self, uint64_t tag) except? NULL:
        """The page that has the tag, if it is not settled; or NULL."""
        cdef tags_t *page = self.last
        if page == NULL or page.number != tag // PAGE_TAGS:
            found = self.pages.get(tag // PAGE_TAGS)
            if found is None:
                return NULL
            page = self.last = <tags_t *> <uintptr_t> found
        return page if page.used >> tag % PAGE_TAGS & 1 else NULL

    cdef int settle_tag(self, tags_t *page, uint32_t at, int kind, bint requeue) except -1:
        """Settle the message in a slot. A stale one, whose queue was deleted, is only forgotten."""
        cdef entry_t **slot = &page.slots[at]
        if slot[0] != NULL and slot[0] != PAID:
            if kind == ROW_ACK:
                pay_slot(self.core, slot)
            elif requeue:
                give_back_slot(self.core, slot)
            else:
                refuse_slot(self.core, slot)
            forget_slot(slot)
        page.used &= ~(<uint32_t> 1 << at)      # only now: a dead letter whose body cannot be read leaves the tag as it was
        self.count -= 1
        return 0

    cdef int page_left(self, tags_t *page) except -1:
        """Free the page if all of its tags are settled; the last one goes on if it has tags to give."""
        if page.used or (page == self.tail and self.last_tag % PAGE_TAGS != PAGE_TAGS - 1):
            return 0
        if self.last == page:
            self.last = NULL
        del self.pages[page.number]
        if page.previous == NULL:
            self.head = page.next
        else:
            page.previous.next = page.next
        if page.next == NULL:
            self.tail = page.previous
        else:
            page.next.previous = page.previous
        free(page)
        return 0

    cdef bint is_known(self, uint64_t tag, bint multiple) except -1:
        """Whether there is something that a row may settle."""
        if not multiple:
            return tag != 0 and self.page_of(tag) != NULL
        if tag == 0:
            return True
        return tag <= self.last_tag and self.count != 0 and self.first_tag() <= tag

    cdef uint64_t first_tag(self) noexcept:
        """The lowest tag that is not settled; 0: there is none."""
        cdef tags_t *page = self.head
        cdef uint32_t at
        while page != NULL:
            for at in range(PAGE_TAGS):
                if page.used >> at & 1:
                    return page.number * PAGE_TAGS + at
            page = page.next
        return 0

    cdef int settle_row(self, int kind, uint64_t tag, bint multiple, bint requeue) except -1:
        cdef tags_t *page
        cdef tags_t *next
        cdef uint32_t at
        if not multiple:
            page = self.page_of(tag)
            self.settle_tag(page, tag % PAGE_TAGS, kind, requeue)
            return self.page_left(page)
        page = self.head
        while page != NULL and (tag == 0 or page.number <= tag // PAGE_TAGS):
            next = page.next
            for at in range(PAGE_TAGS):
                if page.used >> at & 1 and (tag == 0 or page.number * PAGE_TAGS + at <= tag):
                    self.settle_tag(page, at, kind, requeue)
            self.page_left(page)
            page = next
        return 0

    cdef int settle_in_room(self, int kind, uint64_t tag, bint multiple, bint requeue) except -1:
        """`settle_row`; a store that has no room for a dead letter makes some, and the row goes on."""
        cdef uint64_t tried = self.count + 1
        while True:
            try:
                return self.settle_row(kind, tag, multiple, requeue)
            except StoreFull:
                if self.count == tried or not self.make_room():
                    raise
                tried = self.count

    cdef bint make_room(self) except -1:
        """Let the store make room. All that was settled so far is a call of its own; the engine is left meanwhile."""
        cdef engine_t *engine = &self.core.e
        cdef store_t *store = engine.wanting
        cdef int64_t wanted = engine.wanted
        go_on(engine)
        engine.wanting, engine.wanted = store, wanted
        return self.core.make_room_for_letters()

    def settle(self, Decoder decoder not None, uint64_t first, uint64_t end):
        """Carry out rows of a decoder, in one call of the engine: acks, nacks and rejects.

        Returns:
            The place of the first row that names an unknown tag, or None. Those before it are carried out.

        Raises:
            StoreFull: A store has no room for a dead letter. The rows before `reached` are carried out, and that row is as far
                as there was room; it may be carried out again.
        """
        cdef Row *row
        cdef uint64_t at
        self.core.begin_call()
        try:
            for at in range(first, end):
                row = &decoder._rows[at]
                if not self.is_known(row.tag, row.bits & 1 and row.kind != ROW_REJECT):
                    return at
                self.reached = at
                self.settle_in_room(row.kind, row.tag, row.bits & 1 and row.kind != ROW_REJECT, requeues(row))
            return None
        finally:
            self.end()

    def knows(self, uint64_t tag, bint multiple):
        """Whether there is something that ack, nack or reject with these arguments may settle."""
        return self.is_known(tag, multiple)

    def tags(self, uint64_t upto):
        """The tags that are not settled, in order, up to this one; 0: all."""
        cdef tags_t *page = self.head
        cdef uint32_t at
        cdef list found = []
        while page != NULL:
            for at in range(PAGE_TAGS):
                if page.used >> at & 1 and (upto == 0 or page.number * PAGE_TAGS + at <= upto):
                    found.append(page.number * PAGE_TAGS + at)
            page = page.next
        return found

    def settle_all(self, list rows not None):
        """The same for rows that were kept: (kind, tag, multiple, requeue) each. The first one that is unknown, or None."""
        cdef uint64_t at
        self.core.begin_call()
        try:
            for at in range(len(rows)):
                kind, tag, multiple, requeue = rows[at]
                if not self.is_known(tag, multiple):
                    return rows[at]
                self.reached = at
                self.settle_in_room(kind, tag, multiple, requeue)
            return None
        finally:
            self.end()

    def lend(self, list tags not None):
        """Deliveries of these tags, for a transaction, without the messages; `take_back` ends that. Tags of a deleted queue are
        left out.

        Returns:
            (tag, delivery) each.
        """
        cdef list lent = []
        cdef Delivery delivery
        cdef entry_t **slot
        cdef uint64_t tag
        self.core.begin_call()
        try:
            for tag in tags:
                slot = &self.page_of(tag).slots[tag % PAGE_TAGS]
                if in_hands(slot[0]):
                    delivery = delivery_to_settle(self.core, slot[0])
                    hand_on(slot, &delivery.entry)
                    lent.append((tag, delivery))
        except BaseException:
            self.return_all(lent)
            raise
        finally:
            self.core.unlock()
        return lent

    def take_back(self, list lent not None):
        """The transaction has ended: the book has again what `lend` gave, settled or not."""
        self.core.begin_call()
        try:
            self.return_all(lent)
        finally:
            self.core.unlock()

    cdef int return_all(self, list lent) except -1:
        cdef uint64_t tag
        cdef Delivery delivery
        for tag, delivery in lent:
            hand_on(&delivery.entry, &self.page_of(tag).slots[tag % PAGE_TAGS])
        return 0

    cdef int end(self) except -1:
        """The end of a call that has settled."""
        try:
            go_on(&self.core.e)
        finally:
            self.core.unlock()
        return 0


cdef inline void hand_on(entry_t **slot, entry_t **other) noexcept:
    """Another slot remembers an entry instead of this one."""
    other[0] = slot[0]
    slot[0] = NULL
    if in_hands(other[0]):
        other[0].below.delivery = other


cdef inline bint requeues(const Row *row) noexcept:
    return row.bits & (1 if row.kind == ROW_REJECT else 2) != 0


cdef class Subscription:
    """A consumer, as deliveries to it need it."""

    def __cinit__(self, uint16_t channel, bytes tag not None, bint no_ack, bint counts, Unacked unacked not None):
        """`counts`: what comes again says how often it came."""
        self.channel = channel
        self.tag = tag
        self.no_ack = no_ack
        self.counts = counts
        self.unacked = unacked


cdef class Outgoing:
    """The deliveries of a connection.

    `others(message, delivery_count)` gives exchange, properties of a message that did not come by AMQP, or with a header
    `x-delivery-count` if the count is not 0.
    """

    def __cinit__(self, Outlet outlet not None, Output output not None, others):
        self.outlet = outlet
        self.output = output
        self.others = others
        self.subscriptions = {}

    def add(self, str destination not None, Subscription subscription not None):
        """A consumer, and the destination to which its selector delivers."""
        self.subscriptions[destination] = subscription
        self.outlet.add(destination)

    def remove(self, str destination not None):
        """The consumer has gone."""
        if self.subscriptions.pop(destination, None) is not None and not self.outlet.engine.closed:
            self.outlet.discard(destination)

    def close(self):
        """Nothing more is written."""
        self.subscriptions.clear()
        self.outlet.close()

    def drain(self, uint64_t bytes_max, double now):
        """Write what is offered, until the buffer has `bytes_max` bytes.

        Returns:
            Whether there may be more.
        """
        cdef entry_t *entry
        while self.output.size() < bytes_max:
            self.outlet.begin()
            try:
                while self.output.size() < bytes_max:
                    entry = self.outlet.next()
                    if entry == NULL:
                        break
                    self.outlet.turn = 0        # one of each consumer in turn, in the order in which RabbitMQ sends them
                    self.send(<Subscription> self.subscriptions[<object> entry.below.offer.destination.name], entry, now)
            finally:
                self.outlet.end()               # its run may offer more
            if self.outlet.o.quiet:
                return False
        return True

    cdef int send(self, Subscription to, entry_t *entry, double now) except -1:
        """Write a message, and take it. If it cannot be written, nothing has changed."""
        cdef content_t *content = content_at(entry)
        cdef (uint64_t, uint64_t, Py_ssize_t) mark = self.output.mark()
        cdef entry_t **slot
        try:
            self.write(to, entry, content, to.unacked.last_tag + 1, is_redelivered(entry))
        except BaseException:
            self.output.back_to(mark)
            raise
        if to.no_ack:
            to.unacked.last_tag += 1
            return self.outlet.settle_entry(entry)
        slot = to.unacked.slot_next(now)
        return self.outlet.take_entry(entry, slot)

    cdef int write(self, Subscription to, entry_t *entry, content_t *content, uint64_t tag, bint redelivered) except -1:
        cdef annex_t *annex = annex_of(content)
        cdef Envelope envelope
        cdef Py_ssize_t key_bytes
        cdef const char *key = PyUnicode_AsUTF8AndSize(<object> content.address, &key_bytes)
        cdef const char *body
        cdef bytes exchange, properties
        cdef uint32_t count = entry.delivery_count if to.counts else 0
        key_bytes = short_bytes(key, key_bytes)
        if content.body == NULL:
            whole, body = None, headers_of(content) + content.header_bytes
        else:
            whole, body = <object> content.body, PyBytes_AS_STRING(<object> content.body)
        if count or not envelope_in(annex, &envelope):
            exchange, properties = self.others(message_object(content, entry.id, entry.timestamp, entry.hops), count)
            envelope.exchange = <const unsigned char *> PyBytes_AS_STRING(exchange)
            envelope.exchange_bytes = <unsigned char> PyBytes_GET_SIZE(exchange)
            envelope.list = <const unsigned char *> PyBytes_AS_STRING(properties)
            envelope.list_bytes = <uint32_t> PyBytes_GET_SIZE(properties)
        return self.output.put_deliver(
            to.channel, to.tag, tag, redelivered, &envelope, key, <uint32_t> key_bytes, <const unsigned char *> body,
            content.body_bytes, whole)
