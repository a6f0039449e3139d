"""Every example of the README and of the pages in docs/ runs, in order.

Python blocks with `>>>` are doctests, exception names and texts included; the others are executed. The blocks of a page share a
namespace; one without prompts that begins with an import begins a new one, so that it can be pasted into a new file. A TOML block
whose first line is `# NAME.toml` is that file from there on. Console blocks are the command `xump` and what it prints; those that
begin with `curl` need a server, and run in `tests/broker/http/test_curl.py`. A failure names the line of the page.
"""

import doctest
import inspect
import re
import shlex
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

from xump import operators
from xump.store_types import factory_of

ROOT = Path(__file__).parent.parent
SPARK = ROOT / "docs" / "spark.md"
"""Needs Spark: `tests/spark/test_page.py` runs it."""
PAGES = [ROOT / "README.md", *(page for page in sorted((ROOT / "docs").glob("*.md")) if page != SPARK)]
BLOCK = re.compile(r"^```(python|toml|console)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
COMMAND = re.compile(r"^\$ (.*)\n((?:(?!\$ ).*\n)*)", re.MULTILINE)


def blocks(text):
    """(line of the page that the block begins on, counted from 0; its language; its code)."""
    return [(text.count("\n", 0, found.start(2)), found.group(1), found.group(2)) for found in BLOCK.finditer(text)]


def run_page(path):
    names = {"__name__": path.stem}
    runner = doctest.DocTestRunner(verbose=False, optionflags=0)
    failures = []
    for line, language, code in blocks(path.read_text(encoding="utf-8")):
        place = f'File "{path}", line {line + 1}'
        if language == "toml":
            keep_file(code)
        elif language == "console" and code.startswith(("$ curl ", "$ seq ")):
            continue
        elif language == "console":
            failures += [f"{place}: {failure}" for failure in run_commands(code)]
        elif ">>>" in code:
            test = doctest.DocTestParser().get_doctest(code, names, path.name, str(path), line)
            test.globs = names
            runner.run(test, out=failures.append, clear_globs=False)
        else:
            if code.startswith(("import ", "from ")):
                names = {"__name__": path.stem}
            exec(compile("\n" * line + code, str(path), "exec"), names)
    return "".join(failures)


def keep_file(code):
    tomllib.loads(code)
    name = re.match(r"# (\S+\.toml)\n", code)
    if name:
        Path(name.group(1)).write_text(code, encoding="utf-8")


def run_commands(code):
    """What differs from the page, in the order of the commands."""
    commands = COMMAND.findall(code)
    assert "".join(f"$ {command}\n{said}" for command, said in commands) == code, "a console block is commands and what they say"
    for command, said in commands:
        program, *arguments = shlex.split(command)
        assert program == "xump", command
        done = subprocess.run([sys.executable, "-m", "xump", *arguments], capture_output=True, text=True, check=False)
        if done.stdout + done.stderr != said:
            yield f"{command} printed\n{done.stdout}{done.stderr}expected was\n{said}"


@pytest.fixture(autouse=True)
def own_place(tmp_path, monkeypatch):
    """Files, and operators that a page registers, end with the test."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(operators, "_registered", dict(operators._registered))


@pytest.mark.parametrize("path", PAGES, ids=lambda path: path.name)
def test_examples_run(path):
    failures = run_page(path)
    assert not failures, failures


@pytest.mark.parametrize("path", PAGES, ids=lambda path: path.name)
def test_links_lead_somewhere(path):
    for target in re.findall(r"\]\(([^)#\s]+)[^)]*\)", path.read_text(encoding="utf-8")):
        assert target.startswith("https://") or (path.parent / target).exists(), f"{path.name} links to {target}"


def test_each_decision_has_a_number_of_its_own():
    numbers = re.findall(r"^\*\*(\d+)\. ", (ROOT / "docs" / "decisions.md").read_text(), re.MULTILINE)
    assert len(numbers) > 200 and len(numbers) == len(set(numbers))


def test_the_tables_of_options_are_those_of_the_stores():
    text = (ROOT / "docs" / "stores.md").read_text(encoding="utf-8")
    said = {"": inspect.Parameter.empty, "none": None, '`"group"`': "group", "2": 2.0, "16 MiB": 16 << 20, "1 TiB": 1 << 40,
            "126": 126}
    said["4 MiB"] = None        # of `segment_bytes`: those that the file has, or so many
    for kind in ("ring", "lmdb"):
        parameters = list(inspect.signature(factory_of(kind)).parameters.values())[1:]
        table = text.partition(f"| `{kind}` | default | |\n")[2].partition("\n\n")[0]
        rows = re.findall(r"^\| `(\w+)` \| ?(.*?) ?\|", table, re.MULTILINE)
        assert [(name, said[default]) for name, default in rows] == [(one.name, one.default) for one in parameters]


def page_of(tmp_path, text):
    page = tmp_path / "page.md"
    page.write_text(text, encoding="utf-8")
    return page


def test_a_block_that_fails_is_seen(tmp_path):
    page = page_of(tmp_path, "text\n\n```python\n>>> 1 + 1\n2\n>>> 1 + 1\n3\n```\n")
    assert f'File "{page}", line 6' in run_page(page)
    with pytest.raises(KeyError, match="seen"):
        run_page(page_of(tmp_path, "```python\nraise KeyError('seen')\n```\n"))


@pytest.mark.parametrize(
    ("said", "right"),
    [("xump.errors.Conflict: name", False), ("Conflict: name", False), ("ValueError: ...", False), ("ValueError: name", True)])
def test_the_name_and_the_text_of_an_exception_are_compared(tmp_path, said, right):
    failures = run_page(page_of(
        tmp_path, f"```python\n>>> raise ValueError('name')\nTraceback (most recent call last):\n{said}\n```\n"))
    assert (failures == "") is right


def test_a_block_that_begins_with_an_import_begins_anew(tmp_path):
    block = "```python\n{}\n```\n"
    assert not run_page(page_of(tmp_path, block.format("import math\nx = 1") + block.format("assert x == 1 and math")))
    with pytest.raises(NameError, match="math"):
        run_page(page_of(tmp_path, block.format("import math") + block.format("from json import dumps\nmath.pi")))


def test_a_file_is_there_for_the_command_and_what_it_prints_is_compared(tmp_path):
    file = "```toml\n# none.toml\nversion = 1\n```\n"
    command = "```console\n$ xump check none.toml\nnone.toml is fine: 0 queues, {} selectors.\n```\n"
    assert not run_page(page_of(tmp_path, file + command.format(0)))
    assert "0 selectors" in run_page(page_of(tmp_path, file + command.format(1)))
