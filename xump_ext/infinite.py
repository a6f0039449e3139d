"""INFINITE: the credit that is never used up."""

import enum


class Infinite(enum.Enum):
    """The type of `INFINITE`; it has this one member. It is larger than any number of credits and equal to none."""

    INFINITE = "INFINITE"

    def __repr__(self) -> str:
        return "INFINITE"


INFINITE = Infinite.INFINITE
"""Credit that is never used up: a selector that has it leaves nothing outstanding."""
