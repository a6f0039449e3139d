"""The command `xump`: look at topologies, look after stores, see the demo.

Exit status: 0 all is well; 1 the topology or the store is wrong, or there is no store that the command could have (the demo: it
did not work out); 2 the command could not be carried out: a wrong option, a file that cannot be read or written, a program or
package that is not installed. What a command is asked for goes to the standard output, what went wrong to the standard error,
in a sentence. The commands for stores are in `xump.cli.store_commands`.
"""

from __future__ import annotations

import argparse
import io
import os
import shutil
import subprocess
import sys
import tomllib
from collections.abc import Callable, Sequence
from importlib.metadata import version
from pathlib import Path
from typing import Any

from xump import topology
from xump.cli import store_commands
from xump.cli.exit import FINE, WRONG, Trouble
from xump.topology import drawing, picture

SNIFFED_BYTES = 4096
"""Of a file that may be a topology, which has no zeros in it."""

FORMATS = ("mermaid", "dot", "svg", "png", "pdf")
BY_GRAPHVIZ = ("png", "pdf")
BY_SUFFIX = {
    ".mmd": "mermaid", ".mermaid": "mermaid", ".dot": "dot", ".gv": "dot", ".svg": "svg", ".png": "png", ".pdf": "pdf",
}

DESCRIPTION = """\
Xump is an embeddable message engine: queues joined by selectors. The command looks at topologies, and after stores on disk;
it has a demo."""

EPILOG = """\
A store is where durable queues are kept: the path that create_store("orders", "lmdb", path="orders.xump") was given. The commands
work on one that no process has open.

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
    xump check network.toml                        is it right?
    xump graph network.toml                        Mermaid text, which GitHub and many editors draw
    xump graph network.toml --output network.svg   a picture
    xump stats orders.xump                         what is in the store?
    xump browse orders.xump jobs --limit 10        the messages of its queue `jobs`
    xump check orders.xump                         is every byte of it as it should be?
    xump demo --messages 10000                     the first 10,000 flights through one engine
    xump demo --store lmdb                         a year of them through a store, and a kill -9 in between

exit status:
    0   all is well
    1   the topology or the store is wrong; or there is none, or another process has it
    2   the command could not be carried out
"""

GRAPH_EPILOG = """\
examples:
    xump graph network.toml                        Mermaid text on the standard output
    xump graph network.toml --format dot           Graphviz' language
    xump graph network.toml --output network.svg   the format is that of the name: .mmd .mermaid .dot .gv .svg .png .pdf
    xump graph network.toml --output network.png   png and pdf are drawn by Graphviz' program `dot`, the others need nothing
"""

CHECK_EPILOG = """\
Of a topology each line is a sentence: first what an engine would refuse, else what is legal and perhaps not meant: a queue
that stands alone, a dead letter queue that does not exist, a cycle of credit that may wait for itself, a destination that nobody
reads.

Of a store every record is read and compared with its CRC, and every link is followed; nothing is changed. Each line says what is
damaged, where, and which message of which queue it was.

examples:
    xump check network.toml
    xump check network.toml && deploy network.toml
    xump check orders.xump
"""

NO_GRAPHVIZ = """\
xump: {} is drawn by Graphviz' program `dot`, which is not installed. Get it by
    apt-get install graphviz     (Debian, Ubuntu)
    dnf install graphviz         (Fedora)
    brew install graphviz        (macOS)
    winget install graphviz      (Windows)
or take what needs no other program: --format svg, --format mermaid, --format dot."""


def main(argv: Sequence[str] | None = None) -> int:
    """Carry out a command line (None: the process's own). Returns the exit status; a wrong option and --help raise SystemExit."""
    arguments = list(sys.argv[1:] if argv is None else argv)
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="backslashreplace")       # names and addresses may have what a terminal does not
    try:
        if arguments[:1] == ["demo"]:
            return _demo(arguments[1:])         # the demo knows its own options
        parser = _parser()
        if not arguments:
            parser.print_help()
            return FINE
        options, rest = parser.parse_known_args(arguments)
        if rest:
            options.parser.error(f"unrecognized arguments: {' '.join(rest)}")     # with the usage of the command
        command: Callable[[argparse.Namespace], int] = options.command
        return command(options)
    except Trouble as trouble:
        print(trouble if "\n" in str(trouble) else f"xump: {trouble}", file=sys.stderr)
        return trouble.status
    except BrokenPipeError:
        # Who reads our output has left, as `head` does. Python would complain once more when it flushes at its end.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return FINE
    except KeyboardInterrupt:
        return 130


def _parser() -> argparse.ArgumentParser:
    form = argparse.RawDescriptionHelpFormatter
    parser = argparse.ArgumentParser(prog="xump", description=DESCRIPTION, epilog=EPILOG, formatter_class=form)
    parser.add_argument("--version", action="version", version=f"xump {version('xump')}")
    commands = parser.add_subparsers(title="commands", metavar="COMMAND", required=True)

    demo = commands.add_parser("demo", help="show what Xump does, on a year of flights")
    demo.set_defaults(parser=parser)            # which is left when something that nobody knows stands before the word

    graph = commands.add_parser("graph", help="draw a topology", description="Draw a topology.", epilog=GRAPH_EPILOG,
                                formatter_class=form)
    graph.add_argument("topology", metavar="TOPOLOGY.toml", help="the file; - is the standard input")
    graph.add_argument("--format", choices=FORMATS, help="default: by the suffix of --output; mermaid without --output")
    graph.add_argument("--output", metavar="FILE", help="write to this file instead of the standard output")
    graph.set_defaults(command=_graph, parser=graph)

    check = commands.add_parser("check", help="say what is wrong with a topology, or with a store on disk", epilog=CHECK_EPILOG,
                                formatter_class=form, description="Say what is wrong with a topology, or with a store on disk.")
    check.add_argument("path", metavar="PATH", help="a topology (NAME.toml; - is the standard input), or a store: it sees which")
    store_commands.add_type(check)
    check.set_defaults(command=_check, parser=check)

    store_commands.add_commands(commands, form)
    return parser


