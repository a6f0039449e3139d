"""The output of the demo: progress, tables, results, the proof that the books balance, and the files.

Needs `rich`, so `xump.demo.main` imports it only after it has looked for that.
"""

from __future__ import annotations

import io
import json
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rich import box
from rich.console import Console
from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn
from rich.table import Table

from xump.cli.store_report import counted, size_text
from xump.demo.actors import NACK_EVERY
from xump.demo.durable import Recovery
from xump.demo.errors import Unwritable
from xump.demo.over_broker import SUBSCRIBERS, Outcome
from xump.demo.replay import FLIGHTS_MIN, Before, Replay
from xump.queue import State
from xump.topology.drawing import to_dot, to_mermaid
from xump.topology.picture import to_svg

if TYPE_CHECKING:
    from xump.demo.over_spark import Outcome as OverSpark

WIDTH = 132
"""Columns of an output that is no terminal."""

RATE_MIN = 10_000
"""Flights; with fewer, a rate says little."""


class Screen:
    """Writes to a terminal, or plain lines; and everything once more into the report."""

    def __init__(self, quiet: bool) -> None:
        self.quiet = quiet
        self.console = Console(quiet=quiet, highlight=False)
        if not self.console.is_terminal:
            self.console = Console(quiet=quiet, highlight=False, width=WIDTH)
        self.record = Console(record=True, quiet=False, width=WIDTH, file=io.StringIO(), highlight=False)

    def show(self, what: Any = "") -> None:
        for console in (self.console, self.record):
            console.print(what, markup=False, soft_wrap=isinstance(what, str))

    @contextmanager
    def progress(self, total: int) -> Iterator[Callable[[int, str], None]]:
        """Gives a function to call with the number of published flights, and a line of news."""
        if self.console.is_terminal and not self.quiet:
            # All fits into 80 columns.
            count, news = TextColumn("{task.completed:>7,.0f}/{task.total:,.0f} flights"), TextColumn("{task.description}")
            with Progress(BarColumn(14), count, TimeElapsedColumn(), news, console=self.console) as bar:
                task = bar.add_task("", total=total)
                yield lambda done, text: bar.update(task, completed=done, description=text)
            return
        tenth = 0

        def tell(done: int, news: str) -> None:
            nonlocal tenth
            if done * 10 // total > tenth:
                tenth = done * 10 // total
                self.console.print(f"{done:>9,} flights   {news}".rstrip(), markup=False)

        yield tell


@dataclass
class AfterKill:
    """The story of a process that was killed: a table, and the broken promises as sentences."""

    rows: list[tuple[str, str]]
    wrong: list[str]


def report(replay: Replay, airlines: dict[str, str], folder: Path, screen: Screen, after: AfterKill | None = None) -> int:
    """Shows everything, writes the files, and returns the exit status: 1 when a book does not balance."""
    stats = with_departed(replay)
    screen.show()
    if after is not None:
        screen.show(kill_table(after))
        screen.show()
    screen.show(queue_table(replay, stats))
    screen.show()
    screen.show(selector_table(replay, stats))
    screen.show()
    screen.show("What was found")
    for line in findings(replay, airlines):
        screen.show(f"  {line}")
    screen.show("\nThe books")
    lines, balanced = books(replay, stats)
    if after is not None:
        lines += [f"not as promised: {sentence}" for sentence in after.wrong] or [
            f"read out of the store once more, flight by flight: {counted(replay.published, 'flight')}, each once; the "
            f"{after.rows[0][1]} confirmed before the kill among them"]
        balanced = balanced and not after.wrong
    for line in lines:
        screen.show(f"  {line}")
    screen.show("\nThe rate")
    for line in rates(replay, stats):
        screen.show(f"  {line}")
    write_files(replay, stats, folder, screen)
    verdict = "the books balance" if balanced else "THE BOOKS DO NOT BALANCE"
    seconds = replay.total_seconds + (replay.before.seconds if replay.before else 0.0)
    print(f"{counted(replay.published, 'flight')} in {seconds:.2f} s, {replay.published / seconds:,.0f} messages/s; {verdict}; "
          f"see {folder / 'graph.svg'}")
    return 0 if balanced else 1


