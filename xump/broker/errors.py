"""Errors of the protocol: each ends a channel or a connection, with a code and a text that clients know from RabbitMQ."""

from __future__ import annotations

NAMES = {
    311: "CONTENT_TOO_LARGE", 312: "NO_ROUTE", 313: "NO_CONSUMERS", 320: "CONNECTION_FORCED", 402: "INVALID_PATH",
    403: "ACCESS_REFUSED", 404: "NOT_FOUND", 405: "RESOURCE_LOCKED", 406: "PRECONDITION_FAILED", 501: "FRAME_ERROR",
    502: "SYNTAX_ERROR", 503: "COMMAND_INVALID", 504: "CHANNEL_ERROR", 505: "UNEXPECTED_FRAME", 506: "RESOURCE_ERROR",
    530: "NOT_ALLOWED", 540: "NOT_IMPLEMENTED", 541: "INTERNAL_ERROR",
}

REPLY_TEXT_BYTES_MAX = 255


class ProtocolError(Exception):
    """A method that is refused: it ends the channel if `code` is one of a channel's, else the connection."""

    def __init__(self, code: int, text: str, method: int | None = None) -> None:
        super().__init__(text)
        self.code = code
        """The reply code."""
        self.method = method
        """Class and method, `class << 16 | method`, of what was refused; None: of what is being carried out."""

    @property
    def ends_channel_only(self) -> bool:
        """Whether the connection goes on."""
        return self.code in (311, 313, 403, 404, 405, 406)


def reply_text(code: int, text: str) -> str:
    """The text of a close: the name of the code, and the text, in at most 255 bytes."""
    said = f"{NAMES[code]} - {text}".encode()
    if len(said) > REPLY_TEXT_BYTES_MAX:
        said = said[: REPLY_TEXT_BYTES_MAX - 3].decode(errors="ignore").encode() + b"..."
    return said.decode()


def not_found(what: str) -> ProtocolError:
    """404 for a queue or an exchange."""
    return ProtocolError(404, f"no {what}")


def refused(text: str) -> ProtocolError:
    """403."""
    return ProtocolError(403, text)


def precondition(text: str) -> ProtocolError:
    """406."""
    return ProtocolError(406, text)


def locked(what: str) -> ProtocolError:
    """405 for a queue that another connection has, or this one as another than it says."""
    return ProtocolError(
        405, f"cannot obtain exclusive access to locked {what}. It could be originally declared on another connection or the "
             "exclusive property value does not match that of the original declaration.")
