"""The engine: one graph of queues and selectors in one process. Arguments are checked here; `xump_ext` does the work.

The class `Engine` is in seven files: `xump._graph` creates and deletes stores, queues and selectors, `xump._taking` hands out
deliveries, `xump._requests` waits for replies, `xump._durable` waits for disks, `xump._staged` has staged queues,
`xump._telling` calls back, and this file has the rest.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager
from types import FunctionType, TracebackType
from typing import TYPE_CHECKING, Any

from xump._arguments import HOP_LIMIT_MAX, check_count, queue_name
from xump._staged import Staged
from xump.durability.closing import engines_with_stores, open_engines, raise_first
from xump.durability.committer import uninterrupted
from xump.transaction import Transaction
from xump_ext.arrow.batch import publish_batch
from xump_ext.check.laws import check_laws
from xump_ext.engine.building_block import BuildingBlock
from xump_ext.memory.own_methods import own_methods

if TYPE_CHECKING:
    from xump.queue import Queue
    from xump.types import ArrowData, Stats

logger = logging.getLogger("xump")
logger.addHandler(logging.NullHandler())


class Engine(Staged):
    """A message engine: queues, and selectors (bindings and subscriptions) that join them. It is an object, not a server.

    Args:
        clock: A function that returns the time in POSIX nanoseconds; it is called once a call.
        hop_limit: How many times a message may be copied, moved or bounced before it goes to the dead letter queue, 1 to 65,534.
        dead_letter: The name of the queue for messages that are unroutable, rejected, or past a limit of deliveries or hops where
            no queue on their way has a dead letter queue of its own, and for messages to queues that do not exist. A message
            that a full queue turns away goes only to that queue's own. It may be created later.

    Raises:
        TypeError, ValueError: An argument is wrong.

    An engine starts with a store named `"ram"`, which is the default of `create_queue`. You may call an engine from any thread;
    calls are serialized. As a context manager it closes itself at the end of the block.

    >>> from xump import always, deliver
    >>> with Engine() as engine:
    ...     jobs = engine.create_queue("jobs")
    ...     selector = engine.create_selector("jobs", when=always, do=deliver("worker"))
    ...     jobs.publish("resize", b"cat.png")
    ...     for delivery in engine.deliveries("worker"):
    ...         with delivery as message:
    ...             print(message.address, message.body)
    1
    resize b'cat.png'
    """

    def __init__(
        self, *, clock: Callable[[], int] = time.time_ns, hop_limit: int = 64, dead_letter: str | None = None
    ) -> None:
        if not callable(clock):
            raise TypeError(f"clock must be callable and return POSIX nanoseconds, got {type(clock).__name__}")
        check_count("hop_limit", hop_limit, 1, HOP_LIMIT_MAX)
        if dead_letter is not None:
            dead_letter = queue_name(dead_letter, "dead_letter")
        self._configure(None if clock is time.time_ns else clock, hop_limit, dead_letter)
        self._begin_graph()
        open_engines.add(self)

    # ---- building, publishing, transactions

    def building(self) -> AbstractContextManager[None]:
        """A context manager in which nothing is routed, so that no message meets half of a graph.

        Messages that are published in the block wait. When the block ends, also by an exception, the graph is run once over
        everything. Blocks nest; routing starts when the outermost one ends. The end of a block also releases the queues of stores
        that were opened again.

        The engine routes nothing of other threads meanwhile, either. So do what takes long before the block: to open a store, or
        to create queues while another thread opens one.

        Raises:
            Closed: The engine is closed.

        >>> from xump import Engine, always, copy_to, deliver
        >>> with Engine() as engine:
        ...     with engine.building():
        ...         news, archive = engine.create_queue("news"), engine.create_queue("archive")
        ...         number = news.publish("sport")
        ...         copy = engine.create_selector("news", when=always, do=copy_to("archive"))
        ...         reader = engine.create_selector("news", when=always, do=deliver("reader"))
        ...     archive.ready, news.outstanding
        (1, 1)
        """
        return BuildingBlock(self)

    def publish_batch(self, queue: str | Queue, data: ArrowData) -> range:
        """Publish the rows of Arrow data: a table or record batch of pyarrow, a DataFrame of Polars, a relation of DuckDB.

        Args:
            queue: The queue that the messages enter.
            data: Any object with the Arrow PyCapsule interface (`__arrow_c_stream__` or `__arrow_c_array__`). Its columns are
                `address`, `reply_to`, `message_id` and `correlation_id` (text), `body` (bytes or text), `headers` (a struct whose
                fields are the headers, null is a missing header; or a map of strings), `at` and `expires` (timestamps, or int64
                as nanoseconds) and `priority` (integers). A missing column is empty. The other columns of `take_batch` and
                `browse_batch` are ignored. In headers, timestamps become an int of POSIX nanoseconds, times and durations an int
                of nanoseconds, dates an int of days since 1970, and decimals a str.

        Returns:
            The range of the ids that the rows got.

        Raises:
            QueueFull: The queue has no room for all rows.
            QueueNotFound: There is no such queue, and no dead letter queue that takes the rows.
            StoreFull, StoreFailed: The store cannot write them.
            TypeError, ValueError: A column or row is wrong; names both.

        All rows are checked before the first one enters. If it raises, nothing has changed.

        Headers that a bounce has added may make a message larger than the limit of headers. `publish_many` accepts such a
        message; as Arrow columns it is refused.

        Cost: O(rows), a fraction of `publish` a row. A row that is not routed stays in its columns, and keeps the whole batch
        in memory; if a row has an `at`, `expires` or `priority`, each row becomes a message at once. Texts and bodies are shared
        with the producer until the row is routed; numbers, offsets and nulls are copied, and the names in a map. If a producer
        writes into its buffers all the same, which Arrow forbids, waiting messages change: a text keeps its size, and each byte
        above 127 in text that is no longer UTF-8 is shown as a question mark.

        >>> import pyarrow
        >>> from xump import Engine
        >>> with Engine() as engine:
        ...     jobs = engine.create_queue("jobs")
        ...     engine.publish_batch(jobs, pyarrow.table({"address": ["resize", "rotate"], "body": [b"cat.png", b"dog.png"]}))
        range(1, 3)
        """
        return publish_batch(self, queue, data)

    def transaction(self) -> Transaction:
        """A context manager that collects publishes and acks, and does them together when its block ends.

        Returns:
            A `Transaction`; call its `publish` and `ack` in the block. `engine.publish` in the block happens at once.

        Raises:
            Closed: The engine is closed.

        If the block raises, nothing happens. The end of the block raises what `publish` and `ack` would raise, and
        `TransactionError` if the transaction changes queues in more than one durable store; then nothing has changed either. In a
        durable store the changes are one atomic write.

        Cost: that of its publishes and acks, and one run.

        >>> from xump import Engine, always, deliver
        >>> with Engine() as engine:
        ...     jobs, done = engine.create_queue("jobs"), engine.create_queue("done")
        ...     selector = engine.create_selector("jobs", when=always, do=deliver("worker"))
        ...     number = jobs.publish("resize")
        ...     [delivery] = engine.take(1, "worker")
        ...     with engine.transaction() as tx:
        ...         tx.publish("done", "resized")
        ...         tx.ack(delivery)
        ...     tx.ids, jobs.outstanding, done.ready
        ([1], 0, 1)
        """
        self._check_open()
        return Transaction(self)

    # ---- watching

    def stats(self) -> Stats:
        """The counters and gauges of the engine, its queues and its selectors, as plain dicts.

        Returns:
            `{"engine": {...}, "queues": {name: {...}}, "selectors": {id: {...}}, "windows": {name: {...}}}`, the dict
            `xump.types.Stats`; docs/stats.md explains every key. The dicts are yours to change.

        Raises:
            Closed: The engine is closed.

        Cost: O(queues + selectors). It does not walk over messages.

        >>> from xump import Engine
        >>> with Engine() as engine:
        ...     number = engine.create_queue("jobs").publish("resize")
        ...     engine.stats()["queues"]["jobs"]["ready"]
        1
        """
        return self._stats()

    def check(self) -> None:
        """Verify that all counters and links of the engine agree, by counting everything again.

        Raises:
            InvariantError: They do not: a defect in Xump. The message says which rule is broken, and where.
            Closed: The engine is closed.

        Cost: O(messages + queues + selectors). Use it in tests and when you suspect a defect, not after every call.

        >>> from xump import Engine
        >>> with Engine() as engine:
        ...     engine.check()
        """
        check_laws(self)

    def to_mermaid(self) -> str:
        """The graph and its counts as a Mermaid flowchart, which GitHub and many editors draw. Cost: O(queues + selectors).

        `xump.topology.picture.to_svg(engine)` draws a picture.

        >>> from xump import Engine
        >>> with Engine() as engine:
        ...     engine.to_mermaid()
        'flowchart LR\\n'
        """
        from xump.topology import drawing

        return drawing.to_mermaid(self)

    def to_dot(self) -> str:
        """The graph and its counts in Graphviz' language. Cost: O(queues + selectors).

        `xump.topology.picture.to_svg(engine)` draws a picture without Graphviz.

        >>> from xump import Engine
        >>> with Engine() as engine:
        ...     engine.to_dot().splitlines()[0]
        'digraph xump {'
        """
        from xump.topology import drawing

        return drawing.to_dot(self)

    def topology(self) -> dict[str, Any]:
        """Describe the stores, queues and selectors as a plain dict, which `apply` accepts and TOML can hold.

        Returns:
            The dict; `help("xump.topology.schema")` explains its keys. Properties that have their default value are left out, and
            so are the messages.

        Raises:
            Conflict: A condition is a Python function, or a store has an option that is no plain value. The message names them.
            Closed: The engine is closed.

        Cost: O(queues + selectors).

        >>> from xump import Engine
        >>> with Engine() as engine:
        ...     jobs = engine.create_queue("jobs", limit=1000)
        ...     engine.topology()
        {'version': 1, 'stores': {}, 'queues': {'jobs': {'limit': 1000}}, 'selectors': []}
        """
        from xump import topology

        return topology.describe(self)

    def apply(self, description: Mapping[str, Any]) -> None:
        """Create the stores, queues and selectors that a topology describes and that do not exist yet.

        Args:
            description: A dict as `topology()` returns it, or as `tomllib` reads it; its `version` is 1.

        Raises:
            Conflict: The description is wrong, or contradicts what exists. The message lists everything that is wrong.
            StoreLocked, StoreCorrupt, OSError: A store cannot be opened.
            TypeError: `description` is not a mapping.
            Closed: The engine is closed.

        The whole description is checked first. If it raises, nothing has changed. Nothing is deleted or changed that exists.
        Selectors are recognised by their names; a selector without a name, only if all its properties are equal.

        Cost: that of creating what is missing, twice, and O(queues + selectors).

        >>> from xump import Engine
        >>> with Engine() as engine:
        ...     engine.apply({"version": 1, "queues": {"jobs": {"limit": 1000}}})
        ...     engine.queues["jobs"].limit
        1000
        """
        from xump import topology

        topology.apply(self, description)

    # ---- the end

    def close(self) -> None:
        """Make everything durable, and close the engine and its stores. Closing a closed engine does nothing.

        Raises:
            StoreFailed: The last messages could not be written. The engine is closed all the same.

        Calls that wait in other threads raise `Closed`, and so does every later call.

        Cost: O(messages in memory), and a sync of each durable store.

        >>> from xump import Engine
        >>> engine = Engine()
        >>> engine.close()
        >>> engine.closed
        True
        """
        errors: list[BaseException] = []
        with uninterrupted():
            if not self._close():
                return
            open_engines.discard(self)
            engines_with_stores.discard(self)
            self._close_stores(list(self._stores.values()), errors)
            self._stores.clear()
            self._free()
            self._named.clear()
            self._wake_all()
        raise_first(errors)

    def __enter__(self) -> Engine:
        self._check_open()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None) -> None:
        self.close()

    def __repr__(self) -> str:
        if self.closed:
            return "<Engine, closed>"
        return f"<Engine: {len(self._queues)} queues, {len(self._selectors)} selectors>"

    def _report(self, errors: list[tuple[int | str | None, BaseException | str | tuple[str, str]]]) -> None:
        """Log what went wrong in a run: what user code raised, once a condition; messages that could not be read; the address of
        the first message that a queue dropped since nothing matched it; and a dead letter queue that does not exist, with the
        reason of the first message that was dropped for that."""
        for where, error in errors:
            if isinstance(error, tuple):
                logger.warning(
                    "queue %r dropped a message (%s), since its dead letter queue %r does not exist: create that queue, or set "
                    "another dead_letter; further drops are only counted", where, error[1], error[0])
            elif isinstance(error, str):
                logger.warning(
                    "queue %r dropped a message with the address %r: no selector matches it, and no dead letter queue takes it. "
                    "Create a selector for it, a dead_letter, or the queue with unmatched='keep'; further drops are only counted",
                    where, error)
            elif where is None:
                logger.error("a call-back of an outlet or a watch raised", exc_info=error)
            elif isinstance(where, int):
                logger.error("the condition of selector %d raised; that counts as no match", where, exc_info=error)
            else:
                logger.error("queue %r is held from now on; fix the cause, then call release() on it: %s", where, error)


def _name_methods() -> None:
    """Errors that Python raises for arguments say `Engine.create_queue`, in whichever file the method is."""
    for part in Engine.__mro__:
        if part.__module__.startswith("xump."):
            for member in vars(part).values():
                if isinstance(member, FunctionType):
                    member.__qualname__ = f"Engine.{member.__name__}"


own_methods(Engine)
_name_methods()
