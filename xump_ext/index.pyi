"""Chunks and pages of a queue's index; for the compiled modules only."""

