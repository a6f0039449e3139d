"""A name that a lambda or an inner function uses is a cell, which Python makes anew in each call of the outer function, also if
the lambda is never reached: some 800 instructions for three of them. Calls that come with each message have none."""

import pytest

from xump import Engine
from xump._graph import Graph
from xump._mappings import Registry, SelectorRegistry

EACH_MESSAGE = [
    Engine.take, Engine.take_batch, Engine.get, Engine.deliveries, Engine.request,
    Engine._checked_taking, Engine._queue, Engine._requested, Engine._replies,
    *(vars(Graph)[name].fget for name in ("queues", "selectors", "stores")),
    Registry.__init__, Registry.__getitem__, Registry.get, Registry.__contains__,
    SelectorRegistry.__init__, SelectorRegistry.__getitem__, SelectorRegistry.get, SelectorRegistry._id]


@pytest.mark.parametrize("function", EACH_MESSAGE, ids=lambda function: function.__qualname__)
def test_a_call_for_each_message_makes_no_cells(function):
    assert function.__code__.co_cellvars == ()
