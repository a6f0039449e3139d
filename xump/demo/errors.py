"""The errors that end the demo, each with a message for its user."""


class DemoError(Exception):
    """The root of the tree; never raised itself."""


class MissingExtra(DemoError):
    """The demo's data or `rich` are not installed."""


class Unwritable(DemoError):
    """The demo cannot write its output."""


class ProcessEnded(DemoError):
    """The process that was to be killed ended by itself."""
