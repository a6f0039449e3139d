"""Sentences name the thing that they are about: none begins with "what", "who" or "nobody", so that one can be read once."""

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
PAGES = [ROOT / "README.md", ROOT / "CHANGELOG.md", ROOT / "benchmarks" / "README.md", *sorted((ROOT / "docs").glob("*.md"))]
PACKAGES = ["xump", "xump_ext", "stores"]
CODE = {".py", ".pyx", ".pxd", ".pyi"}

BEGINS = re.compile(
    r"(?:\A\s*|(?<=[.:;!?])\s+|\n\s*\n\s*|\n\s*(?:[-*]|[\w`, ]+:) )"     # a text, sentence, paragraph, item, argument
    r"(?:What|Who|Whoever|Whatever|Nobody)\b(?P<rest>.*?)(?=[.:;!?](?:\s|\Z)|\Z|\n\s*\n)(?P<end>.?)", re.DOTALL)
TEXT = re.compile(r'"""(.*?)"""|\bdocument\(\w+, b"\w+", b"([^"]*)"\)', re.DOTALL)
NO_PROSE = re.compile(r"^```.*?^```|^#.*?$|^<!--.*?-->|`[^`\n]*`", re.DOTALL | re.MULTILINE)     # code, headings


def begun_without_a_subject(text):
    """Such sentences of a text. Questions may begin so."""
    return [" ".join(found[0].split()).rstrip(".:;!")[:80] for found in BEGINS.finditer(text) if found["end"] != "?"]


def texts_of_code():
    for package in PACKAGES:
        for path in sorted((ROOT / package).rglob("*")):
            if path.suffix in CODE:
                source = path.read_text()
                for found in TEXT.finditer(source):
                    yield f"{path.relative_to(ROOT)}:{source.count(chr(10), 0, found.start()) + 1}", found[1] or found[2]


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_pages(page):
    assert begun_without_a_subject(NO_PROSE.sub("", page.read_text())) == []


def test_docstrings():
    found = [f"{where}: {sentence}" for where, text in texts_of_code() for sentence in begun_without_a_subject(text)]
    assert found == [], "\n".join(found)


@pytest.mark.parametrize(("text", "found"), [
    ("What waits is sent. It is gone.", ["What waits is sent"]),
    ("It waits. Who asks\nfirst gets it.", ["Who asks first gets it"]),
    ("Args:\n    url: What to open.", ["url: What to open"]),
    ("- Nobody knows.", ["- Nobody knows"]),
    ("What is it? A queue.", []),
    ("It says what it is, and who.", []),
])
def test_the_rule(text, found):
    assert begun_without_a_subject("\n" + text) == found
