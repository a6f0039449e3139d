"""Xump: a message engine that you embed in a program. Queues are joined by selectors (bindings and subscriptions).

>>> import xump
>>> with xump.Engine() as engine:
...     jobs = engine.create_queue("jobs")
...     worker = engine.create_selector("jobs", when=xump.always, do=xump.deliver("worker"), credit=10)
...     number = engine.publish("jobs", "resize", b"cat.png", {"width": 80})
...     for delivery in engine.deliveries("worker"):
...         with delivery as message:
...             print(message.address, message.headers["width"])
resize 80
"""

from typing import TYPE_CHECKING

try:
    from xump_ext.message.message import Message
except ModuleNotFoundError as error:
    raise ImportError(
        "the compiled core of xump is missing: this is the source folder. Run your program in another folder, or install with "
        "`pip install -e .`, or use the .venv/bin/python that `make demo` creates."
    ) from error

from xump.actions import bounce_to, copy_to, deliver, discard, field, move_to
from xump.conditions import always, default, match, overflow, where
from xump.credit import INFINITE
from xump.engine import Engine
from xump.errors import (
    Closed,
    Conflict,
    ForkedError,
    InvalidFilter,
    InvalidPattern,
    InvariantError,
    QueueFull,
    QueueNotFound,
    Reentrant,
    RequestTimeout,
    RewriterNotFound,
    SelectorNotFound,
    StaleDelivery,
    StoreCorrupt,
    StoreFailed,
    StoreFull,
    StoreLocked,
    StoreNotFound,
    SyncTimeout,
    TransactionError,
    WindowNotFound,
    XumpError,
)
from xump.operators import register_operator
from xump.queue import Queue
from xump.rewriters import register_rewriter
from xump.selector import Selector
from xump.store_types import Store, register_store
from xump.topologies import Housecat, Parrot, Recipient, Wolfpack
from xump.watch import Change, Watch
from xump.window import Window
from xump_ext.death import Death
from xump_ext.engine.delivery import Delivery
from xump_ext.engine.outlet import Outlet
from xump_ext.message.annex import register_annex
from xump_ext.outcome import Outcome, OutcomeFlag

__version__ = "0.1.0"

__all__ = [
    "Change",
    "Closed",
    "Conflict",
    "Death",
    "Delivery",
    "Engine",
    "ForkedError",
    "Housecat",
    "INFINITE",
    "InvalidFilter",
    "InvalidPattern",
    "InvariantError",
    "Message",
    "Outcome",
    "OutcomeFlag",
    "Outlet",
    "Parrot",
    "Queue",
    "QueueFull",
    "QueueNotFound",
    "Recipient",
    "Reentrant",
    "Selector",
    "SelectorNotFound",
    "RequestTimeout",
    "RewriterNotFound",
    "StaleDelivery",
    "Store",
    "StoreCorrupt",
    "StoreFailed",
    "StoreFull",
    "StoreLocked",
    "StoreNotFound",
    "SyncTimeout",
    "TransactionError",
    "Watch",
    "Window",
    "WindowNotFound",
    "Wolfpack",
    "XumpError",
    "always",
    "bounce_to",
    "copy_to",
    "default",
    "deliver",
    "discard",
    "field",
    "match",
    "move_to",
    "overflow",
    "register_annex",
    "register_operator",
    "register_rewriter",
    "register_store",
    "where",
]


if TYPE_CHECKING:
    from xump import aio as aio
else:
    def __getattr__(name: str) -> object:
        """Import `xump.aio` at its first use, so that only programs which use it pay for asyncio."""
        if name == "aio":
            import importlib

            return importlib.import_module("xump.aio")
        raise AttributeError(f"module 'xump' has no attribute {name!r}")
