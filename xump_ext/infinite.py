"""`INFINITE`, the credit that is never used up."""

import enum


class Infinite(enum.Enum):
    """The type of `INFINITE`, its only member. INFINITE is larger than any number of credits, and equals no number."""

    INFINITE = "INFINITE"

    def __repr__(self) -> str:
        return "INFINITE"


INFINITE = Infinite.INFINITE
"""Credit that is never used up: a selector that has it leaves nothing outstanding."""
