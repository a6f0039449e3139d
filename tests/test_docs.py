"""Every Python block of the README and of the pages in docs/ runs, in order, in one namespace a page.

Blocks with `>>>` are doctests, the others are executed. A failure names the line of the page.
"""

import doctest
import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))]
BLOCK = re.compile(r"^```python\n(.*?)^```$", re.MULTILINE | re.DOTALL)


def blocks(text):
    """(line of the page that the block begins on, counted from 0; its code)."""
    return [(text.count("\n", 0, found.start(1)), found.group(1)) for found in BLOCK.finditer(text)]


def run_page(path):
    names = {"__name__": path.stem}
    runner = doctest.DocTestRunner(verbose=False, optionflags=doctest.IGNORE_EXCEPTION_DETAIL)
    failures = []
    for line, code in blocks(path.read_text(encoding="utf-8")):
        if ">>>" in code:
            test = doctest.DocTestParser().get_doctest(code, names, path.name, str(path), line)
            test.globs = names
            runner.run(test, out=failures.append, clear_globs=False)
        else:
            exec(compile("\n" * line + code, str(path), "exec"), names)
    return "".join(failures)


@pytest.mark.parametrize("path", PAGES, ids=lambda path: path.name)
def test_python_blocks_run(path, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    failures = run_page(path)
    assert not failures, failures


@pytest.mark.parametrize("path", PAGES, ids=lambda path: path.name)
def test_links_lead_somewhere(path):
    for target in re.findall(r"\]\(([^)#\s]+)[^)]*\)", path.read_text(encoding="utf-8")):
        assert target.startswith("https://") or (path.parent / target).exists(), f"{path.name} links to {target}"


def test_a_block_that_fails_is_seen(tmp_path):
    page = tmp_path / "page.md"
    page.write_text("text\n\n```python\n>>> 1 + 1\n2\n>>> 1 + 1\n3\n```\n")
    assert f'File "{page}", line 6' in run_page(page)
    page.write_text("```python\nraise KeyError('seen')\n```\n")
    with pytest.raises(KeyError, match="seen"):
        run_page(page)
