"""Workloads: graphs of queues and selectors, messages for them, and an order of calls, drawn at random but reproducibly.

`vocabulary` has the pools of names, conditions, actions and properties that all draw from. `shapes` draws graphs, as the plain
dicts that `Engine.apply` takes. `traffic` draws messages that fit a graph, yours too. `rhythm` draws an order of publishing,
taking, acking, joining and leaving, and plays it. `running` measures, and `report` shows the result.
Each draws by a `random.Random`, so a seed gives the same workload again. `xump.workloads.strategies` has the same as strategies
of Hypothesis, and `xump.workloads.calls` those of single calls; nothing else here needs Hypothesis.

>>> import random
>>> from xump import Engine
>>> from xump.workloads import drawn_workload, play
>>> workload = drawn_workload(random.Random(1), shape="wolfpack")
>>> with Engine() as engine:
...     played = play(engine, workload, messages=1_000)
...     engine.check()
>>> played.published
1000
"""

from xump.workloads.rhythm import Played, Step, Workload, drawn_workload, play
from xump.workloads.running import Report, bench
from xump.workloads.shapes import SHAPES, drawn_topology, in_folder
from xump.workloads.traffic import PROFILES, Traffic
from xump.workloads.vocabulary import LOAD, TIGHT, Vocabulary

__all__ = [
    "LOAD", "PROFILES", "SHAPES", "TIGHT", "Played", "Report", "Step", "Traffic", "Vocabulary", "Workload", "bench",
    "drawn_topology", "drawn_workload", "in_folder", "play"]
