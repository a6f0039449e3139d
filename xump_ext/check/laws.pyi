"""The laws of the engine, verified from scratch."""

from xump_ext.engine.core import Core

def check_laws(engine: Core) -> None: ...
