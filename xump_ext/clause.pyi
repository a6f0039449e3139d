"""Clauses: conditions of a queue, compiled."""
