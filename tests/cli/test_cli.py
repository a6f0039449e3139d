"""The command line: what it prints where, its exit status, and that no user error ends in a traceback."""

import io
import os
import re
import subprocess
import sys
import threading
import tomllib
import types
import xml.etree.ElementTree as ElementTree
from pathlib import Path

import pytest

from xump import Engine, topology
from xump.cli import main as cli
from xump.cli.exit import ExitCode
from xump.operators import operator_names

RIGHT = """\
version = 1

[queues.jobs]
limit = 10
dead_letter = "dead"

[queues.dead]

[[selectors]]
source = "jobs"
when = {match = "topic", pattern = "image.#"}
do = {deliver = "worker"}
credit = 10
"""

WRONG = RIGHT.replace("[queues.dead]", "").replace('"topic"', '"topi"')


@pytest.fixture
def file(tmp_path):
    def write(text, name="network.toml"):
        path = tmp_path / name
        path.write_bytes(text if isinstance(text, bytes) else text.encode())
        return str(path)

    return write


@pytest.fixture
def run(capsysbinary):
    """Runs a command line in this process: (status, standard output, standard error)."""

    def run(*arguments):
        try:
            status = cli.main(arguments)
        except SystemExit as exit:
            status = exit.code
        out, err = capsysbinary.readouterr()
        assert b"Traceback" not in err
        return status, out.decode(errors="replace"), err.decode()

    return run


@pytest.fixture
def graphviz(tmp_path, monkeypatch):
    """A program `dot` that says how it was called, or none at all."""
    folder = tmp_path / "bin"
    folder.mkdir()
    monkeypatch.setenv("PATH", str(folder))

    def install(script):
        program = folder / "dot"
        program.write_text(f"#!/bin/sh\n{script}\n")
        program.chmod(0o755)

    return install


def process(*arguments, **options):
    return subprocess.run([sys.executable, "-m", "xump", *arguments], capture_output=True, text=True, check=False, **options)


# ---- help

def test_help_teaches(run):
    status, out, err = run("--help")
    assert (status, err) == (0, "")
    for word in ("demo", "graph", "check", "stats", "browse", "repair", "compact", "examples:", "exit status:",
                 "xump check network.toml"):
        assert word in out


COMMANDS = next(list(action.choices) for action in cli._parser()._actions if isinstance(action.choices, dict))


@pytest.mark.parametrize("command", COMMANDS)
def test_each_command_has_help_with_examples(run, command):
    status, out, err = run(command, "--help")
    assert (status, err) == (0, "")
    assert "examples:" in out


def test_the_page_has_all_commands_and_exit_statuses():
    page = (Path(__file__).parents[2] / "docs" / "commands.md").read_text(encoding="utf-8")
    assert set(re.findall(r"^\| `xump (\w+)", page, re.MULTILINE)) == set(COMMANDS)
    assert re.findall(r"^\| (\d+) \|", page, re.MULTILINE) == [str(int(code)) for code in ExitCode]


def test_the_topology_in_the_help_is_fine():
    text = cli.EPILOG.split("as a TOML file:\n")[1].split("examples:")[0]
    assert topology.check(tomllib.loads(text)) == []


def test_no_command_at_all_shows_the_help(run):
    assert run() == run("--help")


@pytest.mark.parametrize(("arguments", "usage"), [
    (("fly",), "usage: xump [-h]"), (("--fly",), "usage: xump [-h]"), (("check",), "usage: xump check "),
    (("check", "a", "b"), "usage: xump check "), (("graph", "a", "b"), "usage: xump graph "),
    (("graph", "a", "--format", "jpeg"), "usage: xump graph "), (("--fly", "demo"), "usage: xump [-h]"),
    (("--fly", "demo", "--messages", "5"), "usage: xump [-h]"), (("demo", "--fly"), "usage: xump demo "),
])
def test_wrong_usage(run, arguments, usage):
    status, out, err = run(*arguments)
    assert (status, out) == (2, "")
    assert err.startswith(usage)


# ---- check

def test_check_says_that_it_is_fine(run, file):
    name = file(RIGHT)
    assert run("check", name) == (0, f"{name} is fine: 2 queues, 1 selector.\n", "")


@pytest.mark.parametrize("command", ["check", "graph"])
def test_a_topology_comes_through_a_pipe(run, tmp_path, command):
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    writer = threading.Thread(target=pipe.write_text, args=(RIGHT,))
    writer.start()
    assert run(command, str(pipe))[0] == 0
    writer.join()


def test_check_says_what_is_wrong(run, file):
    status, out, err = run("check", file(WRONG))
    assert (status, err) == (1, "")
    assert out.splitlines() == [
        f"selector 1: unknown operator 'topi'; there are {', '.join(operator_names())}",
        "queue 'jobs' has the dead letter queue 'dead', which is not described: until that exists, it has none",
    ]


def test_check_reads_the_standard_input(run, monkeypatch):
    monkeypatch.setattr(sys, "stdin", types.SimpleNamespace(buffer=io.BytesIO(RIGHT.encode())))
    assert run("check", "-") == (0, "standard input is fine: 2 queues, 1 selector.\n", "")


