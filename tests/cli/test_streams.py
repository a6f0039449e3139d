"""Standard streams that are closed, or full, and files that cannot be read: each ends a command in a sentence, and with 2."""

import subprocess
import sys

import pytest

import xump
from xump._parsing import json_of, toml_of

FULL = "standard output cannot be written: No space left on device"
CLOSED = "standard input cannot be read: Bad file descriptor"
DEEP = b"x = " + b"[" * 100_000


@pytest.fixture
def shell(tmp_path):
    """Runs `xump` with a shell's redirections; `@` is a folder of its own: (status, standard output, standard error)."""
    (tmp_path / "network.toml").write_text("version = 1\n[queues.a]\n")

    def run(arguments):
        command = f"exec {sys.executable} -m xump {arguments.replace('@', f'{tmp_path}/')}"
        done = subprocess.run(["sh", "-c", command], capture_output=True, text=True, check=False, stdin=subprocess.DEVNULL)
        return done.returncode, done.stdout, done.stderr
    return run


@pytest.mark.parametrize(("arguments", "said"), [
    ("check @network.toml >/dev/full", FULL), ("graph @network.toml >/dev/full", FULL), ("--help >/dev/full", FULL),
    ("bench @network.toml --messages 1 >/dev/full", FULL), ("sql --help >/dev/full", FULL),
    ("check - <&-", CLOSED), ("graph - <&-", CLOSED), ("users anna <&-", CLOSED), ("publish jobs <&-", CLOSED),
    ("publish jobs --whole <&-", CLOSED),
])
def test_streams_that_cannot_be_used(shell, arguments, said):
    assert shell(arguments) == (2, "", f"xump: {said}\n")


@pytest.mark.parametrize("redirections", [">&-", "2>&-", ">&- 2>&-", "<&-", "<&- >&- 2>&-"])
def test_output_that_nobody_wants(shell, redirections):
    assert shell(f"graph @network.toml {redirections}")[::2] == (0, "")
    assert shell(f"graph @nosuch.toml {redirections}")[:2] == (2, "")        # the error is not standard output


def test_an_error_that_cannot_be_said(shell):
    assert shell("check @nosuch.toml 2>/dev/full") == (2, "", "")


def test_a_full_disk_of_the_output_is_not_that_of_the_store(shell, tmp_path):
    path = str(tmp_path / "orders.xump")
    with xump.Engine() as engine:
        engine.create_store("orders", "ring", path=path)
        engine.create_queue("jobs", store="orders")
        engine.publish_many("jobs", [("a", b"x" * 100)] * 1000)         # more than a buffer of output takes
    assert shell("browse @orders.xump jobs >/dev/full") == (2, "", f"xump: {FULL}\n")


@pytest.mark.parametrize("arguments", ["check @deep.toml", "graph @deep.toml", "check - <@deep.toml", "serve @deep.toml"])
def test_a_topology_that_nests_too_deeply(shell, tmp_path, arguments):
    (tmp_path / "deep.toml").write_bytes(DEEP)
    status, out, said = shell(arguments)
    assert (status, out) == (1, "")
    assert "is not TOML: it is nested too deeply" in said


def test_a_file_of_users_or_a_broker_that_nests_too_deeply(shell, tmp_path):
    (tmp_path / "deep.toml").write_bytes(DEEP)
    for arguments in ("serve --amqp 127.0.0.1:0 --users @deep.toml", "top --broker @deep.toml"):
        status, out, said = shell(arguments)
        assert (status, out) == (2, "")
        assert "it is nested too deeply" in said


@pytest.mark.parametrize("parse", [toml_of, json_of])
@pytest.mark.parametrize("text", [DEEP, b"[" * 100_000, b"\xff", b"{", b"x = 1" + b"0" * 5000])
def test_whatever_is_wrong_with_a_text_is_a_value_error(parse, text):
    with pytest.raises(ValueError):
        parse(text)


def test_nesting_too_deep_is_known_whatever_the_parser_says(monkeypatch):
    def loads(text):
        raise RecursionError

    monkeypatch.setattr("json.loads", loads)
    with pytest.raises(ValueError, match="nested too deeply"):
        json_of(b"1")
