"""The contract of stores as tests: for authors of stores. Subclass `StoreConformance`."""

from xump.testing.conformance import StoreConformance

__all__ = ["StoreConformance"]
