"""MMI (RFC 8): what a client may ask the broker itself, and what we add.

    mmi.service NAME        200 if the service has a worker, else 404
    mmi.ANYTHING            501
    xump.waiting NAME       how many requests wait, as a decimal number
    xump.workers NAME       how many workers the service has
    xump.services           the names of the services that have a worker or a request, a frame each

Names that begin with `mmi.` or `xump.` are reserved: a worker that registers one is sent away. So are Titanic's, in a broker that
has them.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING

from xump.zeromq.frames import NOT_FOUND, NOT_IMPLEMENTED, OK

if TYPE_CHECKING:
    from xump.zeromq.majordomo.machine import Service

Services = Mapping[bytes, "Service"]


RESERVED = (b"mmi.", b"xump.")


def answer(services: Services, name: bytes, body: Sequence[bytes]) -> list[bytes]:
    """The body of the answer to a request for a reserved service."""
    asked = _ANSWERS.get(name)
    return [NOT_IMPLEMENTED] if asked is None else asked(services, body[0])


def _service(services: Services, name: bytes) -> list[bytes]:
    service = services.get(name)
    return [OK if service is not None and service.workers else NOT_FOUND]


def _waiting(services: Services, name: bytes) -> list[bytes]:
    service = services.get(name)
    return [b"%d" % (0 if service is None else service.queue.ready)]


def _workers(services: Services, name: bytes) -> list[bytes]:
    service = services.get(name)
    return [b"%d" % (0 if service is None else service.workers)]


def _names(services: Services, name: bytes) -> list[bytes]:
    return sorted(services)


_ANSWERS: dict[bytes, Callable[[Services, bytes], list[bytes]]] = {
    b"mmi.service": _service, b"xump.waiting": _waiting, b"xump.workers": _workers, b"xump.services": _names,
}
