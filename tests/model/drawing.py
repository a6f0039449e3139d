"""What programs draw of time, order, duplicates and bounds: terms of queues and of messages, verdicts.

A program uses a few of these features only, each often. So any two of them meet in some program, and not all of them in every
one, where they would hide each other. Spans are short and limits tiny, so that much falls due and much is full.
"""

from tests.model.vocabulary import MAP_NAMES, MAP_VALUES, REWRITERS, WINDOWS
from xump import always, copy_to, field, move_to
from xump.workloads.vocabulary import NANOSECOND

FEATURES = ["delay", "ttl", "queue ttl", "retry", "deadline", "priority", "group", "dedup", "bytes", "drop_oldest", "keep", "get",
            "room", "requests", "transit", "outcomes", "rank", "ahead", "window", "rewriter", "outlet", "staged"]
BODIES = [b"", b"x", b"xxx"]
MESSAGE_IDS = [None, "m1", "m1", "m2"]
WAITS = [0, 1, 1, 2, 3, 5, 10, 30, -5]


def features_drawn(chance):
    """None, a few, or all of them."""
    return set(chance.sample(FEATURES, chance.choice([0, 1, 2, 3, 3, 4, 5, 7, len(FEATURES)])))


def seconds(nanoseconds):
    return nanoseconds * NANOSECOND


class Maps:
    """Draws changes of maps by `self.chance`."""

    def owner(self, name):
        return ("store", self.chance.choice(["ram", *self.world.stores])) if self.chance.random() < 0.3 else name

    def meta_change(self, name):
        """For `World.set_meta`: of the queue of that name, or of a store."""
        choice = self.chance.choice
        values = {choice(MAP_NAMES): choice(MAP_VALUES) for _ in range(self.chance.randint(1, 2))}
        return self.owner(name), choice([values, values, choice(MAP_NAMES)])

    def meta_operation(self, name):
        """The same in a transaction."""
        return "set_meta", self.owner(name), self.chance.choice(MAP_NAMES), self.chance.choice([None, *MAP_VALUES])


class Staging:
    """Draws what is done with staged queues, by `self.chance`. `self.targets`: names of queues that adopt them."""

    STAGED = ["s1", "s2", "s3"]

    def stage(self):
        """A staged queue, mostly in the store of a queue that may adopt it, and rows for it."""
        choice = self.chance.choice
        target, name = self.world.engine.queues.get(choice(self.targets)), choice(self.STAGED)
        store = choice(["ram", *self.world.stores]) if target is None or self.chance.random() < 0.1 else target.store.name
        self.world.create_queue(name, None, 0, False, None, None, store, staged=True)
        rows = [(choice(["a", "b", ""]), self.staged_body(), {"n": choice([0, 1]), "to": choice(["a", "b", ""])}, None,
                 choice([None, None, "m1", "m2"]), *self.row_terms()) for _ in range(self.chance.randint(0, 4))]
        if self.chance.random() < 0.7:
            self.world.publish_batch(name, rows)
        else:
            self.world.publish_many(name, [row[:5] for row in rows])

    def row_terms(self):
        return ()

    def staged_body(self):
        return self.chance.choice([b"", b"x", b"xxx"])

    def adopt(self):
        """Mostly what is staged in the store of the queue."""
        choice, queues, target = self.chance.choice, self.world.engine.queues, self.chance.choice(self.targets)
        store = queues[target].store if target in queues else None
        staged = [name for name, queue in queues.items() if queue.staged and queue.store is store and queue.adopted_by is None]
        if self.chance.random() < 0.1:
            staged = [*self.STAGED, *self.targets]
        names = self.chance.sample(staged, self.chance.randint(0, min(3, len(staged))))
        meta = choice([None, None, {choice(MAP_NAMES): choice([None, b"1", bytes(40_000)])}])
        self.world.adopt(target, names, meta, choice([0] * 9 + [1, -1]))

    def enter(self):
        for _ in range(self.chance.randint(1, 2)):
            self.world.enter(self.chance.choice(self.targets), self.chance.choice([1, 1, 2, 3, 100]))

    def meddle(self):
        """With a staged queue: most of that is refused."""
        choice, name = self.chance.choice, self.chance.choice(self.STAGED)
        verb = choice(["delete_queue", "hold", "release", "purge", "purge", "delete", "get", "from", "to", "delay", "transact"])
        if verb == "delete_queue":
            self.world.delete_queue(name)
        elif verb == "get":
            self.world.get(name)
        elif verb == "delay":
            self.world.publish(name, "a", {}, None, delay=seconds(choice([0, 3])))
        elif verb == "transact":
            self.world.transact([("publish", choice([name, *self.targets]), "a", {}) for _ in range(2)], False)
        elif verb in ("from", "to"):
            source, target = (name, choice(self.targets))[:: 1 if verb == "from" else -1]
            self.world.create_selector(source, always, choice([copy_to, move_to])(target), 1, True, "current", None)
        elif name in self.world.engine.queues:
            self.world.on_queue(name, verb, *{"delete": [choice([1, 2])], "purge": choice([[], [1]])}.get(verb, []))


