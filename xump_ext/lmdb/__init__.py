"""Reads the trees of an LMDB file without LMDB. Only the store `lmdb` uses it."""
