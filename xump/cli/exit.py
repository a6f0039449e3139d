"""What goes wrong in a command, as the user is told it; and the exit statuses of `xump`."""

from __future__ import annotations

FINE, WRONG, FAILED = 0, 1, 2


class Trouble(Exception):
    """A sentence for the standard error, and the exit status."""

    def __init__(self, said: str, status: int = FAILED) -> None:
        super().__init__(said)
        self.status = status
