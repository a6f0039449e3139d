"""The laws of the engine, verified from scratch."""

from xump_ext.core import Core

def check(engine: Core) -> None: ...
