"""Majordomo (RFC 7 and RFC 18): services, each with its workers, behind one broker; and MMI (RFC 8)."""

from xump.zeromq.majordomo.client import Client
from xump.zeromq.majordomo.machine import Majordomo, Service, ServiceRule

__all__ = ["Client", "Majordomo", "Service", "ServiceRule"]