def report_broker(outcome: Outcome, folder: Path, screen: Screen) -> int:
    """The same for the flights that went through a broker."""
    table = new_table("Clients of the broker", "client")
    for title in ("flights", "redelivered"):
        table.add_column(title, justify="right", no_wrap=True)
    table.add_column("")
    for one in (*outcome.workers, *outcome.subscribers):
        kind = "a worker of pika" if one in outcome.workers else f"a subscriber of aio-pika, {SUBSCRIBERS[one.name]}"
        table.add_row(one.name, f"{one.handled:,}", f"{one.again.total():,}", f"{kind}{', killed -9' if one.killed else ''}")
    screen.show()
    screen.show(table)
    wrong, twice = outcome.wrong(), outcome.first.total() + outcome.again.total() - outcome.published
    screen.show("\nThe books")
    for sentence in wrong or [
            f"{counted(outcome.published, 'flight')} published and confirmed; each was handled by a worker",
            f"{counted(twice, 'flight')} handled twice: not acked by the killed worker; marked redelivered the second time",
            *(f"{one.name}: {counted(one.handled, 'flight')}, all that match" for one in outcome.subscribers)]:
        screen.show(f"  {sentence}")
    verdict = "THE BOOKS DO NOT BALANCE" if wrong else "the books balance"
    print(f"{counted(outcome.published, 'flight')} through a broker in {outcome.seconds:.2f} s, "
          f"{outcome.published / outcome.seconds:,.0f} flights/s; {verdict}; see {folder / 'broker.svg'}")
    return int(bool(wrong))


def report_spark(outcome: OverSpark, screen: Screen) -> int:
    """The same for the flights that were dataframes."""
    table = new_table("The three topologies", "")
    table.add_column("messages", justify="right", no_wrap=True)
    for name, count in outcome.handled.items():
        table.add_row(name, f"{count:,}")
    screen.show()
    screen.show(table)
    wrong = outcome.wrong()
    screen.show("\nThe books")
    for sentence in wrong or [
            f"{counted(outcome.flights, 'flight')} written by the tasks of Spark, one of which was killed",
            f"{counted(outcome.found, 'row')} read back from the history, of {outcome.different:,} different flights",
            "each flight went to one worker, and to each subscriber whose pattern matches"]:
        screen.show(f"  {sentence}")
    verdict = "THE BOOKS DO NOT BALANCE" if wrong else "the books balance"
    print(f"{counted(outcome.flights, 'flight')} through Spark and back in {outcome.seconds:.2f} s, with its start; {verdict}")
    return int(bool(wrong))


def with_departed(replay: Replay) -> dict[str, Any]:
    """The engine's `stats()`, with the queues and selectors of departed workers in their places."""
    stats = replay.engine.stats()
    departed = {worker.name: worker.departed for worker in replay.workers if worker.departed}
    last = max(map(list(stats["queues"]).index, (worker.name for worker in replay.workers if not worker.departed)))
    queues = list(stats["queues"].items())
    left = [(name, one.queue) for name, one in departed.items()]
    selectors = stats["selectors"] | {id: counts for one in departed.values() for id, counts in one.selectors.items()}
    return stats | {"queues": dict([*queues[:last + 1], *left, *queues[last + 1:]]), "selectors": dict(sorted(selectors.items()))}


def notes(replay: Replay, stats: dict[str, Any]) -> dict[str, list[str]]:
    """Notes by queue, for the graph, which cannot show this any more: messages that came before a kill, and messages that
    departed workers had taken or dead-lettered."""
    said: dict[str, list[str]] = {}
    if replay.before:
        said = {name: [f"{count:,} of them before the kill"] for name, count in replay.before.entered.items() if count}
        said.setdefault("parse", []).append(f"{replay.before.taken_from_pack:,} moved before the kill")
    for worker in replay.workers:
        if worker.departed:
            moved = stats["selectors"][worker.recipient.supply.id]
            said.setdefault("parse", []).append(f"{moved['served'] - moved['returned']:,} moved to {worker.name}, which left")
            letters = sum(worker.departed.queue["dead_lettered"].values())
            if letters:
                said.setdefault("dead", []).append(f"{letters:,} of them from {worker.name}, which left")
    return said


def named(replay: Replay, queue: str) -> str:
    return queue if queue in replay.engine.queues else f"{queue} (left)"


