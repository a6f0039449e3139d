"""LMDB's file, walked without LMDB. For the store `lmdb` alone."""