# ---- the commands

def _demo(arguments: list[str]) -> int:
    try:
        from xump.demo.main import main as demo
    except ImportError as error:
        raise Trouble(f"the demo needs {error.name or error}, which is not installed: pip install 'xump[demo]'") from None
    return int(demo(arguments) or FINE)


def _check(options: argparse.Namespace) -> int:
    path = options.path
    if options.type is not None or not _may_be_topology(path):
        return store_commands.check(path, store_commands.type_of(path, options.type, ", and no topology"))
    mapping = _load(path)
    said = topology.check(mapping)
    for sentence in said:
        print(sentence)
    if said:
        return WRONG
    queues, selectors = len(mapping.get("queues", {})), len(mapping.get("selectors", []))
    print(f"{_shown(path)} is fine: {_counted(queues, 'queue')}, {_counted(selectors, 'selector')}.")
    return FINE


def _may_be_topology(path: str) -> bool:
    """Not a store, nor what was one; what is called so, if there is nothing."""
    if path == "-":
        return True
    if not os.path.isfile(path) or os.path.getsize(path) == 0:
        return path.endswith(".toml") and not os.path.isdir(path)
    with store_commands.plainly(path):
        if store_commands.types_of(path)[0]:
            return False
        if path.endswith(".toml"):
            return True
        with open(path, "rb") as file:
            if b"\0" in file.read(SNIFFED_BYTES):       # it may be large
                return False
            file.seek(0)
            text = file.read()
    try:
        tomllib.loads(text.decode())
    except ValueError:
        return False
    return True


def _graph(options: argparse.Namespace) -> int:
    drawn = options.format or _format_of(options.output)
    if options.output is not None and BY_SUFFIX.get(Path(options.output).suffix.lower(), drawn) != drawn:
        raise Trouble(f"{options.output} is the name of another format than {drawn}; leave out --format, or take another name")
    mapping = _load(options.topology)
    faults = topology.refusals(mapping)
    if faults:
        raise Trouble("\n".join([f"xump: {_shown(options.topology)} is wrong:", *(f"  {fault}" for fault in faults)]), WRONG)
    with topology.sketch(mapping) as engine:
        if drawn == "mermaid":
            content = drawing.to_mermaid(engine, counts=False).encode()
        elif drawn == "svg":
            content = picture.to_svg(engine, counts=False).encode()
        else:
            content = drawing.to_dot(engine, counts=False).encode()
    _write(options.output, _by_graphviz(content, drawn) if drawn in BY_GRAPHVIZ else content)
    return FINE


def _format_of(output: str | None) -> str:
    if output is None:
        return "mermaid"
    drawn = BY_SUFFIX.get(Path(output).suffix.lower())
    if drawn is None:
        raise Trouble(f"{output}: its suffix names no format; known are {', '.join(BY_SUFFIX)}; any name will do with --format")
    return drawn


def _by_graphviz(text: bytes, drawn: str) -> bytes:
    program = shutil.which("dot")
    if program is None:
        raise Trouble(NO_GRAPHVIZ.format(drawn.upper()))
    done = subprocess.run([program, f"-T{drawn}"], input=text, capture_output=True, check=False)
    if done.returncode != 0:
        raise Trouble(f"`dot` could not draw it: {done.stderr.decode(errors='replace').strip()}")
    return done.stdout


# ---- files

def _load(name: str) -> dict[str, Any]:
    if name != "-" and os.path.exists(name):
        with store_commands.plainly(name):
            types = store_commands.types_of(name)[0]
        if types:
            raise Trouble(f"{name} is a store of type {types[0]}, and no topology; xump stats, xump browse and xump check look "
                          "at it", WRONG)
    try:
        raw = sys.stdin.buffer.read() if name == "-" else Path(name).read_bytes()
    except OSError as error:
        raise Trouble(f"{name} cannot be read: {error.strerror}") from None
    try:
        return tomllib.loads(raw.decode())
    except ValueError as error:             # what is not UTF-8, too
        raise Trouble(f"{_shown(name)} is not TOML: {error}", WRONG) from None


def _write(name: str | None, content: bytes) -> None:
    if name is not None:
        try:
            Path(name).write_bytes(content)
        except OSError as error:
            raise Trouble(f"{name} cannot be written: {error.strerror}") from None
        return
    if b"\0" in content and sys.stdout.isatty():
        raise Trouble("such a picture is not for a terminal; give --output FILE")
    sys.stdout.flush()
    sys.stdout.buffer.write(content)
    sys.stdout.buffer.flush()


def _shown(name: str) -> str:
    return "the standard input" if name == "-" else name


def _counted(number: int, what: str) -> str:
    return f"{number} {what}" if number == 1 else f"{number} {what}s"