class Drawing(Maps, Staging):
    """Draws by `self.chance` what is in `self.features`; `self.world` is where it goes."""

    def odds(self, feature, *values):
        """One of the values, or None if the program does not use the feature."""
        return self.chance.choice(values) if feature in self.features else None

    def queue_terms(self):
        odds, delays = self.odds, [seconds(delay) for delay in (0, 2, 5)]
        drawn = {
            "ttl": odds("queue ttl", None, 0, 3, 8, 20), "dedup": odds("dedup", None, 0, 6, 30),
            "retry_delay": odds("retry", None, *delays, self.chance.sample(delays, 2)),
            "priority": odds("priority", None, 1, 5), "limit_bytes": odds("bytes", None, 0, 1, 3, 4),
            "group": odds("group", None, field("address"), field("address"), field("headers.to"), field("reply_to")),
            "when_full": odds("drop_oldest", None, "drop_oldest", "drop_to_fit"), "unmatched": odds("keep", None, "keep"),
            "dedup_limit": odds("dedup", None, 1, 2), "rewriter": odds("rewriter", None, *REWRITERS),
        }
        for name in ("ttl", "dedup"):
            drawn[name] = drawn[name] and seconds(drawn[name])
        if self.chance.random() < 0.1:
            drawn["meta"] = {"m": b"first"}
        return {name: value for name, value in drawn.items() if value is not None}

    def is_transit(self):
        return "transit" in self.features and self.chance.random() < 0.5

    def is_staged(self):
        return "staged" in self.features and self.chance.random() < 0.2

    def row_terms(self):
        return [self.terms(row=True)]

    def terms(self, *, row=False):
        """Of a message, as keywords of `publish`, or as columns of a row."""
        now, odds = self.world.now + self.world.pace, self.odds
        terms = {"priority": odds("priority", None, 1, 7, 7), "correlation_id": odds("requests", None, None, "c", "request-1")}
        at = odds("delay", None, None, -3, 0, 1, 2, 5, 12)
        ends = odds("ttl", None, None, None, -1, 0, 1, 3, 8, 20)
        if at is not None and (row or self.chance.random() < 0.3):
            terms["at"] = now + at
        elif at is not None:
            terms["delay"] = seconds(max(0, at))
        if ends is not None and (row or ends < 0 or self.chance.random() < 0.4):
            terms["expires"] = now + ends
        elif ends is not None:
            terms["ttl"] = seconds(ends)
        return {name: value for name, value in terms.items() if value is not None}

    def shared_terms(self):
        """Of all messages of a `publish_many`."""
        return {name: value for name, value in self.terms().items() if name != "correlation_id"}

    def asking(self):
        """Whether the publisher wants to know."""
        return {"outcomes": True} if "outcomes" in self.features and self.chance.random() < 0.7 else {}

    def message_id(self):
        return self.odds("dedup", *MESSAGE_IDS)

    def body(self):
        return self.odds("bytes", *BODIES) or b""

    def ack_timeout(self, do, credit):
        """For what takes finite credit for deliveries: of others a selector would be refused."""
        drawn = self.odds("deadline", None, 1, 4, 9)
        delivers = do.verb == "deliver" and do.queue is None and isinstance(credit, int)
        return seconds(drawn) if drawn and delivers else None

    def selector_terms(self, do, credit):
        """`rank`, and for deliveries `ahead` and `window`."""
        delivers = do.verb == "deliver" and do.queue is None
        drawn = {"rank": do.consuming and self.odds("rank", None, -1, 1, 2),
                 "ahead": delivers and self.odds("ahead", None, 1, 1, 2),
                 "window": delivers and isinstance(credit, int) and self.odds("window", None, *WINDOWS)}
        return {name: value for name, value in drawn.items() if value}

    def verdict(self):
        verbs = ["ack", "nack", "nack", "drop", "reject"]
        if "retry" in self.features:
            verbs += [("nack", {"delay": seconds(delay)}) for delay in (0, 2, 6)]
        if "deadline" in self.features:
            verbs += [("extend", {"seconds": seconds(span)}) for span in (0, 5)]
        if "requests" in self.features:
            verbs += [("reply", {"body": b"r"})] * 2
        return self.chance.choice(verbs)

    def verdicts(self):
        """Of a loop over deliveries: what is said of each, or how long it takes."""
        passing = [0, 3] if "retry" in self.features or "deadline" in self.features else []
        return [self.chance.choice([self.verdict(), *passing]) for _ in range(self.chance.randint(1, 4))]

    def operation(self, name, address):
        """Of a transaction."""
        index = self.chance.randint(0, 50)
        nack = ("nack", index, {"delay": seconds(4)}) if "retry" in self.features else ("nack", index)
        published = ("publish", name, address, {}, self.terms() | {"message_id": self.message_id()})
        return self.chance.choice(
            [published, published, ("ack", index), nack, ("nack", index), ("reject", index), self.meta_operation(name)])

    # ---- calls that some programs make

    def tick(self):
        self.world.tick()

    def wait(self):
        self.world.wait(self.chance.choice(WAITS))

    def give_up(self):
        self.world.give_up(self.chance.randint(0, 5))

    def end_request(self):
        self.world.end_request(self.chance.randint(0, 5))
