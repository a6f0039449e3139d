"""What is left to be done, as `check` sees it; not seen from Python."""
