"""Compact headers, for the compiled modules only."""

headers_bytes_max: int

class Reader: ...

def annex_name(kind: int) -> str | None:
    """The name of a registered kind of annexes; None: it is not registered."""

