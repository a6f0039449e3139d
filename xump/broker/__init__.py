"""A broker around an engine: programs in other processes publish and consume by AMQP 0-9-1, as with RabbitMQ.

It needs the extra `broker`: `pip install 'xump[broker]'`.
"""

from xump.broker.broker import Broker
from xump.broker.envelope import message_of, properties_of
from xump.broker.limits import Limits
from xump.broker.users import Users, hash_password, read_users

__all__ = ["Broker", "Limits", "Users", "hash_password", "message_of", "properties_of", "read_users"]
