"""Who waits for whom, that `check` walks over; not seen from Python."""
