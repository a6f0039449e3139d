"""Kills each role of each system again and again, with SIGKILL at random moments, and counts what became of the requests.

    python -m tests.zeromq.kills --seed 1 [--kills 200] [ROLE ...]

A ROLE is a system, such as "Titanic", or one of its roles, such as "Titanic/broker"; none: all of them. Of each role it says how
many requests were answered, and fails if

- a request was lost: it was never answered, wrongly, or after others that were asked behind it; or for two minutes none was;
- a request was done twice where that is promised: by idempotent services, and by those whose rule is not to redispatch.

A role is killed when requests went through since it was started again. So each kill is the only failure of its time: that is
what the systems promise to survive.
"""

import argparse
import multiprocessing
import os
import random
import signal
import sys
import tempfile
import time
from collections import Counter
from contextlib import ExitStack
from dataclasses import dataclass

from tests.patience import polls
from tests.zeromq import kill_roles as roles
from tests.zeromq.proxy import free_endpoint

PROGRESS_SECONDS, POLL_SECONDS = 120, 0.002
ANSWERS_BETWEEN = 3
"""Requests that must be answered before the next kill."""
MOMENT_SECONDS = 0.03
"""The kill comes at a random moment of so long a time, in which some requests come and go."""


@dataclass(frozen=True)
class System:
    """Its processes, in the order in which they start, the client last; and which of them are killed."""

    processes: dict
    killed: tuple
    promise: str = "answered"
    """"answered": each request is; "once": and is done once; "at most once": it is done once or not at all."""
    window: int = 1
    """How many requests the client has out."""


_BROKERED = ("broker", "worker", "client")

SYSTEMS = {
    "Lazy Pirate": System({"server": roles.server, "client": roles.lazy_client}, ("server", "client")),
    "Simple Pirate": System(
        {"broker": roles.simple_broker, "worker": roles.simple_worker, "client": roles.lazy_client}, _BROKERED),
    "Paranoid Pirate": System(
        {"broker": roles.paranoid_broker, "worker": roles.paranoid_worker, "client": roles.lazy_client}, _BROKERED),
    "Majordomo 0.1": System(
        {"broker": roles.majordomo_broker, "worker": roles.old_worker, "client": roles.old_client}, _BROKERED),
    "Majordomo": System(
        {"broker": roles.majordomo_broker, "worker": roles.majordomo_worker, "client": roles.majordomo_client}, _BROKERED),
    "Asynchronous Majordomo": System(
        {"broker": roles.majordomo_broker, "worker": roles.majordomo_worker, "other worker": roles.majordomo_worker,
         "client": roles.asynchronous_client}, _BROKERED, window=roles.WINDOW),
    "Majordomo without redispatch": System(
        {"broker": roles.careful_broker, "worker": roles.majordomo_worker, "client": roles.careful_client},
        ("broker", "worker"), "at most once"),
    "Idempotent service": System(
        {"broker": roles.majordomo_broker, "worker": roles.once_worker, "client": roles.once_client}, _BROKERED, "once"),
    "Titanic": System(
        {"broker": roles.titanic_broker, "worker": roles.majordomo_worker, "client": roles.titanic_client}, _BROKERED),
    "Binary Star": System(
        {"primary": roles.primary, "backup": roles.backup, "worker": roles.star_worker, "client": roles.star_client},
        ("active", "passive", "worker", "client")),
    "Freelance 1": System(
        {"server": roles.server, "other server": roles.other_server, "client": roles.first_client}, ("server", "client")),
    "Freelance 2": System(
        {"server": roles.numbered_server, "other server": roles.other_numbered_server, "client": roles.second_client},
        ("server", "client")),
    "Freelance 3": System(
        {"server": roles.server, "other server": roles.other_server, "client": roles.third_client}, ("server", "client")),
}
ROLES = [f"{name}/{role}" for name, system in SYSTEMS.items() for role in system.killed]

# A child of a server of forks, which has imported all that is needed, is there in no time, and has no thread of this process.
_processes = multiprocessing.get_context("forkserver")
_processes.set_forkserver_preload(["tests.zeromq.kill_roles"])


