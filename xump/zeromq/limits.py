"""Limits and defaults of all systems, with the reasons for the numbers."""

from __future__ import annotations

from xump.limits import body_bytes_max

HEARTBEAT_SECONDS = 2.5
"""RFC 7 leaves it to the peers; the guide's Majordomo has 2.5."""
LIVENESS = 4
"""The RFCs allow 3 to 5 silent intervals."""
PIRATE_HEARTBEAT_SECONDS = 1.0
PIRATE_LIVENESS = 3
BACK_OFF_SECONDS, BACK_OFF_SECONDS_MAX = 1.0, 32.0
"""Of a worker whose queue is gone, as in the guide: 1, 2, 4 … 32."""

STAR_HEARTBEAT_SECONDS, STAR_EXPIRY_BEATS = 1.0, 2
"""Of a Binary Star, as in the guide: a peer of which nothing was heard for two heartbeats is silent."""

FREELANCE_PING_SECONDS, FREELANCE_TTL_SECONDS, FREELANCE_TIMEOUT_SECONDS = 2.0, 6.0, 3.0
"""Of RFC 10, as in the guide."""

TIMEOUT_SECONDS, RETRIES = 2.5, 3
"""Of a Lazy Pirate: so long for each try, and so many tries after the first."""

RETRIES_MAX = (1 << 31) - 1
IN_FLIGHT_MAX = 65_000
"""Requests of one client at once. Each has a socket, of which libzmq gives a context 65,535 at most."""

TIMEOUT_SECONDS_MAX = 2_000_000.0
"""libzmq counts milliseconds in 32 bits with a sign, which ends some days above this."""

REQUEST_TTL_SECONDS = 300.0
"""A request that no worker takes within this is dropped: its client has given up long before."""
REPLY_LIMIT_SECONDS = 300.0
"""A Simple Pirate's worker that has not replied within this is taken for dead: there are no heartbeats to tell."""
WAITING_MAX = 1_000_000
"""Requests that wait for one service. One more is refused, which its client sees as a lost request."""
WAITING_BYTES_MAX = 1 << 30
"""Of their bodies together: above it requests are refused, too."""
REQUEST_BYTES_MAX = body_bytes_max
"""Of a request, its frames together: a message of the engine has no more. A longer one is refused. So is a reply, by Titanic."""
FRAME_BYTES_MAX = 1 << 30
"""A server breaks the connection of a peer that announces a longer frame."""
SERVICES_MAX = 10_000
"""Services that clients may name while they have no worker: each is a queue. Requests for one more are refused."""
WORKERS_MAX = 100_000
SERVICE_BYTES_MAX = 255
"""A longer name is malformed. The RFCs say only that it is printable, or opaque."""
KEPT_SECONDS, KEPT_REPLIES_MAX = 86_400.0, 1_000_000
"""Of an idempotent service's replies: a day is longer than clients go on asking; the index takes some 150 bytes a reply."""
REPLIES_KEPT_SECONDS = 7 * 86_400.0
"""Of Titanic: a reply that nobody fetches and closes ends after a week."""
PARTIALS_BYTES_MAX = 64 << 20
"""Parts that wait for the last one, because their client takes one reply only. A worker that sends more is sent away. They may
have as many frames as one reply."""
BATCH = 200
"""So many messages are read before requests are handed out: enough to share the cost, few enough that workers do not starve."""

LATE_SECONDS = 0.1
"""A server that does so much later what is due has stood still: it reads first."""

LATE_BATCHES = 1_000
"""So many batches of a socket at most."""
WAIT_MS_MAX = 60_000
"""A server without anything due looks around so often."""
HIGH_WATER_MESSAGES = 100_000
"""Of all sockets. A ROUTER drops what is above it, and an asynchronous client may have this many replies on the way."""


def check_timeout(timeout: float) -> None:
    """Check the time limit of a client; raises ValueError."""
    if not 0 < timeout <= TIMEOUT_SECONDS_MAX:
        raise ValueError(f"the timeout is {timeout} seconds; allowed are more than 0, and at most {TIMEOUT_SECONDS_MAX:,.0f}")


def check_heartbeat(interval: float, liveness: int) -> None:
    """Check a heartbeat's interval and liveness; raises ValueError."""
    if not 0 < interval < float("inf"):
        raise ValueError(f"the heartbeat interval is {interval} seconds, and must be more than 0: 1.0 or 2.5 are usual")
    if liveness < 1:
        raise ValueError(f"the liveness is {liveness}, and must be at least 1: the RFCs allow 3 to 5")