@pytest.mark.parametrize("command", ["check", "graph"])
@pytest.mark.parametrize(("text", "said"), [("version = ", "Invalid value"), (b"\xff\xfe", "utf-8")])
def test_what_is_no_toml(run, file, command, text, said):
    name = file(text)
    status, out, err = run(command, name)
    assert (status, out) == (1, "")
    assert err.startswith(f"xump: {name} is not TOML: ")
    assert said in err


@pytest.mark.parametrize("command", ["check", "graph"])
def test_a_file_that_cannot_be_read(run, tmp_path, command):
    (tmp_path / "folder.toml").mkdir()
    for name, why in ((tmp_path / "none.toml", "No such file or directory"), (tmp_path / "folder.toml", "irectory")):
        status, out, err = run(command, str(name))
        assert (status, out) == (1 if command == "check" and name.is_dir() else 2, "")
        assert err.startswith("xump: ")
        assert why in err
    assert run("graph", str(tmp_path))[0] == 2


def test_check_takes_any_file_that_is_toml(run, file):
    name = file(RIGHT, "network")
    assert run("check", name) == (0, f"{name} is fine: 2 queues, 1 selector.\n", "")


def test_check_says_all_that_is_wrong_with_a_queue_and_a_selector(run, file):
    status, out, err = run("check", file(
        "version = 1\n[queues.jobs]\nlimit = -1\ndelivery_limit = 0\nauto_delete = 7\n"
        '[[selectors]]\nsource = "jobs"\nwhen = "sometimes"\ndo = "nothing"\ncredit = "much"\n'))
    assert (status, err) == (1, "")
    said = out.splitlines()
    for what in ("limit must be from 0", "delivery_limit must be from 1", "auto_delete must be a bool", 'when = "sometimes"',
                 'do = "nothing"', "credit"):
        assert sum(what in sentence for sentence in said) == 1, what
    assert len(said) == 6
    assert all(sentence.startswith(("queue 'jobs': ", "selector 1: ")) for sentence in said)


# ---- graph

def test_graph_draws_mermaid(run, file):
    status, out, err = run("graph", file(RIGHT))
    assert (status, err) == (0, "")
    assert out.startswith('flowchart LR\n    n1["jobs<br/>limit 10"]\n')
    assert run("graph", file(RIGHT), "--format", "mermaid")[1] == out


def test_graph_draws_dot(run, file):
    status, out, err = run("graph", file(RIGHT), "--format", "dot")
    assert (status, err) == (0, "")
    assert out.startswith("digraph xump {")
    assert 'label="1, match(\'topic\', \'image.#\')\\ndeliver, credit 10"' in out


@pytest.mark.parametrize(("suffix", "starts"), [
    ("mmd", b"flowchart"), ("mermaid", b"flowchart"), ("dot", b"digraph"), ("GV", b"digraph"), ("svg", b"<svg "),
])
def test_the_name_of_the_output_says_the_format(run, file, tmp_path, suffix, starts):
    path = tmp_path / f"graph.{suffix}"
    assert run("graph", file(RIGHT), "--output", str(path)) == (0, "", "")
    assert path.read_bytes().startswith(starts)
    assert run("graph", file(RIGHT), "--output", str(path), "--format", cli.BY_SUFFIX[f".{suffix.lower()}"]) == (0, "", "")
    assert path.read_bytes().startswith(starts)


@pytest.mark.parametrize("name", ["graph.foo", "graph", "graph.txt"])
def test_a_suffix_that_is_not_known(run, file, tmp_path, name):
    path = tmp_path / name
    status, out, err = run("graph", file(RIGHT), "--output", str(path))
    assert (status, out) == (2, "")
    assert err == (f"xump: {path}: the suffix names no format; use one of .mmd, .mermaid, .dot, .gv, .svg, .png, .pdf, "
                   "or give --format\n")
    assert not path.exists()
    assert run("graph", file(RIGHT), "--output", str(path), "--format", "mermaid") == (0, "", "")
    assert path.read_bytes().startswith(b"flowchart")


def test_a_name_and_a_format_that_contradict(run, file, tmp_path):
    for name in ("net.png", "net.PNG", "net.mmd"):
        output = tmp_path / name
        status, out, err = run("graph", file(RIGHT), "--format", "svg", "--output", str(output))
        assert (status, out) == (2, "") and not output.exists()
        assert f"{output} is the name of another format than svg; leave out --format" in err
    for name in ("net.svg", "net.gv.svg", "net", "net.xml"):
        assert run("graph", file(RIGHT), "--format", "svg", "--output", str(tmp_path / name)) == (0, "", "")


@pytest.mark.parametrize("kind", ["ring", "lmdb"])
@pytest.mark.parametrize("name", ["orders.toml", "orders"])
def test_a_store_is_no_topology(run, tmp_path, kind, name):
    path = str(tmp_path / name)
    with Engine() as engine:
        engine.create_store("s", kind, path=path)
    status, out, err = run("graph", path)
    assert (status, out) == (1, "")
    assert err == f"xump: {path} is not a topology, but a store of type {kind}; use xump stats, xump browse or xump check\n"
    assert run("check", path)[1].startswith(f"{path} is whole: a store of type {kind}")


