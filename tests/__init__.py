"""The tests, in folders that mirror the packages.

Some layers of the core are tested through what is built on them: `select` by `route` and `model`, `log` and `recovery` by
`durability`, `lmdb`, `ring` and `model`. The parser of `xump/filters` is tested in `match`, `xump/topologies.py` in `engine`, and
`xump/testing` by the stores that it tests, in `stores`, `lmdb` and `ring`.
"""