# ---- tables

def rows_of(recovery: Recovery) -> list[tuple[str, str]]:
    """The table of the kill."""
    killed, found = recovery.killed, recovery.found
    confirmed, published = killed.confirmed, recovery.published
    return [
        ("flights whose publishing was confirmed (durable_id) before the kill -9", f"{confirmed:,}"),
        ("of these found in the store afterwards", f"{confirmed - len(recovery.lost):,}"),
        ("lost", f"{len(recovery.lost):,}"),
        ("also found: published, and not confirmed yet", f"{max(0, published - confirmed):,}"),
        ("gone with what was not confirmed: handed out, and published again now", f"{recovery.forgotten:,}"),
        ("parsed, and acked by a transaction: each of these counts once", f"{found.parsed.total():,}"),
        ("results that were confirmed and are lost", f"{recovery.lost_results:,}"),
        ("still to be parsed", f"{found.waiting.total():,}"),
        ("of these handed out before the kill, and again now: delivered twice, marked redelivered", f"{len(recovery.again):,}"),
        ("in the store twice", f"{len(recovery.doubled):,}"),
        ("time to open the store again", f"{recovery.seconds:.2f} s for {size_text(recovery.file_bytes)}"),
    ]


def kill_table(after: AfterKill) -> Table:
    table = new_table("A process was killed, another one went on", "")
    table.show_header = False
    table.add_column("", justify="right", no_wrap=True)
    for what, number in after.rows:
        table.add_row(what, number)
    return table


def queue_table(replay: Replay, stats: dict[str, Any]) -> Table:
    table = new_table("Queues (those in RAM: since the kill)" if replay.before else "Queues", "queue")
    for name in ("entered", "ready", "outstanding", "history", "settled"):
        table.add_column(name, justify="right", no_wrap=True)
    table.add_column("dropped, deleted, dead-lettered")
    for name, counts in stats["queues"].items():
        numbers = [counts[key] for key in ("entered", "ready", "outstanding", "history", "settled")]
        more = [f"{counts[what]:,} {what}" for what in ("deleted",) if counts[what]]
        more += [f"{count:,} {what}: {reason}" for what in ("dropped", "dead_lettered") for reason, count in counts[what].items()]
        table.add_row(named(replay, name), *(f"{number:,}" for number in numbers), "\n".join(more).replace("_", "-"))
    return table


def selector_table(replay: Replay, stats: dict[str, Any]) -> Table:
    table = new_table("Selectors (since the kill)" if replay.before else "Selectors", "no.")
    table.add_column("queue", no_wrap=True)
    table.add_column("when, do", overflow="fold")
    for name in ("credit", "served,\ncopied", "paid"):
        table.add_column(name, justify="right", no_wrap=True)
    table.add_column("also", no_wrap=True)
    recipients = [worker.recipient for worker in replay.workers]
    selectors = dict(replay.engine.selectors) | {
        one.id: one for recipient in recipients for one in (recipient.supply, recipient.outlet)}
    for number, counts in stats["selectors"].items():
        selector = selectors[number]
        credit = "" if not selector.do.credited else repr(counts["credit"])
        numbers = counts["served"] + counts["copied"], counts["paid"]       # a selector does one or the other
        besides = ended(replay, counts) | {what: counts[what] for what in ("dropped", "outstanding", "errors")}
        more = [f"{count:,} {what}" for what, count in besides.items() if count]
        table.add_row(str(number), named(replay, counts["source"]), f"{selector.when!r}\n{selector.do!r}", credit,
                      *(f"{number:,}" if number else "" for number in numbers), "\n".join(more))
    return table


def ended(replay: Replay, counts: dict[str, Any]) -> dict[str, int]:
    """The unacked deliveries to a worker, by their end. The engine counts all of them as returned, since their credit is."""
    for worker in replay.workers:
        if worker.name == counts["source"]:
            came_back = counts["returned"] - worker.nacked - worker.rejected
            return {"nacked": worker.nacked, "rejected": worker.rejected, "returned": came_back}
    return {"returned": counts["returned"]}


def new_table(title: str, first: str) -> Table:
    table = Table(title=title, title_justify="left", title_style="bold", box=box.SIMPLE_HEAD, show_edge=False)
    table.padding = (0, 1, 0, 0)
    table.add_column(first, no_wrap=True)
    return table


