"""A class owns the compiled methods that it inherits, so that a call need not look for their class."""

def own_methods(kind: type) -> None:
    """Have a class own the compiled methods of its bases, but for special ones (`__len__`) and those that are overridden."""
