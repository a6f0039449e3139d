"""The compiled engine against the model where selectors of several queues stand in line for room in the same few targets, in
building blocks that last.

`test_small_programs.py` has too few queues for a line, and its blocks end before much has come to wait. Here the sources go by
priority or key more often than not, messages leave the line in other ways than to the target (they expire, are purged, held, or
taken by hand), and what the block's end makes of all that must be the order that the rules say.

A program is a seed. `XUMP_STEPS` is how many steps are made at the least.
"""

import pytest

from tests.model.steps import STEPS
from tests.model.test_small_programs import MIXES, Dense
from xump import INFINITE, always, bounce_to, copy_to, deliver, field, match, move_to
from xump.durability import opening

STEPS_PER_RUN = 100
SOURCES, TARGETS = ["a", "b", "c"], ["d", "e", "f"]


class Lines(Dense):
    """Six queues, of which three are targets. A target may go on to another one."""

    CALLS = ["publish"] * 6 + [
        "publish_many", "take", "take", "conclude", "conclude", "link", "on_selector", "on_selector", "on_selector", "on_queue",
        "on_queue", "delete_selector", "wait", "wait", "get", "block", "reopen"]

    def draw_graph(self):
        self.features |= {feature for feature in ("priority", "group", "queue ttl", "get") if self.chance.random() < 0.5}
        self.features -= {"transit", "staged"}
        self.names = self.targets = [*SOURCES, *TARGETS]
        self.conditions = [always, always, match("eq", "d")]
        self.limits = self.chance.choice([[None, 1, 2, 4], [None, None, 2], [1, 2]])
        self.credits = [1, 2, 3, INFINITE, INFINITE]
        self.links = 6

    def action(self, source):
        choice = self.chance.choice
        kind = choice([move_to] * 6 + [copy_to, bounce_to, deliver])
        target = choice([*TARGETS, *TARGETS, field("address")])
        return deliver("d") if kind is deliver else kind(target)

    def message(self):
        _, *rest = super().message()
        return self.chance.choice(TARGETS), *rest


@pytest.mark.filterwarnings("ignore:held since their store was opened")
@pytest.mark.parametrize("mix", MIXES)
def test_the_engine_does_what_the_model_does_where_selectors_stand_in_line(mix, monkeypatch):
    monkeypatch.setattr(opening, "RESIDENT_BYTES_MAX", 500)
    for seed in range(max(1, STEPS // 4 // STEPS_PER_RUN)):
        Lines(f"{mix} {seed}", *MIXES[mix]).run(STEPS_PER_RUN)
