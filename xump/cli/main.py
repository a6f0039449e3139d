"""The command `xump`: checks and draws topologies, looks after stores on disk, and runs the demo.

Results go to standard output. Errors go to standard error, as a sentence; `xump.cli.exit` has the exit codes. The commands for
stores are in `xump.cli.store_commands`.
"""

from __future__ import annotations

import argparse
import os
import shutil
import stat
import subprocess
import sys
from collections.abc import Callable, Sequence
from contextlib import suppress
from importlib.metadata import version
from pathlib import Path
from typing import Any

from xump import topology
from xump._parsing import toml_of
from xump.cli import bench_commands, broker_commands, remote_commands, sql_commands, store_commands, zeromq_commands
from xump.cli.exit import CommandError, ExitCode
from xump.cli.remote import is_url
from xump.cli.store_report import counted
from xump.cli.streams import INPUT, Output, reading, standard_streams, writing
from xump.store_types import types_of
from xump.topology import drawing, picture

SNIFFED_BYTES = 4096
"""How much of a file is read to see whether it may be a topology: a topology is text, and has no zero bytes."""

FORMATS = ("mermaid", "dot", "svg", "png", "pdf")
BY_GRAPHVIZ = ("png", "pdf")
BY_SUFFIX = {
    ".mmd": "mermaid", ".mermaid": "mermaid", ".dot": "dot", ".gv": "dot", ".svg": "svg", ".png": "png", ".pdf": "pdf",
}

DESCRIPTION = """\
Xump is a message engine that you embed in a program: queues, joined by selectors (bindings and subscriptions). This command
checks and draws topologies, inspects and repairs stores on disk, and runs a demo."""

EPILOG = """\
A store keeps queues on disk, at the path that your program gave to create_store("orders", "lmdb", path="orders.xump"). The
commands work on a store that no process has open; stats and browse also on that of a broker that answers HTTP.

A topology is the stores, queues and selectors of an engine as a TOML file:

    version = 1

    [queues.jobs]
    limit = 1000
    dead_letter = "dead"

    [queues.dead]

    [[selectors]]
    source = "jobs"
    when = {match = "topic", pattern = "image.#"}
    do = {deliver = "worker"}
    credit = 10

examples:
    xump check network.toml                        look for mistakes in a topology
    xump graph network.toml                        print Mermaid text, which GitHub and many editors draw
    xump graph network.toml --output network.svg   write a picture
    xump bench network.toml                        measure it: throughput, latency, where messages wait
    xump stats orders.xump                         list the queues of a store
    xump browse orders.xump jobs --limit 10        print messages of its queue `jobs`
    xump check orders.xump                         look for damage in a store
    xump serve --http 127.0.0.1:8080               run a broker; the next four talk to it
    echo cat.png | xump publish jobs               publish lines into its queue `jobs`
    xump consume jobs -- ./work.sh                 run a command for each message
    xump top                                       watch its queues
    xump browse http://127.0.0.1:8080 jobs         print messages; stats, graph and bench take such a URL, too
    xump demo --messages 10000                     send 10,000 flights through an engine
    xump demo --store lmdb                         send a year of flights through a store, with a kill -9 half way

exit status:
    0   all is well
    1   the topology or the store is wrong, the store or queue does not exist, another process uses the store, or the broker
        could not take what it was sent
    2   a wrong option, a file that cannot be read or written, a broker that does not answer
    130 Ctrl-C
"""

GRAPH_EPILOG = """\
examples:
    xump graph network.toml                        print Mermaid text
    xump graph network.toml --format dot           print Graphviz' language
    xump graph network.toml --output network.svg   write the format of the suffix: .mmd .mermaid .dot .gv .svg .png .pdf
    xump graph network.toml --output network.png   png and pdf need Graphviz' program `dot`; the other formats need no program
    xump graph http://127.0.0.1:8080               the graph of a running broker
"""

CHECK_EPILOG = """\
For a topology, each line is a sentence. First come mistakes that an engine would refuse. Then comes what is allowed but is
probably a mistake: a queue without any selector, a dead letter queue that does not exist, a cycle of selectors that may wait for
each other, a destination without a selector that delivers to it.

For a store, the command reads every record, compares it with its CRC, and follows every link. It changes nothing. Each line says
what is damaged, where it is, and which message of which queue it was.

examples:
    xump check network.toml
    xump check network.toml && deploy network.toml
    xump check orders.xump
"""

