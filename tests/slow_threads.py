"""Threads that start late: a plugin of pytest, `-p tests.slow_threads`.

A new thread, and work that is handed to a pool of threads, begins after up to 30 milliseconds; what a thread tells an event loop
comes up to 3 later. Else a thread nearly always begins before its caller goes on, and a test that counts on it passes for years.
The times are drawn, from the seed in the variable XUMP_SLOW_THREADS.
"""

import asyncio
import os
import random
import threading
import time
from concurrent.futures import ThreadPoolExecutor

SECONDS = 0.03
LOOP_SECONDS = 0.003

draw = random.Random(os.environ.get("XUMP_SLOW_THREADS", "0"))


def later(function, seconds):
    """The function, which begins so many seconds later at most."""

    def begin(*given, **named):
        time.sleep(draw.random() * seconds)
        return function(*given, **named)

    return begin


def submit_later(submit):
    """`ThreadPoolExecutor.submit`, for work that begins later."""
    return lambda pool, work, /, *given, **named: submit(pool, later(work, SECONDS), *given, **named)


threading.Thread.run = later(threading.Thread.run, SECONDS)
ThreadPoolExecutor.submit = submit_later(ThreadPoolExecutor.submit)
asyncio.BaseEventLoop.call_soon_threadsafe = later(asyncio.BaseEventLoop.call_soon_threadsafe, LOOP_SECONDS)
