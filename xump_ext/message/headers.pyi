"""Compact headers, for the compiled modules only."""

headers_bytes_max: int
