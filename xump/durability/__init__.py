"""Durable stores of an engine: how they are opened, when their changes are written, and how they are closed."""