# ---- results

def findings(replay: Replay, airlines: dict[str, str]) -> Iterator[str]:
    table = {carrier: delays for carrier, delays in replay.table().items() if delays.flights >= FLIGHTS_MIN}
    if table:
        order = sorted(table, key=lambda carrier: table[carrier].mean)
        for what, carrier in (("latest", order[-1]), ("earliest", order[0]))[: len(order)]:
            name = airlines.get(carrier, carrier)
            yield f"the {what} airline: {name}, {table[carrier].mean:+.1f} min on average over {table[carrier].flights:,} flights"
    whole, answers = replay.table(), replay.reporter.answers
    agree = sum(answers[carrier]["mean"] == whole[carrier].mean for carrier in whole)
    yield (f"the reporter asked the clerk for {counted(len(whole), 'airline')}; {counted(agree, 'answer')} came, "
           "as in the workers' tables")
    yield f"the letter to {', '.join(replay.reporter.returned) or 'nobody'} came back: there is no such recipient"
    for listener in replay.listeners:
        if listener.heard:
            airport, count = max(listener.heard.items(), key=lambda item: (item[1], item[0]))
            flights = counted(sum(listener.heard.values()), "flight")
            often = f"most often to {airport} ({count:,})" if len(listener.heard) > 1 else f"{'all ' * (count > 1)}to {airport}"
            yield f"{listener.name} heard of {flights}, {often}"
    for message in replay.engine.queues["records"].browse(state="history", reverse=True, limit=3):
        yield f"more than ten hours late: {message.address}, {message.headers['arr_delay']:,} min (from the history of `records`)"
    leaver = replay.workers[-1]
    if leaver.stale:
        held = counted(leaver.stale, "message")
        yield f"{leaver.name} left with {held} in its hands: its acks were refused, others got the work"
    else:
        yield f"{leaver.name} left with nothing in its hands"
    clumsy = replay.workers[2]
    if clumsy.nacked:
        yield (f"{clumsy.name} nacked {clumsy.nacked:,} of the {clumsy.taken:,} that it took; each came again, and was acked the "
               "second time")
    else:
        yield f"{clumsy.name} nacked nothing: it does once in {NACK_EVERY}"


# ---- the proof

def books(replay: Replay, stats: dict[str, Any]) -> tuple[list[str], bool]:
    """A line for each queue, one for the flights; and whether all hold. Reads the messages still in a queue, to count them once
    more."""
    lines, balanced = [], True
    names = {name: named(replay, name) for name in stats["queues"]}
    width = max(map(len, names.values()))
    states: tuple[State, ...] = ("ready", "outstanding", "history")
    for name, counts in stats["queues"].items():
        dropped = sum(counts["dropped"].values())
        parts = {key: counts[key] for key in ("ready", "outstanding", "history", "settled", "deleted")} | {"dropped": dropped}
        queue = replay.engine.queues.get(name)
        as_browsed = queue is None or all(len(list(queue.browse(state=state))) == counts[state] for state in states)
        holds = as_browsed and counts["entered"] == sum(parts.values())
        balanced &= holds
        terms = " + ".join(f"{number:,} {key}" for key, number in parts.items() if number) or "0"
        lines.append(f"{names[name]:<{width}}  {counts['entered']:,} entered {'=' if holds else '≠'} {terms}")
    before = replay.before or Before()
    acked, rejected = (sum(getattr(worker, what) for worker in replay.workers) + getattr(before, what)
                       for what in ("acked", "rejected"))
    holds = replay.published == acked + rejected + replay.cancelled
    for name, flows in (("parse", moves(replay, stats)), ("dead", dead_letters(replay, stats))):
        entered = stats["queues"][name]["entered"]
        holds = entered == sum(sum(parts.values()) for parts in flows.values())
        balanced &= holds
        terms = " + ".join(f"{sum(parts.values()):,} {what} ({', '.join(f'{part} {count:,}' for part, count in parts.items())})"
                           for what, parts in flows.items())
        lines.append(f"{name}: {entered:,} entered {'=' if holds else '≠'} {terms}")
    lines.append("ready, outstanding and history were counted again by browsing; engine.check() found nothing wrong")
    although = ["one worker left"] * any(worker.stale for worker in replay.workers)
    although += ["one gave messages back"] * any(worker.nacked for worker in replay.workers)
    lines.append(f"{counted(replay.published, 'flight')} {'=' if holds else '≠'} {acked:,} parsed + {rejected:,} rejected + "
                 f"{replay.cancelled:,} cancelled: each once{', though ' * bool(although)}{' and '.join(although)}")
    return lines, balanced and holds


