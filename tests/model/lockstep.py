"""Two engines side by side, the compiled one and the model: every call goes to both, and all that can be seen is compared.

A `World` knows nothing of Hypothesis: `test_state_machine.py` and the soak choose the calls. Calls take small plain values, so
that a failure prints as a program that can be read and run again; `shrink.py` makes it a small one. `pair.py` makes a call on
both and compares.
"""

import xump
from tests.model import shrink
from tests.model.pair import Pair, recorded
from tests.model.publishing import fresh, terms_of
from tests.model.seen import delivery_seen, message_seen, parts_of, plain, row_seen, rows_seen, table_of


KIND = 999


def annexed(n, to):
    return b"%d %s" % (n, to.encode())


def read_annex(data):
    """The reader of such annexes."""
    n, _, to = data.decode().partition(" ")
    return {"n": int(n), "to": to} if to else {"n": int(n)}


xump.register_annex(KIND, "of the model", read_annex)


class World(Pair):
    """The pair, and every call on it. Where a call is told what a message says of time and order, `terms` are keywords of
    `publish`; durations are seconds, moments are ns."""

    # ---- the graph

    @recorded
    def create_queue(self, name, limit, history_limit, auto_delete, dead_letter, delivery_limit, store="ram", **terms):
        self.same(
            lambda engine, side: engine.create_queue(
                name, store=store, limit=limit, history_limit=history_limit, auto_delete=auto_delete, dead_letter=dead_letter,
                delivery_limit=delivery_limit, **terms).name,
            f"create_queue({name!r}, {limit}, {history_limit}, {auto_delete}, {dead_letter!r}, {delivery_limit}, {store!r}, "
            f"**{terms})")

    @recorded
    def create_selector(self, source, when, do, credit, enabled, start, name, ack_timeout=None, **terms):
        self.same(
            lambda engine, side: engine.create_selector(
                source, when=when, do=do, credit=credit, enabled=enabled, start=start, name=name, ack_timeout=ack_timeout,
                **terms).id,
            f"create_selector({source!r}, when={when!r}, do={do!r}, credit={credit}, enabled={enabled}, start={start!r}, "
            f"name={name!r}, ack_timeout={ack_timeout}, **{terms})",
            any_error=True)

    @recorded
    def create_window(self, name, credit):
        self.same(lambda engine, side: engine.create_window(credit, name=name).name, f"create_window({name!r}, {credit})")

    @recorded
    def on_window(self, name, verb, *args):
        """`resize` or `delete`."""
        self.same(lambda engine, side: engine.delete_window(name) if verb == "delete" else engine.windows[name].resize(*args),
                  f"on_window({name!r}, {verb!r}, {args})")

    @recorded
    def delete_queue(self, name):
        self.same(lambda engine, side: engine.delete_queue(name), f"delete_queue({name!r})")

    @recorded
    def delete_selector(self, id, recall=True):
        self.same(lambda engine, side: engine.delete_selector(id, recall=recall), f"delete_selector({id}, {recall})")

    @recorded
    def on_selector(self, id, verb, *args):
        self.both(lambda engine, side: getattr(engine.selectors[id], verb)(*args), f"on_selector({id}, {verb!r}, {args})")

    @recorded
    def on_queue(self, name, verb, *args):
        given = {"upto": args[0]} if verb == "purge" and args else {}
        args = () if given else args
        self.same(lambda engine, side: plain(getattr(engine.queues[name], verb)(*args, **given)),
                  f"on_queue({name!r}, {verb!r}, {args}, {given})")

    @recorded
    def browse(self, name, start, state, limit, reverse):
        self.same(
            lambda engine, side: [message_seen(message) for message in engine.queues[name].browse(
                **({} if start is None else {"start": start}), state=state, limit=limit, reverse=reverse)],
            f"browse({name!r}, {start!r}, {state!r}, {limit}, {reverse})")

    @recorded
    def build(self):
        """Enters or leaves a building block."""
        if self.blocks:
            blocks = self.blocks.pop()
            self.both(lambda engine, side: blocks[side].__exit__(None, None, None), "build() out")
        else:
            blocks = (self.model.building(), self.engine.building())
            self.both(lambda engine, side: blocks[side].__enter__(), "build() in")
            self.blocks.append(blocks)

    @recorded
    def set_meta(self, owner, changes):
        """`owner`: the name of a queue, or of a store as ("store", name). `changes`: a dict; or a name, to be deleted. A
        value that is a number is so many bytes."""
        def change(engine, side):
            meta = meta_of(engine, owner) if isinstance(owner, tuple) else engine.queues[owner].meta
            if isinstance(changes, dict):
                meta.update({name: value_of(value) for name, value in changes.items()})
            else:
                del meta[changes]
            return dict(meta)
        self.same(change, f"set_meta({owner!r}, {changes!r})")

    # ---- time

    @recorded
    def wait(self, nanoseconds):
        """Time passes, or goes back, and nobody says so."""
        self.journal.append(f"wait({nanoseconds})")
        self.now += nanoseconds

    @recorded
    def tick(self):
        self.both(lambda engine, side: engine.tick(), "tick()")

    # ---- messages in

    @recorded
    def publish(self, queue, address, headers, reply_to, body=b"x", message_id=None, **terms):
        self.same(
            lambda engine, side: engine.publish(
                queue, address, body, headers, reply_to=reply_to, message_id=message_id, **terms),
            f"publish({queue!r}, {address!r}, {headers!r}, {reply_to!r}, {body!r}, {message_id!r}, **{terms})")

    @recorded
    def publish_annexed(self, queue, address, n, to, body=b"x"):
        """A message that has its headers in an annex."""
        annex = KIND, annexed(n, to)
        self.same(
            lambda engine, side: engine.publish(queue, xump.Message(address, body, annex=annex)) if side
            else engine.publish(queue, address, body, read_annex(annex[1]), annex=annex),
            f"publish_annexed({queue!r}, {address!r}, {n}, {to!r})")

    @recorded
    def publish_many(self, queue, messages, **terms):
        self.same(lambda engine, side: list(engine.publish_many(queue, messages, **terms)),
                  f"publish_many({queue!r}, {messages!r}, **{terms})")

    @recorded
    def publish_batch(self, queue, messages):
        """Rows in the order of `publish`, of which the last value may be the row's terms. To the model they are publishes of one
        call."""
        rows = [parts_of(row) for row in messages]
        self.same(
            lambda engine, side: list(
                engine.publish_batch(queue, table_of(messages)) if side
                else engine.publish_rows(queue, [(fresh(values), terms_of(**terms)) for values, terms in rows])),
            f"publish_batch({queue!r}, {messages!r})")

    @recorded
    def publish_waiting(self, queue, address, headers, reply_to, body=b"x", message_id=None, **terms):
        """A publish that waits for room, in a thread of its own."""
        ok, modelled, done = self.both(
            lambda engine, side: engine.publish_waiting(
                queue, address, body, headers, reply_to=reply_to, message_id=message_id, **terms),
            f"publish_waiting({queue!r}, {address!r}, {headers!r}, {reply_to!r}, {body!r}, {message_id!r}, **{terms})")
        if ok:
            self.publishers.append((modelled, done))

    @recorded
    def give_up(self, index):
        """The time of a publisher that waits is over."""
        if self.publishers:
            modelled, publisher = self.publishers.pop(index % len(self.publishers))
            self.journal.append(f"give_up({index})")
            waited = modelled in self.model.publishers
            if waited:
                self.model.publishers.remove(modelled)
                if self.model.publishers:
                    self.model.tick()
            assert publisher.waits == waited and (not waited or self.engine._publish_no_more(publisher))

    @recorded
    def request(self, queue, address, headers):
        """A request that waits for its reply, in a thread of its own."""
        ok, modelled, done = self.both(
            lambda engine, side: engine.request_waiting(queue, address, b"x", headers), f"request({queue!r}, {address!r})")
        if ok:
            self.requests.append((modelled, done))

    @recorded
    def end_request(self, index):
        """The time of a request is over."""
        if self.requests:
            modelled, request = self.requests.pop(index % len(self.requests))
            self.journal.append(f"end_request({index})")
            if modelled in self.model.requests:
                self.model.requests.remove(modelled)
            self.engine._end_request(request)

    @recorded
    def transact(self, operations, fail):
        """Operations are ("publish", queue, address, headers), perhaps with keywords of `publish`; or ("ack", index),
        ("nack", index, keywords) and ("reject", index); or ("set_meta", owner, name, value), as in `set_meta`."""
        if not self.deliveries:
            operations = [operation for operation in operations if operation[0] in ("publish", "set_meta")]
        bodies = [self.body_of_its_own() for _ in operations]

        def run(engine, side):
            tx = engine.transaction()
            try:
                with tx:
                    for operation, body in zip(operations, bodies, strict=True):
                        self.operate(engine, side, tx, operation, body)
                    if fail:
                        raise ZeroDivisionError
            except ZeroDivisionError:
                return "failed", []
            return "done", tx.ids
        self.same(run, f"transact({operations!r}, {fail})")

    def body_of_its_own(self):
        return b"x"

    def operate(self, engine, side, tx, operation, body):
        verb, first, *rest = operation
        if verb == "publish":
            tx.publish(first, rest[0], body, rest[1], **(rest[2] if len(rest) > 2 else {}))
        elif verb == "set_meta":
            if isinstance(first, tuple):
                first = engine.stores[first[1]] if side else meta_of(engine, first)
            tx.set_meta(first, rest[0], value_of(rest[1]))
        else:
            delivery = self.deliveries[first % len(self.deliveries)][side]
            getattr(tx, verb)(delivery, **(rest[0] if rest else {}))

    @recorded
    def adopt(self, target, names, meta=None, off=0):
        """All rows of these staged queues, in this order; of the first one so many more."""
        self.same(
            lambda engine, side: engine.adopt(
                target, [(name, engine.queues[name].ready + (0 if at else off)) for at, name in enumerate(names)], meta=meta),
            f"adopt({target!r}, {names!r}, {meta!r}, {off})", any_error=True)

    @recorded
    def enter(self, target, n):
        self.same(lambda engine, side: engine.enter(target, n), f"enter({target!r}, {n})")

    # ---- messages out

    @recorded
    def take(self, n, destination):
        """`destination`: one, a list of them, or None."""
        _, modelled, done = self.both(lambda engine, side: engine.take(n, destination), f"take({n}, {destination!r})")
        self.compare_deliveries(modelled, done)

    @recorded
    def outlet(self, destinations):
        called = [0, 0]

        def make(engine, side):
            def call():
                called[side] += 1
            return engine.outlet(call, destinations)
        ok, modelled, done = self.both(make, f"outlet({destinations!r})")
        if ok:
            self.outlets.append((modelled, done, called))

    @recorded
    def on_outlet(self, index, verb, *args):
        """`add`, `discard` or `close`."""
        if self.outlets:
            pair = self.outlets[index % len(self.outlets)]
            self.same(lambda engine, side: getattr(pair[side], verb)(*args), f"on_outlet({index}, {verb!r}, {args})")

    @recorded
    def drain(self, index, n):
        if self.outlets:
            pair = self.outlets[index % len(self.outlets)]
            ok, modelled, done = self.both(lambda engine, side: pair[side].take(n), f"drain({index}, {n})")
            if ok:
                self.compare_deliveries(modelled, done)

    @recorded
    def get(self, queue):
        ok, modelled, done = self.both(lambda engine, side: engine.get(queue), f"get({queue!r})")
        if ok:
            self.compare_deliveries(*([found] if found else [] for found in (modelled, done)))

    @recorded
    def take_batch(self, n, destination, verdict):
        """To the model it is `take`, and one call for all."""
        _, modelled, batch = self.both(
            lambda engine, side: engine.take_batch(n, destination) if side else engine.take(n, destination),
            f"take_batch({n}, {destination!r}, {verdict!r})")
        rows = rows_seen(batch)
        told = [row_seen(delivery) for delivery in modelled]
        assert told == rows, self.told(f"model gave {told},\nengine {rows}")
        if verdict == "ack":
            self.both(lambda engine, side: batch.ack() if side else engine.ack(modelled), "its ack()")
        elif verdict == "nack" and len(modelled) == 1:
            # One that was paid when it was taken has nothing to say any more; the call does what is due all the same.
            self.both(lambda engine, side: batch.nack() if side else (modelled[0].nack(), engine.tick()), "its nack()")
        else:
            self.batches.append(batch)      # a batch that is gone gives nothing back, but its rows are not looked at again

    @recorded
    def iterate(self, destination, verdicts):
        """A loop over `deliveries()` with a verdict for each, at most as many as there are verdicts; a number is how many ns pass
        before the next one is looked for, and the delivery is kept."""
        begun = self.now + self.pace

        def bounded(engine, side):
            self.now = begun
            seen = []
            iterator = iter(engine.deliveries(destination))
            for verdict in verdicts:
                delivery = next(iterator, None)
                if delivery is None:
                    break
                seen.append((delivery_seen(delivery), verdict))
                if isinstance(verdict, int):
                    self.now += verdict
                else:
                    conclude(delivery, verdict)
            return seen
        self.same(bounded, f"iterate({destination!r}, {verdicts!r})")

    @recorded
    def conclude(self, index, verdict):
        if self.deliveries:
            pair = self.deliveries[index % len(self.deliveries)]
            self.both(lambda engine, side: conclude(pair[side], verdict), f"conclude({index}, {verdict!r})")

    @recorded
    def ack_many(self, indexes):
        if self.deliveries:
            pairs = [self.deliveries[index % len(self.deliveries)] for index in indexes]
            self.both(lambda engine, side: engine.ack([pair[side] for pair in pairs]), f"ack_many({indexes!r})")


def meta_of(engine, owner):
    """The map of a store, ("store", name)."""
    return engine.stores[owner[1]].meta if hasattr(engine.stores, "items") else engine.store_meta(owner[1])


def value_of(value):
    return bytes(value) if isinstance(value, int) else value


VERDICTS = {
    "ack": ("ack", {}), "nack": ("nack", {}), "drop": ("nack", {"requeue": False}),
    "reject": ("reject", {"reason": "for a reason"}),
}


def conclude(delivery, verdict):
    """A verdict is one of these words, or a method of deliveries with its keywords."""
    verb, given = VERDICTS[verdict] if isinstance(verdict, str) else verdict
    getattr(delivery, verb)(**given)


class AtRandom:
    """A program over a `world`: steps that `chance` chooses among `RULES`, names of methods, each compared with the model. One
    that fails is told as the smallest one that fails."""

    def run(self, steps):
        try:
            for _ in range(steps):
                getattr(self, self.chance.choice(self.RULES))()
                self.world.compare()
        except AssertionError as error:
            if self.world.is_undecided():
                return
            raise AssertionError(shrink.told(type(self.world), self.world.given, self.world.program, error)) from error
        finally:
            self.world.close()