class Show:
    """The processes of a system, alive."""

    def __init__(self, ends, system, folder):
        self._ends, self._system = ends, system
        self.place = roles.Place(tuple(free_endpoint() for _ in range(4)), folder)
        self._alive = {}
        self._read = self._answered = 0
        ends.callback(self.end)
        for name in system.processes:
            if name == "worker" and "primary" in system.processes:
                self.await_states(0)
            self.start(name)

    def start(self, name):
        process = _processes.Process(target=self._system.processes[name], args=(self.place,), daemon=True)
        process.start()
        self._alive[name] = process

    def kill(self, name):
        self.see_alive()
        process = self._alive.pop(name)
        process.kill()
        process.join()
        process.close()

    def see_alive(self):
        for name, process in self._alive.items():
            assert process.is_alive(), f"the {name} has ended by itself, with exit code {process.exitcode}"

    def end(self):
        for process in self._alive.values():
            process.kill()
            process.join()
            process.close()
        self._alive.clear()

    def until(self, condition, what):
        """Wait for something, with a limit that leaves out what the machine takes."""
        for _ in polls(PROGRESS_SECONDS, POLL_SECONDS):
            if condition():
                return
            self.see_alive()
        raise AssertionError(f"{what} did not come within {PROGRESS_SECONDS} seconds")

    @property
    def answered(self):
        """How many answers are written down; only what is new is read."""
        try:
            with open(os.path.join(self.place.folder, "answers"), "rb") as file:
                file.seek(self._read)
                new = file.read()
        except FileNotFoundError:
            return 0
        self._read += len(new)
        self._answered += new.count(b"\n")
        return self._answered

    def states(self, at):
        return [words[0] for words in self.place.lines(f"states-{at}")]

    def await_states(self, active):
        """Until the one is active, and the other one passive, as they said last."""
        for at, state in ((active, b"ACTIVE"), (1 - active, b"PASSIVE")):
            self.await_state(at, state)

    def await_state(self, at, state):
        self.until(lambda: self.states(at)[-1:] == [state], f"{state.decode()} of server {at}")


def kill_role(name, role, kills, chance, folder):
    """Kill a role so often, and count.

    Returns:
        How many requests were answered, and how many were done more than once.
    """
    system, active = SYSTEMS[name], 0
    with ExitStack() as ends:
        show = Show(ends, system, folder)
        for _ in range(kills):
            seen = show.answered
            show.until(lambda seen=seen: show.answered >= seen + ANSWERS_BETWEEN, "the next answer")
            time.sleep(chance.uniform(0.0, MOMENT_SECONDS))        # the random moment
            if role in ("active", "passive"):
                at = active if role == "active" else 1 - active
                show.kill(("primary", "backup")[at])
                active = 1 - at
                if role == "active":
                    show.await_state(active, b"ACTIVE")
                show.place.write(f"states-{at}", b"DEAD")
                show.start(("primary", "backup")[at])
                show.await_states(active)
            else:
                show.kill(role)
                show.start(role)
        seen = show.answered
        show.until(lambda: show.answered >= seen + ANSWERS_BETWEEN * system.window, "an answer after the last kill")
        show.end()
        return count(show, system)


def count(show, system):
    """See that no request was lost, and none done twice where that is promised."""
    answers = show.place.lines("answers")
    numbers = [int(words[0]) for words in answers]
    whole = len(numbers) // system.window * system.window - system.window * (system.window > 1)
    assert len(set(numbers)) == len(numbers), "a request was answered twice"
    assert set(range(whole)) <= set(numbers), f"lost: {sorted(set(range(whole)) - set(numbers))[:10]}"
    allowed = ([roles.NONE],) if system.promise == "at most once" else ()
    wrong = [words for words in answers if words[1:] != [b"done", words[0]] and words[1:] not in allowed]
    assert not wrong, f"wrong answers: {wrong[:10]}"
    done = Counter(roles.ledger(show.place) if system.promise == "once" else (words[0] for words in show.place.lines("done")))
    twice = sorted(int(word) for word, times in done.items() if times > 1)
    assert system.promise == "answered" or not twice, f"done twice: {twice[:10]}"
    never = [words[0] for words in answers if words[1:] == [b"done", words[0]] and words[0] not in done]
    assert not never, f"answered, and never done: {never[:10]}"
    return len([words for words in answers if words[1:] not in allowed]), len(twice)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seed", type=int, required=True)
    parser.add_argument("--kills", type=int, default=200)
    parser.add_argument("roles", nargs="*", metavar="ROLE")
    options = parser.parse_args()
    chosen = [one for one in ROLES if not options.roles or one in options.roles or one.split("/")[0] in options.roles]
    if unknown := [one for one in options.roles if not any(one in (role, role.split("/")[0]) for role in ROLES)]:
        parser.error(f"there is no role {unknown[0]!r}; there are {', '.join(ROLES)}")
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))       # so that no process of a system outlives this one
    failed = 0
    print(f"seed {options.seed}, {options.kills} kills of each role")
    for one in chosen:
        began = time.monotonic()
        with tempfile.TemporaryDirectory(prefix="xump-kills-") as folder:
            try:
                answered, twice = kill_role(*one.split("/"), options.kills, random.Random(f"{options.seed} {one}"), folder)
                said = f"{answered:7} answered, 0 lost, {twice:4} done twice"
            except AssertionError as error:
                failed, said = failed + 1, f"FAILED: {error}"
        print(f"  {one:38} {said}   {time.monotonic() - began:6.0f} s", flush=True)
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
