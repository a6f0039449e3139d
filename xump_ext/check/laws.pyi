"""Verifies all laws of the engine from scratch, for `Engine.check()`."""

from xump_ext.engine.core import Core

def check_laws(engine: Core) -> None: ...
