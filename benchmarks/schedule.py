"""What it costs to have something happen later: the schedule of the core. `python -m benchmarks.schedule`.

So many are scheduled for random moments of an hour; then all fall due, in order. In a second run half of them are cancelled
first. Nanoseconds each, of the processor: on a busy machine, too, only what this thread did.

    add         scheduled, one by one
    fall due    taken, one by one, in order; of Xump's, the entry is looked at
    cancel      half of them, in any order
    due, rest   the others fall due: what was cancelled is skipped on the way

The peers do it in Python: `heapq` with tuples of moment and number, where what is cancelled is remembered in a set; `sched` of
the standard library; APScheduler, whose memory job store is asked for the jobs that are due, and forgets them. The last two are
measured with 10,000 only: `sched` looks through all of its events for one that is cancelled.

The bar is on the rate beside heapq's with as many.
"""

from __future__ import annotations

import heapq
import random
import sched
import statistics
from array import array
from datetime import UTC, datetime, timedelta
from functools import cache, partial
from time import thread_time_ns
from typing import Any

from benchmarks.harness import Contestant, compare, describe, parser_of, speed_table, take_turns
from benchmarks.peers import build

START = 1_700_000_000 * 10**9
HOUR = 3_600 * 10**9
BAR = 3.0
FEW = 10_000


@cache
def moments(count: int) -> array[int]:
    draw = random.Random(7)
    return array("q", (START + int(draw.random() * HOUR) for _ in range(count)))


@cache
def half(count: int) -> array[int]:
    return array("q", random.Random(8).sample(range(count), count // 2))


def ours(loop: Any, count: int) -> dict[str, float]:
    dues, gone = moments(count), half(count)
    run = loop.Loop(count)
    run.make()
    add = run.added(dues)
    due, _ = run.popped()
    run = loop.Loop(count)
    run.make()
    run.added(dues)
    cancel = run.cancelled(gone)
    rest, left = run.popped()
    run.check()
    return {"add": add / count, "fall due": due / count, "cancel": cancel / len(gone), "due, rest": rest / left}


def by_heapq(count: int) -> dict[str, float]:
    dues, gone = moments(count).tolist(), half(count).tolist()
    took = {}
    for cancelled in (set[int](), set[int](gone)):
        heap: list[tuple[int, int]] = []
        started = thread_time_ns()
        for number, due in enumerate(dues):
            heapq.heappush(heap, (due, number))
        took["add"] = (thread_time_ns() - started) / count
        if cancelled:
            cancelled = set()
            started = thread_time_ns()
            for number in gone:
                cancelled.add(number)
            took["cancel"] = (thread_time_ns() - started) / len(gone)
        left = 0
        started = thread_time_ns()
        while heap:
            if heapq.heappop(heap)[1] not in cancelled:
                left += 1
        took["due, rest" if cancelled else "fall due"] = (thread_time_ns() - started) / left
    return took


def by_sched(count: int) -> dict[str, float]:
    dues, gone = moments(count).tolist(), half(count).tolist()
    took = {}
    for cancels in (False, True):
        ran: list[int] = []
        scheduler = sched.scheduler(lambda: START + HOUR, lambda _: None)
        started = thread_time_ns()
        events = [scheduler.enterabs(due, 1, ran.append, (number,)) for number, due in enumerate(dues)]
        took["add"] = (thread_time_ns() - started) / count
        if cancels:
            started = thread_time_ns()
            for number in gone[:100]:
                scheduler.cancel(events[number])
            took["cancel"] = (thread_time_ns() - started) / 100
        started = thread_time_ns()
        scheduler.run()
        took["due, rest" if cancels else "fall due"] = (thread_time_ns() - started) / len(ran)
    return took


def by_apscheduler(count: int) -> dict[str, float]:
    from apscheduler.jobstores.memory import MemoryJobStore
    from apscheduler.schedulers.background import BackgroundScheduler

    times = [datetime.fromtimestamp(due / 1e9, tz=UTC) + timedelta(days=36_500) for due in moments(count).tolist()]
    gone = half(count).tolist()
    took = {}
    for cancels in (False, True):
        store = MemoryJobStore()
        scheduler = BackgroundScheduler(jobstores={"default": store}, timezone=UTC)
        scheduler.start(paused=True)
        started = thread_time_ns()
        for number, when in enumerate(times):
            scheduler.add_job(print, "date", run_date=when, id=str(number))
        took["add"] = (thread_time_ns() - started) / count
        if cancels:
            started = thread_time_ns()
            for number in gone:
                scheduler.remove_job(str(number))
            took["cancel"] = (thread_time_ns() - started) / len(gone)
        left = 0
        started = thread_time_ns()
        while (when := store.get_next_run_time()) is not None:
            for job in store.get_due_jobs(when):
                store.remove_job(job.id)
                left += 1
        took["due, rest" if cancels else "fall due"] = (thread_time_ns() - started) / left
        scheduler.shutdown()
    return took


def main() -> None:
    """Parse the command line and run."""
    parser = parser_of(__doc__)
    parser.add_argument("--most", type=int, default=10_000_000, help="so many, in the core alone: 200 bytes each")
    options = parser.parse_args()
    loop = build("schedule_loop")
    shared = (FEW, 100_000 if options.quick else 1_000_000)
    contestants: dict[str, Contestant] = {}
    for count in shared:
        contestants[f"xump {count:,}"] = partial(ours, loop, count)
        contestants[f"heapq {count:,}"] = partial(by_heapq, count)
    contestants[f"sched {FEW:,}"] = partial(by_sched, FEW)
    contestants[f"apscheduler {FEW:,}"] = partial(by_apscheduler, FEW)
    if not options.quick:
        contestants[f"xump {options.most:,}"] = partial(ours, loop, options.most)
    times = take_turns(contestants, options.rounds)
    describe("apscheduler")
    table = speed_table(34)
    for act in ("add", "fall due", "cancel", "due, rest"):
        for count in shared:
            others = ["sched", "apscheduler"] if count == FEW else []
            compare(table, times, f"heapq {count:,}, {act}", [f"xump {count:,}, {act}"], BAR if act != "cancel" else None)
            for other in others:
                table.print(f"{other} {count:,}, {act}", f"{statistics.median(times[f'{other} {count:,}, {act}']):.0f}")
        if not options.quick:
            most = times[f"xump {options.most:,}, {act}"]
            table.print(f"xump {options.most:,}, {act}", *(f"{f(most):.0f}" for f in (statistics.median, min, max)))


if __name__ == "__main__":
    main()
