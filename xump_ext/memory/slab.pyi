"""The slab allocator: cells for all that the engines of a process have."""

def memory_bytes() -> int:
    """How many bytes the engines of this process use for messages, and for what is known of them."""

def prepare_memory(size: int) -> None:
    """Have up to `size` bytes of memory ready for messages, in pieces of 2 MiB."""

def keep_memory(size: int) -> None:
    """Keep up to `size` bytes ready that messages have left, instead of giving them back to the system at once."""

def release_memory() -> None:
    """Give back to the system what was ready, and not needed, since the last call of this."""
