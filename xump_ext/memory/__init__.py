"""Slabs, heaps, free lists and growable arrays. Nothing here knows about messages."""
