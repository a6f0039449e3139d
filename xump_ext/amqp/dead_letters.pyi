"""The rewriter of dead letters of AMQP queues: it writes `x-death` as RabbitMQ does."""

EXCHANGES: str
