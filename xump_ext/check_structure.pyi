"""The containers that `check` walks over; not seen from Python."""
