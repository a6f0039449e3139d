"""Tests of the Spark connector, which need the extra `spark` and Java.

`python -m tests.spark` installs the first and runs them.
"""