def test_svg_needs_no_other_program(run, file, graphviz):
    status, out, err = run("graph", file(RIGHT), "--format", "svg")
    assert (status, err) == (0, "")
    shown = [element.text for element in ElementTree.fromstring(out).iter("{http://www.w3.org/2000/svg}text")]
    assert sorted(shown) == [
        "credit 10", "dead", "dead letters", "deliver to worker", "jobs", "limit 10", "match('topic', 'image.#')",
    ]


def test_graph_of_what_is_wrong(run, file, tmp_path):
    path = tmp_path / "graph.dot"
    status, out, err = run("graph", file(WRONG), "--output", str(path))
    assert (status, out) == (1, "")
    assert "unknown operator 'topi'" in err
    assert not path.exists()
    name = file(WRONG.replace("limit = 10", "limit = -1").replace("credit = 10", "credits = 10"))
    status, out, err = run("graph", name)
    assert (status, out) == (1, "")
    assert err.splitlines()[0] == f"xump: {name} is wrong:"
    assert len(err.splitlines()) == 4


def test_a_file_that_cannot_be_written(run, file, tmp_path):
    status, out, err = run("graph", file(RIGHT), "--output", str(tmp_path / "no" / "graph.dot"))
    assert (status, out) == (2, "")
    assert "cannot be written: No such file or directory" in err


@pytest.mark.parametrize("drawn", ["png", "pdf"])
def test_a_picture_without_graphviz(run, file, graphviz, drawn):
    status, out, err = run("graph", file(RIGHT), "--format", drawn)
    assert (status, out) == (2, "")
    assert "apt-get install graphviz" in err
    assert "--format svg, --format mermaid" in err


@pytest.mark.parametrize("drawn", ["png", "pdf"])
def test_a_picture_by_graphviz(run, file, graphviz, tmp_path, drawn):
    graphviz('echo "called with $@"\nwhile read -r line; do echo "$line"; done')
    status, out, err = run("graph", file(RIGHT), "--format", drawn)
    assert (status, err) == (0, "")
    assert out.startswith(f"called with -T{drawn}\ndigraph xump {{")
    path = tmp_path / f"graph.{drawn}"
    assert run("graph", file(RIGHT), "--output", str(path)) == (0, "", "")
    assert path.read_text() == out


def test_graphviz_that_fails(run, file, graphviz):
    graphviz('while read -r line; do :; done\necho "out of ink" >&2\nexit 3')
    status, out, err = run("graph", file(RIGHT), "--format", "png")
    assert (status, out) == (2, "")
    assert err == "xump: Graphviz' program `dot` failed: out of ink\n"


def test_a_picture_is_not_for_a_terminal(run, file, graphviz, monkeypatch):
    graphviz("printf 'a\\0b'")
    monkeypatch.setattr(sys.stdout, "isatty", lambda: True)
    status, out, err = run("graph", file(RIGHT), "--format", "png")
    assert (status, out) == (2, "")
    assert "give --output FILE" in err


# ---- demo

def test_the_demo_gets_its_arguments(run, monkeypatch):
    given = []
    demo = types.ModuleType("xump.demo.main")
    demo.main = given.append
    monkeypatch.setitem(sys.modules, "xump.demo.main", demo)
    assert run("demo", "--messages", "10", "--output", "out", "--more") == (0, "", "")
    assert given == [["--messages", "10", "--output", "out", "--more"]]
    demo.main = lambda arguments: 1
    assert run("demo") == (1, "", "")


def test_the_demo_without_what_it_needs(run, monkeypatch):
    monkeypatch.setitem(sys.modules, "xump.demo.main", None)
    status, out, err = run("demo")
    assert (status, out) == (2, "")
    assert err == "xump: the demo needs xump.demo.main, which is not installed: pip install 'xump[demo]'\n"


# ---- as a process

def test_the_version():
    done = process("--version")
    assert (done.returncode, done.stdout, done.stderr) == (0, f"xump {cli.version('xump')}\n", "")


def test_a_process_ends_with_the_status(file):
    done = process("check", file(WRONG))
    assert (done.returncode, done.stderr) == (1, "")
    assert "unknown operator" in done.stdout
    done = process("check", file(RIGHT) + ".toml")
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr.count("\n") == 1


def test_a_reader_that_leaves_is_no_error(file):
    reading, writing = os.pipe()
    os.close(reading)
    command = [sys.executable, "-m", "xump", "graph", file(RIGHT)]
    done = subprocess.run(command, stdout=writing, stderr=subprocess.PIPE, check=False)
    os.close(writing)
    assert (done.returncode, done.stderr) == (0, b"")


def test_xump_itself_imports_none_of_this():
    modules = ["xump.aio", "xump.cli.main", "xump.topology.schema", "xump.topology.drawing", "xump.topology.lint",
               "xump.topology.codec", "xump.topology",
               "asyncio", "argparse"]
    code = f"import sys, xump; print([name for name in {modules} if name in sys.modules])"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == "[]\n"
