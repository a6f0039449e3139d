"""The commands of docs/http.md, by curl, and what they print."""

import shlex
import shutil
import subprocess

import pytest

from tests.test_docs import COMMAND, ROOT, blocks

ADDRESS = "127.0.0.1:8080"


@pytest.mark.skipif(shutil.which("curl") is None, reason="left out: it needs the program curl")
def test_the_commands_of_the_page(engine, web, tmp_path):
    for name in ("jobs", "orders", "news"):
        engine.create_queue(name)
    (tmp_path / "cat.png").write_bytes(b"\x89PNG")
    page = (ROOT / "docs" / "http.md").read_text(encoding="utf-8")
    text = "".join(code for _, language, code in blocks(page) if language == "console" and code.startswith("$ curl "))
    commands = COMMAND.findall(text.replace("\\\n", ""))
    assert len(commands) == 6
    for command, said in commands:
        done = subprocess.run(
            [*shlex.split(command.replace(ADDRESS, web.place.netloc)), "--silent", "--show-error", "--fail"], cwd=tmp_path,
            capture_output=True, text=True, check=False)
        assert done.returncode == 0, command + done.stderr
        assert not said or done.stdout.strip() == said.strip(), command
    assert [message.body for message in engine.queues["jobs"].browse()] == [b"cat.png", b"\x89PNG"]
    assert engine.queues["jobs"].fetch(2).headers == {"content-type": "image/png", "width": 80}
    assert engine.queues["orders"].fetch(1).address == "order.new"
    assert "webhook resizer" in engine.selectors
    assert engine.queues["thumbnails"].limit == 1000
