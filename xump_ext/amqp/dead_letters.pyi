"""The rewriter of dead letters of AMQP queues: it writes `x-death` as RabbitMQ does."""

from typing import final

EXCHANGES: str

@final
class Before: ...

@final
class HeaderTable: ...

@final
class XDeath: ...
