"""The reliable systems of the ZeroMQ guide, chapter 4, over Xump's queues. It needs the extra `zeromq` (pyzmq).

They speak the published protocols, so peers in any language join: Lazy, Simple and Paranoid Pirate (RFC 6), Majordomo 0.1 and 0.2
(RFC 7, RFC 18) with MMI (RFC 8) and Titanic (RFC 9), Binary Star, and Freelance (RFC 10). docs/zeromq.md tells what each is for.

Each protocol is a *machine* without sockets or clocks of its own: frames and moments go in, frames come out. `xump.zeromq.server`
puts sockets under a machine.
"""

from xump.zeromq.binary_star import BinaryStar, SplitBrain
from xump.zeromq.futures import FutureClient
from xump.zeromq.idempotent import Replies, idempotent, stamp
from xump.zeromq.lazy_pirate import Client as LazyPirate
from xump.zeromq.majordomo import Client, Majordomo
from xump.zeromq.pair import Pair
from xump.zeromq.paranoid_pirate import ParanoidPirate
from xump.zeromq.server import MajordomoBroker, PirateBroker
from xump.zeromq.simple_pirate import SimplePirate
from xump.zeromq.sockets import Keys
from xump.zeromq.worker import Worker

__all__ = [
    "BinaryStar", "Client", "FutureClient", "Keys", "LazyPirate", "Majordomo", "MajordomoBroker", "Pair", "ParanoidPirate",
    "PirateBroker", "Replies", "SimplePirate", "SplitBrain", "Worker", "idempotent", "stamp",
]