NO_GRAPHVIZ = """\
xump: {} needs Graphviz' program `dot`, which is not installed. Install it with one of
    apt-get install graphviz     (Debian, Ubuntu)
    dnf install graphviz         (Fedora)
    brew install graphviz        (macOS)
    winget install graphviz      (Windows)
or choose a format that needs no other program: --format svg, --format mermaid, --format dot."""


def main(argv: Sequence[str] | None = None) -> int:
    """Carry out a command line; None: that of the process. Returns the exit code. A wrong option and --help raise SystemExit."""
    arguments = list(sys.argv[1:] if argv is None else argv)
    with standard_streams():
        try:
            try:
                return _carry_out(arguments)
            finally:
                sys.stdout.flush()          # not when Python ends, where an error would have another exit code
        except CommandError as error:
            with suppress(CommandError, BrokenPipeError):       # of standard error itself
                print(error if "\n" in str(error) else f"xump: {error}", file=sys.stderr)
            return error.code
        except BrokenPipeError:
            return ExitCode.OK              # the reader of our output has ended, as `head` does
        except KeyboardInterrupt:
            return ExitCode.INTERRUPTED


def _carry_out(arguments: list[str]) -> int:
    if arguments[:1] == ["demo"]:
        return _demo(arguments[1:])         # the demo parses its own options
    parser = _parser()
    if not arguments:
        parser.print_help()
        return ExitCode.OK
    own, words = _split(arguments)
    options, rest = parser.parse_known_args(own)
    if words:
        options.words = words
    if rest:
        options.parser.error(f"unrecognized arguments: {' '.join(rest)}")     # with the usage of the command
    command: Callable[[argparse.Namespace], int] = options.command
    return command(options)


def _split(arguments: list[str]) -> tuple[list[str], list[str]]:
    """The arguments of `xump consume`, and the command behind `--`, which has options of its own."""
    if arguments[:1] != ["consume"] or "--" not in arguments:
        return arguments, []
    at = arguments.index("--")
    return arguments[:at], arguments[at + 1:]


def _parser() -> argparse.ArgumentParser:
    form = argparse.RawDescriptionHelpFormatter
    parser = argparse.ArgumentParser(prog="xump", description=DESCRIPTION, epilog=EPILOG, formatter_class=form)
    parser.add_argument("--version", action="version", version=f"xump {version('xump')}")
    commands = parser.add_subparsers(title="commands", metavar="COMMAND", required=True)

    demo = commands.add_parser("demo", help="send a year of flights through an engine, and report")
    demo.set_defaults(parser=parser)            # for the usage, if there is an unknown option before the word

    graph = commands.add_parser("graph", help="draw a topology", description="Draw a topology.", epilog=GRAPH_EPILOG,
                                formatter_class=form)
    graph.add_argument("topology", metavar="TOPOLOGY.toml", help="the file; - is standard input; or the URL of a running broker")
    graph.add_argument("--format", choices=FORMATS, help="default: by the suffix of --output, else mermaid")
    graph.add_argument("--output", metavar="FILE", help="write to this file instead of standard output")
    graph.set_defaults(command=_graph, parser=graph)

    check = commands.add_parser("check", help="look for mistakes in a topology, or damage in a store", epilog=CHECK_EPILOG,
                                description="Look for mistakes in a topology, or damage in a store.", formatter_class=form)
    check.add_argument("path", metavar="PATH", help="a topology file (NAME.toml, - for standard input) or the path of a store")
    store_commands.add_type(check)
    check.set_defaults(command=_check, parser=check)

    bench_commands.add_commands(commands, form, _load)
    store_commands.add_commands(commands, form)
    broker_commands.add_commands(commands, form)
    remote_commands.add_commands(commands, form)
    sql_commands.add_commands(commands, form)
    zeromq_commands.add_commands(commands, form)
    return parser


# ---- the commands

def _demo(arguments: list[str]) -> int:
    try:
        from xump.demo.main import main as demo
    except ImportError as error:
        raise CommandError(f"the demo needs {error.name or error}, which is not installed: pip install 'xump[demo]'") from None
    return int(demo(arguments) or ExitCode.OK)