def moves(replay: Replay, stats: dict[str, Any]) -> dict[str, dict[str, int]]:
    """The pack's messages that each wolf got and kept. A message that a wolf returned went to another one."""
    counts = {worker.name: stats["selectors"][worker.recipient.supply.id] for worker in replay.workers}
    moved = {name: numbers["served"] - numbers["returned"] for name, numbers in counts.items()}
    return {"moved": ({"before the kill": replay.before.taken_from_pack} if replay.before else {}) | moved}


def dead_letters(replay: Replay, stats: dict[str, Any]) -> dict[str, dict[str, int]]:
    """By reason: the number of dead letters from each queue."""
    flows: dict[str, dict[str, int]] = {}
    for name, counts in stats["queues"].items():
        for reason, count in counts["dead_lettered"].items():
            flows.setdefault(reason, {})[name] = count
    if replay.before and replay.before.rejected:        # by wolves whose queues were in RAM
        flows.setdefault("rejected", {})["before the kill"] = replay.before.rejected
    return flows


def rates(replay: Replay, stats: dict[str, Any]) -> Iterator[str]:
    seconds, entered = replay.seconds, stats["engine"]["entered"]
    total, published = replay.total_seconds, replay.published - (replay.before.published if replay.before else 0)
    if replay.before:
        yield (f"{replay.before.published / replay.before.seconds:,.0f} messages/s in the process that was killed, with its "
               "start and the opening of the store")
    if not published:
        return
    yield (f"{published / total:,.0f} messages/s in, {replay.deliveries / total:,.0f} deliveries/s out, "
           "with the work of all consumers, and the opening and reading of the table")
    if published < RATE_MIN:
        yield f"with fewer than {RATE_MIN:,} flights that is mostly the time to begin"
    yield (f"{total:.2f} s: {seconds['read']:.2f} s to read the table, {seconds['publish']:.2f} s in publish_many with its "
           f"routing, {seconds['consume']:.2f} s to take, parse and ack")
    yield (f"{entered:,} entries into queues, the reporter's letters among them; "
           f"{entered / max(published, 1):.2f} per flight")


# ---- files

def write_files(replay: Replay, stats: dict[str, Any], folder: Path, screen: Screen) -> None:
    left = notes(replay, stats)
    files = {
        "graph.svg": to_svg(replay.engine, notes=left),
        "graph.mmd": to_mermaid(replay.engine, notes=left),
        "graph.dot": to_dot(replay.engine, notes=left),
        "numbers.json": json.dumps(numbers(replay, stats), indent=1) + "\n",
        "report.txt": screen.record.export_text(),
    }
    for name, text in files.items():
        try:
            (folder / name).write_text(text, encoding="utf-8")
        except OSError as error:
            raise Unwritable(f"{folder / name} cannot be written: {error.strerror}") from None
    screen.show(f"\n{folder}: {', '.join(files)}")


def numbers(replay: Replay, stats: dict[str, Any]) -> dict[str, Any]:
    """Everything that the demo counted, for other programs."""
    return {
        "published": replay.published,
        "cancelled": replay.cancelled,
        "deliveries": replay.deliveries,
        "seconds": replay.seconds,
        "before_the_kill": vars(replay.before) if replay.before else None,
        "airlines": {carrier: vars(delays) for carrier, delays in replay.table().items()},
        "answers": replay.reporter.answers,
        "listeners": {listener.name: listener.heard for listener in replay.listeners},
        "workers": {worker.name: {key: getattr(worker, key) for key in ("taken", "acked", "nacked", "rejected", "stale")}
                    for worker in replay.workers},
        "queues": stats["queues"],
        "selectors": {number: counts | {"credit": repr(counts["credit"]), "available": repr(counts["available"])}
                      for number, counts in stats["selectors"].items()},
    }
