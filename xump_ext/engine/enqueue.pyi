"""Messages are let into their queues: a part of the engine's class, after `EngineStores`."""

from xump_ext.engine.stores import EngineStores

class EngineEnqueue(EngineStores):
    """A part of the engine's class: messages are let in."""
