"""Addresses to listen at: `HOST:PORT`, and whether only this machine can reach them."""

from __future__ import annotations

import ipaddress
from functools import lru_cache


def host_and_port(text: str, name: str) -> tuple[str, int]:
    """Host and port of `HOST:PORT`. Raises `ValueError`, which calls the argument `name`.

    >>> host_and_port("127.0.0.1:5672", "amqp"), host_and_port("[::1]:0", "amqp"), host_and_port(":80", "http")
    (('127.0.0.1', 5672), ('::1', 0), ('127.0.0.1', 80))
    """
    host, colon, port = text.rpartition(":")
    if not colon or not port.isdigit() or int(port) > 65535:
        raise ValueError(f"{name} must be HOST:PORT with a port of at most 65535, got {text!r}")
    return host.strip("[]") or "127.0.0.1", int(port)


@lru_cache(256)
def is_loopback(host: str) -> bool:
    """Whether the host is this machine, and no other machine can reach it there.

    >>> [is_loopback(host) for host in ("127.0.0.1", "::1", "localhost", "0.0.0.0", "10.0.0.1", "example.org")]
    [True, True, True, False, False, False]
    """
    if host == "localhost":
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False
