"""The files and standard streams of the command line: here their errors become errors of a command, with an exit code.

A stream that is closed (`<&-`) has a number that the next file, or a socket, would get. So these numbers are taken first. Nothing
can be read from a standard input that was closed; output that nobody wants goes to /dev/null.
"""

from __future__ import annotations

import io
import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import TextIO

from xump.cli.exit import CommandError

INPUT = "standard input"


@contextmanager
def reading(name: str) -> Iterator[None]:
    """A block that reads a file or standard input."""
    try:
        yield
    except OSError as error:
        raise CommandError(f"{name} cannot be read: {error.strerror or error}") from None


@contextmanager
def writing(name: str) -> Iterator[None]:
    """A block that writes a file."""
    try:
        yield
    except OSError as error:
        raise CommandError(f"{name} cannot be written: {error.strerror or error}") from None


@contextmanager
def standard_streams() -> Iterator[None]:
    """A block in which the standard streams are there, and errors of output are those of the command."""
    _occupy()
    before = sys.stdout, sys.stderr
    sys.stdout, sys.stderr = outputs = _output(before[0], "standard output"), _output(before[1], "standard error")
    try:
        yield
    finally:
        sys.stdout, sys.stderr = before
        for output in outputs:
            if isinstance(output, Output):
                with suppress(CommandError, BrokenPipeError):
                    output.flush()
                output.detach()         # else its end would close the stream of before


class Output(io.TextIOWrapper):
    """Standard output or error. After an error it writes to /dev/null, as Python's own flush at exit would fail, too.

    The error is no OSError: it may come while a store is read, and would be taken for one of the store.
    """

    def __init__(self, stream: io.TextIOWrapper, what: str) -> None:
        """In place of a stream; `what`: its name in errors."""
        super().__init__(stream.buffer, stream.encoding, "backslashreplace",    # names may have any character
                         line_buffering=stream.line_buffering, write_through=stream.write_through)
        self._stream = stream
        self._what = what

    def isatty(self) -> bool:
        """Whether it is a terminal."""
        return self._stream.isatty()

    def write(self, text: str, /) -> int:
        """Write a text. Raises CommandError, and BrokenPipeError if the reader has ended, as `head` does."""
        with self._checked():
            return super().write(text)

    def flush(self) -> None:
        """Write what waits in the buffer. Raises as `write` does."""
        with self._checked():
            super().flush()

    def write_bytes(self, content: bytes) -> None:
        """Write bytes, and flush. Raises as `write` does."""
        self.flush()
        with self._checked():
            self.buffer.write(content)
            self.buffer.flush()

    @contextmanager
    def _checked(self) -> Iterator[None]:
        try:
            yield
        except OSError as error:
            null = os.open(os.devnull, os.O_WRONLY)
            os.dup2(null, self.fileno())
            os.close(null)
            if isinstance(error, BrokenPipeError):
                raise
            raise CommandError(f"{self._what} cannot be written: {error.strerror or error}") from None


def _output(stream: TextIO, what: str) -> TextIO:
    if not isinstance(stream, io.TextIOWrapper) or isinstance(stream, Output):
        return stream           # of a program that calls `main`
    stream.flush()
    return Output(stream, what)


def _occupy() -> None:
    """Take the numbers 0 to 2 if they are free, as stores do, and replace the streams that Python has none for."""
    from xump.stores.owner import fill_standard

    fill_standard()
    for name, mode in (("stdin", "r"), ("stdout", "w"), ("stderr", "w")):
        if getattr(sys, name) is None:
            setattr(sys, name, open(os.open(os.devnull, os.O_WRONLY), mode))    # noqa: SIM115 - it stays open
