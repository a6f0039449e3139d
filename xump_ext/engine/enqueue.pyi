"""Messages are let into their queues: the third part of the engine's class, after `EngineStores`."""

from xump_ext.engine.stores import EngineStores

class EngineEnqueue(EngineStores):
    """The third part of the engine's class: messages are let in."""
