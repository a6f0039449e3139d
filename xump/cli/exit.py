"""The exit codes of `xump`, and the error that ends a command with one of them."""

from __future__ import annotations

import enum


class ExitCode(enum.IntEnum):
    """The status that a command gives the shell."""

    OK = 0
    """All is well."""
    PROBLEM_FOUND = 1
    """The topology or the store is wrong, there is no such store or queue, or the broker could not take what it was sent."""
    NOT_CARRIED_OUT = 2
    """The command could not be carried out: a wrong option, a file that cannot be read, a broker that does not answer, a
    program that is not installed."""
    INTERRUPTED = 130
    """Ctrl-C ended the command; 128 + SIGINT, as shells have it."""


class CommandError(Exception):
    """Ends a command with a sentence on standard error, and an exit code."""

    def __init__(self, said: str, code: ExitCode = ExitCode.NOT_CARRIED_OUT) -> None:
        super().__init__(said)
        self.code = code
        """The exit code of the command."""
