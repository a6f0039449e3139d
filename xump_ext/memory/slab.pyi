"""The slab allocator: cells for all that the engines of a process have."""

def memory_bytes() -> int:
    """How many bytes the engines of this process use for messages, and for what is known of them."""

def prepare_memory(size: int) -> None:
    """Have `size` bytes of memory ready for messages, at most 2 MiB more."""