def _check(options: argparse.Namespace) -> int:
    path = options.path
    if options.type is not None or not _may_be_topology(path):
        return store_commands.check(path, store_commands.type_of(path, options.type, ", and no topology"))
    mapping = _load(path)
    said = topology.check(mapping)
    for sentence in said:
        print(sentence)
    if said:
        return ExitCode.PROBLEM_FOUND
    queues, selectors = len(mapping.get("queues", {})), len(mapping.get("selectors", []))
    print(f"{_shown(path)} is fine: {counted(queues, 'queue')}, {counted(selectors, 'selector')}.")
    return ExitCode.OK


def _may_be_topology(path: str) -> bool:
    """Whether the path may be a topology: text that is no store, or a name that ends in .toml if there is no such file.

    A pipe may be one, as `check <(generate)` makes it, and is not looked into: it can be read but once.
    """
    if path == "-" or (os.path.exists(path) and stat.S_ISFIFO(os.stat(path).st_mode)):
        return True
    if not os.path.isfile(path) or os.path.getsize(path) == 0:
        return path.endswith(".toml") and not os.path.isdir(path)
    with store_commands.plainly(path):
        if types_of(path)[0]:
            return False
        if path.endswith(".toml"):
            return True
        with open(path, "rb") as file:
            if b"\0" in file.read(SNIFFED_BYTES):       # it may be large
                return False
            file.seek(0)
            text = file.read()
    try:
        toml_of(text)
    except ValueError:
        return False
    return True


def _graph(options: argparse.Namespace) -> int:
    drawn = options.format or _format_of(options.output)
    if options.output is not None and BY_SUFFIX.get(Path(options.output).suffix.lower(), drawn) != drawn:
        raise CommandError(f"{options.output} is the name of another format than {drawn}; leave out --format, or choose another "
                           "name")
    mapping = _load(options.topology)
    faults = topology.refusals(mapping)
    if faults:
        said = "\n".join([f"xump: {_shown(options.topology)} is wrong:", *(f"  {fault}" for fault in faults)])
        raise CommandError(said, ExitCode.PROBLEM_FOUND)
    with topology.sketch(mapping) as engine:
        if drawn == "mermaid":
            content = drawing.to_mermaid(engine, counts=False).encode()
        elif drawn == "svg":
            content = picture.to_svg(engine, counts=False).encode()
        else:
            content = drawing.to_dot(engine, counts=False).encode()
    _write(options.output, _by_graphviz(content, drawn) if drawn in BY_GRAPHVIZ else content)
    return ExitCode.OK


def _format_of(output: str | None) -> str:
    if output is None:
        return "mermaid"
    drawn = BY_SUFFIX.get(Path(output).suffix.lower())
    if drawn is None:
        raise CommandError(f"{output}: the suffix names no format; use one of {', '.join(BY_SUFFIX)}, or give --format")
    return drawn


def _by_graphviz(text: bytes, drawn: str) -> bytes:
    program = shutil.which("dot")
    if program is None:
        raise CommandError(NO_GRAPHVIZ.format(drawn.upper()))
    done = subprocess.run([program, f"-T{drawn}"], input=text, capture_output=True, check=False)
    if done.returncode != 0:
        raise CommandError(f"Graphviz' program `dot` failed: {done.stderr.decode(errors='replace').strip()}")
    return done.stdout


# ---- files

def _load(name: str) -> dict[str, Any]:
    if is_url(name):
        found: dict[str, Any] = remote_commands.topology(name)
        return found
    if name != "-" and os.path.exists(name):
        with store_commands.plainly(name):
            types = types_of(name)[0]
        if types:
            said = f"{name} is not a topology, but a store of type {types[0]}; use xump stats, xump browse or xump check"
            raise CommandError(said, ExitCode.PROBLEM_FOUND)
    with reading(_shown(name)):
        raw = sys.stdin.buffer.read() if name == "-" else Path(name).read_bytes()
    try:
        return toml_of(raw)
    except ValueError as error:             # also for bytes that are not UTF-8
        raise CommandError(f"{_shown(name)} is not TOML: {error}", ExitCode.PROBLEM_FOUND) from None


def _write(name: str | None, content: bytes) -> None:
    if name is not None:
        with writing(name):
            Path(name).write_bytes(content)
    elif b"\0" in content and sys.stdout.isatty():
        raise CommandError("a terminal cannot show this format; give --output FILE")
    elif isinstance(sys.stdout, Output):
        sys.stdout.write_bytes(content)
    else:
        sys.stdout.buffer.write(content)


def _shown(name: str) -> str:
    return INPUT if name == "-" else name
