"""A broker around an engine: programs in other processes publish and consume by AMQP 0-9-1, as with RabbitMQ.

It needs the extra `broker`: `pip install 'xump[broker]'`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

try:
    from xump.broker.broker import Broker
    from xump.broker.envelope import message_of, properties_of
    from xump.broker.limits import Limits
    from xump.broker.users import Users, hash_password, read_users
except ModuleNotFoundError as error:
    raise ModuleNotFoundError(
        f"the broker needs {error.name}, which is not installed: pip install 'xump[broker]'", name=error.name) from None

if TYPE_CHECKING:
    from xump.broker.aio_client import AsyncClient
    from xump.broker.client import Client

__all__ = ["AsyncClient", "Broker", "Client", "Limits", "Users", "hash_password", "message_of", "properties_of", "read_users"]


def __getattr__(name: str) -> Any:
    """The clients need pyarrow, which a program that speaks AMQP only need not have."""
    if name == "Client":
        from xump.broker.client import Client

        return Client
    if name == "AsyncClient":
        from xump.broker.aio_client import AsyncClient

        return AsyncClient
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
