"""The books of durable stores, as `check` sees them; not seen from Python."""
