"""The engine as Python calls it: one call at a time."""
