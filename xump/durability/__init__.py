"""Durable stores beside an engine: how one joins it, and when its groups are written."""
