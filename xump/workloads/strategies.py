"""Topologies and workloads as strategies of Hypothesis, which this module needs: pip install 'xump[bench]'.

    from hypothesis import given
    from xump.workloads import play
    from xump.workloads.strategies import workloads

    @given(workloads())
    def test_nothing_is_lost(workload):
        with xump.Engine() as engine:
            play(engine, workload, messages=100)
            engine.check()
"""

from __future__ import annotations

import random
from collections.abc import Sequence

try:
    from hypothesis import strategies
    from hypothesis.strategies import SearchStrategy
except ImportError:
    raise ImportError("xump.workloads.strategies needs hypothesis, which is not installed: pip install 'xump[bench]'") from None

from xump.workloads.rhythm import Step, Workload, drawn_workload
from xump.workloads.shapes import Topology, drawn_topology
from xump.workloads.vocabulary import LOAD, Vocabulary

__all__ = ["SearchStrategy", "strategies", "topologies", "workloads"]


def topologies(
    shape: str | None = None, vocabulary: Vocabulary = LOAD, stores: Sequence[str] = (),
) -> SearchStrategy[Topology]:
    """Plain dicts for `Engine.apply`, of that shape, None: of any; with queues in RAM and in stores of these types."""
    return _chances().map(lambda chance: drawn_topology(chance, shape, vocabulary, stores))


def workloads(
    shape: str | None = None, profile: str | None = None, stores: Sequence[str] = (),
) -> SearchStrategy[Workload]:
    """Workloads for `play`, with a topology of that shape and messages of that profile, None: of any; with queues in RAM and in
    stores of these types.

    Hypothesis makes a failing one small: it takes away selectors and steps.
    """
    drawn = _chances().map(lambda chance: drawn_workload(chance, shape, profile, stores))
    kept_selectors, kept_steps = strategies.sets(strategies.integers(0, 24)), strategies.sets(strategies.integers(0, 5))
    return strategies.builds(_without, drawn, kept_selectors, kept_steps)


def _chances() -> SearchStrategy[random.Random]:
    return strategies.randoms(use_true_random=False)


def _without(workload: Workload, kept_selectors: set[int], kept_steps: set[int]) -> Workload:
    """The selectors and steps of these numbers; all of them if there is none."""
    selectors = workload.topology["selectors"]
    kept = [selector for number, selector in enumerate(selectors) if number in kept_selectors] or selectors
    steps: list[Step] = [step for number, step in enumerate(workload.steps) if number in kept_steps]
    return workload._replace(topology={**workload.topology, "selectors": kept}, steps=tuple(steps) or workload.steps)
