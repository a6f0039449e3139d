"""A plugin of pytest for `make asan`, which runs the tests over a core that AddressSanitizer and UBSan watch.

Tests are left out that such a core cannot run. Programs that are not Python start without the sanitizer: they were not built for
it, and some of them, PostgreSQL among them, do not start with it.
"""

import os
import shutil
import signal
import subprocess
import sys
import time

LEFT_OUT = {
    "they spoil memory": [
        "tests/check/test_check.py::test_whatever_is_wrong_is_found",
        "tests/check/test_check.py::test_whatever_is_wrong_in_stores_is_found",
    ],
    "they let memory end, in place of the sanitizer": [
        "tests/check/test_check.py::test_a_queue_is_deleted_when_there_is_no_memory",
        "tests/memory/test_allocation_failures.py", "tests/memory/test_durable_without_memory.py",
        "tests/memory/test_structures_without_memory.py", "tests/memory/test_two_stores_without_memory.py",
    ],
    "they preload a library before that of the sanitizer": [
        "tests/durability/test_opening.py::test_killed_at_any_call", "tests/durability/test_opening.py::test_the_nth_call",
        "tests/faults/test_faults.py",
    ],
    "they want memory back, which the sanitizer keeps": [
        "tests/broker/flight/test_buffers.py::test_memory_of_batches_is_kept_and_given_back",
        "tests/memory/test_leaks.py::test_what_is_freed_goes_back_to_the_system",
        "tests/memory/test_leaks.py::test_what_is_freed_of_many_sizes_goes_back_to_the_system",
        "tests/memory/test_prepared_memory.py::test_what_messages_have_left_is_kept_until_it_was_not_needed_for_a_while",
        "tests/memory/test_prepared_memory.py::test_without_being_asked_nothing_is_kept",
    ],
    "greenlet copies whole stacks, which the sanitizer takes for a defect": [
        "tests/sql/test_aio.py", "tests/test_docs.py::test_examples_run[sql.md]",
    ],
    "they look at the whole tree, of which the copy is a part": ["tests/test_layout.py"],
    "they build cores of their own": ["tests/builds/test_canaries.py", "tests/builds/test_costs.py"],
}
"""Beginnings of the names of tests, by the reason."""

ENDING_SECONDS = 0.02
"""A thread that has ended holds a lock of the sanitizer for a moment: in a child of a fork it would be held for ever."""

CHILD_SECONDS = 300
"""A child of a fork lasts no longer, if that was not enough."""

STARTERS = {"bash", "ip", "make", "sh"}       # they start Python


def runs_python(program):
    found = shutil.which(program)
    if found is None or os.path.basename(program) in STARTERS or os.path.realpath(found) == os.path.realpath(sys.executable):
        return True
    with open(found, "rb") as file:
        first = file.readline(200)
    return first.startswith(b"#!") and b"python" in first


class Popen(subprocess.Popen):
    def __init__(self, args, *more, env=None, **named):
        program = args if isinstance(args, str | bytes | os.PathLike) else args[0]
        if not named.get("shell") and not runs_python(os.fspath(program)):
            env = {name: value for name, value in (os.environ if env is None else env).items() if name != "LD_PRELOAD"}
        super().__init__(args, *more, env=env, **named)


def pytest_configure():
    subprocess.Popen = Popen
    os.register_at_fork(before=lambda: time.sleep(ENDING_SECONDS), after_in_child=lambda: signal.alarm(CHILD_SECONDS))


def pytest_collection_modifyitems(config, items):
    out = tuple(name for names in LEFT_OUT.values() for name in names)
    left = [item for item in items if item.nodeid.startswith(out)]
    items[:] = [item for item in items if not item.nodeid.startswith(out)]
    config.hook.pytest_deselected(items=left)
