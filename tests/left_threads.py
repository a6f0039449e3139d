"""A run that failed ends, though a test has left a thread that would wait for ever: a plugin of pytest, which `conftest.py` has.

A test that fails before it ends its thread leaves it. Python waits for such a thread when it ends, and the run would hang with
what it has to say.
"""

import os
import sys
import threading

import pytest

STATUS = pytest.StashKey[int]()


def pytest_sessionfinish(session, exitstatus):
    session.config.stash[STATUS] = int(exitstatus)


@pytest.hookimpl(trylast=True)
def pytest_unconfigure(config):
    left = [thread.name for thread in threading.enumerate() if not (thread.daemon or thread is threading.main_thread())]
    status = config.stash.get(STATUS, 0)
    if left and status:
        print("not waited for these threads, which a test has left:", *left, file=sys.stderr)
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(status)
