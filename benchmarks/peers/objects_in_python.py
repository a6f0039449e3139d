"""Messages made by a Python loop, by calling a class with address, body and None; nanoseconds each."""

from __future__ import annotations

from collections.abc import Callable
from time import perf_counter_ns
from typing import Any

from benchmarks.harness import BODY

ADDRESS = "orders.eu.new"


def dropped(make: Callable[..., Any], count: int) -> float:
    address, body = ADDRESS, BODY
    started = perf_counter_ns()
    for _ in range(count):
        message = make(address, body, None)
    del message
    return (perf_counter_ns() - started) / count


def held(make: Callable[..., Any], count: int) -> float:
    address, body = ADDRESS, BODY
    started = perf_counter_ns()
    kept = [make(address, body, None) for _ in range(count)]
    del kept
    return (perf_counter_ns() - started) / count
