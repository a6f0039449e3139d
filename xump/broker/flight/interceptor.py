"""Looks at each call before Flight waits for what its client sends: whether there is room for it, and who calls.

Flight reads the first message of a stream before it calls the server, in a thread of its own. So calls are counted here, and
strangers are refused here.
"""

from __future__ import annotations

import threading
from collections.abc import Mapping
from typing import Any

from pyarrow import flight

from xump.broker.flight.access import UNKNOWN, Access
from xump.broker.flight.problems import Unknown, problem

MIDDLEWARE = "xump"
"""The name under which Flight hands the headers of a call on."""


class RequestHeaders(flight.ServerMiddleware):     # type: ignore[misc]
    """The headers of a call; and those of its answer."""

    def __init__(self, headers: Mapping[str, list[Any]], interceptor: Interceptor) -> None:
        self._headers = {name.lower(): values for name, values in headers.items()}
        self._interceptor = interceptor
        self.answered: dict[str, str] = {}
        """The headers of the answer."""

    def get(self, name: str) -> str | None:
        """A header, or None."""
        values = self._headers.get(name)
        if not values:
            return None
        return values[0].decode(errors="replace") if isinstance(values[0], bytes) else str(values[0])

    def sending_headers(self) -> dict[str, str]:
        """The headers of the answer. Flight calls it."""
        return self.answered

    def call_completed(self, exception: BaseException | None) -> None:
        """The call has ended. Flight calls it."""
        self._interceptor.leave()


class Interceptor(flight.ServerMiddlewareFactory):       # type: ignore[misc]
    """Sees each call before the server does: lets it in, and answers a password with a token, as Flight's handshake wants it."""

    def __init__(self, access: Access, calls_max: int) -> None:
        self._access = access
        self._calls_max = calls_max
        self._lock = threading.Lock()
        self._inside = 0

    def __len__(self) -> int:
        return self._inside

    def start_call(self, info: flight.CallInfo, headers: Mapping[str, list[Any]]) -> RequestHeaders:
        """A call begins. Flight calls it."""
        made = RequestHeaders(headers, self)
        self._enter()
        try:
            self._look_at(info.method, made)
        except Exception as error:
            self.leave()
            raise problem(error) from None
        return made

    def _enter(self) -> None:
        with self._lock:
            if self._inside >= self._calls_max:
                raise flight.FlightUnavailableError(f"{self._inside} calls are open, which is the limit: try again later")
            self._inside += 1

    def leave(self) -> None:
        """A call has ended."""
        with self._lock:
            self._inside -= 1

    def _look_at(self, method: flight.FlightMethod, made: RequestHeaders) -> None:
        """Raise `Unknown` for a stranger."""
        given = made.get("authorization")
        if method != flight.FlightMethod.HANDSHAKE:
            self._access.user_of(given, True)        # whether from here, the call looks
            return
        token = self._access.token_for(given)
        if token is None:
            raise Unknown(UNKNOWN)
        made.answered["authorization"] = f"Bearer {token}"


class NoHandshake(flight.ServerAuthHandler):        # type: ignore[misc]
    """Flight lets a handshake through only if there is one of these. It checks nothing: the interceptor does."""

    def authenticate(self, outgoing: Any, incoming: Any) -> None:
        """Nothing to do."""

    def is_valid(self, token: bytes) -> str:
        """Nothing to do."""
        return ""
