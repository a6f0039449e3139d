"""The commands of `xump` that ask a running broker."""

import io
import json
import math
import os
import re
import shlex
import shutil
import signal
import subprocess
import sys
from pathlib import Path

import pika
import pytest

from benchmarks.ports import free_port
from tests.broker.http.conftest import Client, answer
from tests.test_docs import COMMAND, ROOT, blocks
from xump import always, move_to
from xump.broker import Broker
from xump.broker.http import messages
from xump.broker.users import User, Users, hash_password
from xump.cli import main as command_line
from xump.cli import remote_commands
from xump.cli.remote import process_of
from xump.cli.top import duration


ANY = re.compile("")


@pytest.fixture
def run(web, monkeypatch, capfd):
    """Runs a command against the broker: (exit status, standard output, standard error)."""
    monkeypatch.setenv("XUMP_BROKER", web.url)

    def run(command, given=b""):
        raw = io.BytesIO(given) if isinstance(given, bytes) else given
        monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BufferedReader(raw)))
        status = command_line.main(shlex.split(command))
        return status, *capfd.readouterr()

    return run


def test_lines_become_messages(engine, run):
    jobs = engine.create_queue("jobs")
    status, _, said = run("publish jobs --address image.resize --header width=80 --header name=cat --priority 3", b"a\nb\n\nc")
    assert (status, said) == (0, "published 4 messages into jobs\n")
    assert [(m.address, m.body, m.headers, m.priority) for m in jobs.browse()] == [
        ("image.resize", body, {"width": 80, "name": "cat"}, 3) for body in (b"a", b"b", b"", b"c")]


def test_more_lines_than_one_request_takes(engine, run):
    jobs = engine.create_queue("jobs")
    assert run("publish jobs", b"".join(b"%d\n" % n for n in range(2_500)))[0] == 0
    assert [m.body for m in jobs.browse()] == [b"%d" % n for n in range(2_500)]


def test_lines_that_come_in_pieces(engine, run, monkeypatch):
    monkeypatch.setattr(remote_commands, "CHUNK_BYTES", 4)
    jobs = engine.create_queue("jobs")
    given = b"a line that is longer\n\nb\ncc\n" + b"x" * 9
    assert run("publish jobs", given)[0] == 0
    assert [m.body for m in jobs.browse()] == given.split(b"\n")


def test_no_line_is_no_message(engine, run):
    jobs = engine.create_queue("jobs")
    for options in ("", "--json"):
        assert run(f"publish jobs {options}") == (0, "", "published 0 messages into jobs\n")
    assert jobs.ready == 0


def test_standard_input_as_one_message(engine, run):
    jobs = engine.create_queue("jobs")
    assert run("publish jobs --whole", b"\x89PNG\n\x00\n")[0] == 0
    assert [m.body for m in jobs.browse()] == [b"\x89PNG\n\x00\n"]


class Endless(io.RawIOBase):
    """A file that never ends, in which a second line does not either."""

    def __init__(self):
        self.given = 0

    def readable(self):
        return True

    def readinto(self, buffer):
        buffer[:] = b"first\n".ljust(len(buffer), b"x") if self.given == 0 else b"x" * len(buffer)
        self.given += len(buffer)
        return len(buffer)


@pytest.mark.parametrize(("options", "said", "published"), [
    ("", "a line has more than 1 MiB: no message can be so long; published 1 message before that", 1),
    ("--whole", "standard input has more than 1 MiB: no message can be so long", 0),
])
def test_what_has_no_end_is_not_gathered(engine, run, monkeypatch, options, said, published):
    jobs, endless = engine.create_queue("jobs"), Endless()
    monkeypatch.setattr(remote_commands, "MESSAGE_BYTES_MAX", 1 << 20)
    status, _, error = run(f"publish jobs {options}", endless)
    assert (status, error) == (2, f"xump: {said}\n")
    assert jobs.ready == published
    assert endless.given < 2 << 20


def test_what_consume_prints_publish_reads(engine, run):
    engine.create_queue("jobs").publish("a", b"\xff", {"n": 3}, message_id="17")
    others = engine.create_queue("others")
    status, lines, _ = run("consume jobs --count 1")
    assert status == 0
    assert run("publish others --json", lines.encode())[0] == 0
    [message] = others.browse()
    assert (message.address, message.body, message.headers, message.message_id) == ("a", b"\xff", {"n": 3}, "17")


HEADERS = {"bytes": b"\xff", "nan": math.nan, "inf": -math.inf, "text": "/w==", "é": "é"}
IN_JSON = {"bytes": {"base64": "/w=="}, "nan": {"float": "nan"}, "inf": {"float": "-inf"}, "text": "/w==", "é": "é"}


def strictly(text):
    """The value of a text in JSON, which has no NaN."""
    return json.loads(text, parse_constant=lambda name: pytest.fail(f"{name} is no JSON"))


def test_headers_that_json_has_not_go_there_and_back(engine, web, run, tmp_path):
    engine.create_store("orders", "ring", path=str(tmp_path / "orders.xump"))
    engine.create_queue("jobs", store="orders", history_limit=1).publish("a", b"x", HEADERS)
    others = engine.create_queue("others")
    asked = run(f"browse {web.url} jobs --json")[1]
    assert strictly(asked)["headers"] == IN_JSON
    line = run("consume jobs --count 1")[1]
    assert strictly(line)["headers"] == IN_JSON
    assert run("publish others --json", line.encode())[0] == 0
    [message] = others.browse()
    assert {name: repr(value) for name, value in message.headers.items()} == {
        name: repr(value) for name, value in HEADERS.items()}
    assert web("POST", "/queues/others", b"", {"Xump-Headers": json.dumps(IN_JSON)}).status == 201
    assert repr(others.fetch(2).headers) == repr(message.headers)
    engine.delete_store("orders")
    assert strictly(run(f"browse {tmp_path}/orders.xump jobs --json")[1])["headers"] == strictly(asked)["headers"]


@pytest.mark.parametrize("given", [
    {"base65": "x"}, {"base64": 3}, {"base64": "?"}, {"base64": "é"}, {"float": "1"}, {"float": [1]}, {}, {"a": 1, "b": 2}])
def test_objects_in_headers_that_are_no_value(engine, web, given):
    engine.create_queue("jobs")
    line = json.dumps({"headers": {"h": given}}).encode()
    found = web("POST", "/queues/jobs", line, {"Content-Type": "application/x-ndjson"})
    assert found.status == 400
    assert found.json["detail"].startswith("line 1: header 'h': ")


def test_headers_that_are_no_numbers_in_json_are_texts(engine, run):
    jobs = engine.create_queue("jobs")
    given = ("NaN", "Infinity", "-Infinity", "1e999", "1e3", "true", "null", "[" * 100_000, "x")
    assert run("publish jobs " + " ".join(f"--header {n}={value}" for n, value in enumerate(given)), b"a")[0] == 0
    assert list(jobs.fetch(1).headers.values()) == [*given[:4], 1000.0, True, *given[6:]]


def test_what_enters_before_an_error_is_said(engine, run):
    engine.create_queue("jobs", limit=1_000)
    status, _, said = run("publish jobs", b"x\n" * 1_500)
    assert status == 1
    assert "has no room for message 1 of 500" in said
    assert said.endswith("; published 1,000 messages before that\n")


def test_an_error_says_the_line_of_the_input(engine, run):
    engine.create_queue("jobs")
    status, _, said = run("publish jobs --json", b'{"body": "1"}\n' * 1_499 + b"\noops\n")
    assert status == 2
    assert ": line 1501: not JSON: " in said
    assert said.endswith("; published 1,000 messages before that\n")


def test_a_command_for_each_message(engine, run, tmp_path):
    jobs = engine.create_queue("jobs", retry_delay=[3600])
    jobs.publish("a.b", b"good", {"size": 3, "big": True, "odd-name": "x"})
    jobs.publish("a.b", b"bad")
    script = tmp_path / "work"
    script.write_text('read -r body; echo "$XUMP_QUEUE $XUMP_ID $XUMP_ADDRESS $XUMP_DELIVERY_COUNT $XUMP_HEADER_size '
                      '$XUMP_HEADER_big $XUMP_HEADER_odd_name $body"; test "$body" = good')
    status, out, _ = run(f"consume jobs --count 2 -- sh {script}")
    assert status == 0
    assert out.splitlines()[0] == "jobs 1 a.b 1 3 true x good"
    assert (jobs.ready, jobs.outstanding, jobs.delayed) == (0, 0, 1)


def test_commands_side_by_side(engine, run):
    jobs = engine.create_queue("jobs")
    engine.publish_many("jobs", [("", b"%d" % n) for n in range(20)])
    status, out, _ = run("consume jobs --parallel 4 --wait 0 -- sh -c 'echo $(cat)'")
    assert status == 0
    assert sorted(map(int, out.split())) == list(range(20))
    assert (jobs.ready, jobs.outstanding) == (0, 0)


def test_a_command_that_does_not_exist_gives_the_message_back(engine, run):
    jobs = engine.create_queue("jobs")
    jobs.publish("a")
    status, _, said = run("consume jobs -- /no/such/program")
    assert (status, said) == (2, "xump: /no/such/program: No such file or directory\n")
    assert (jobs.ready, jobs.outstanding) == (1, 0)


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
@pytest.mark.parametrize("parallel", ["1", "3"])
def test_a_signal_gives_the_message_back(engine, web, parallel, number):
    jobs = engine.create_queue("jobs")
    jobs.publish("a")
    arguments = ["consume", "jobs", "--broker", web.url, "--parallel", parallel, "--", "sh", "-c", "echo begun; exec sleep 1000"]
    with subprocess.Popen([sys.executable, "-m", "xump", *arguments], stdout=subprocess.PIPE) as process:
        assert process.stdout.readline() == b"begun\n"
        process.send_signal(number)
        assert process.wait() == 130
        process.stdout.read()           # to its end: the command that ran has ended, too
    assert (jobs.ready, jobs.outstanding) == (1, 0)
    assert engine.get("jobs").delivery_count == 2           # the threads that waited did not get it


def test_an_error_of_one_command_ends_those_beside_it(engine, web, tmp_path):
    jobs = engine.create_queue("jobs")
    jobs.publish("a")
    program = tmp_path / "once"     # it takes itself away, and waits for ever
    program.write_text('#!/bin/sh\nrm "$0"\necho begun\nexec sleep 1000\n')
    program.chmod(0o755)
    arguments = ["consume", "jobs", "--broker", web.url, "--parallel", "2", "--", str(program)]
    command = [sys.executable, "-m", "xump", *arguments]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        assert process.stdout.readline() == "begun\n"
        jobs.publish("b")
        assert process.wait() == 2
        assert process.stderr.read() == f"xump: {program}: No such file or directory\n"
    assert (jobs.ready, jobs.outstanding) == (2, 0)


def test_dead_letters_go_back(engine, run):
    engine.create_queue("dead")
    jobs = engine.create_queue("jobs", dead_letter="dead")
    for n in range(3):
        jobs.publish(str(n))
        engine.get("jobs").reject()
    assert run("requeue dead --limit 1")[1] == "requeued 1 message\n"
    assert run("requeue dead")[1] == "requeued 2 messages\n"
    assert [m.address for m in jobs.browse()] == ["0", "1", "2"]


def test_a_broker_is_looked_at_like_a_store(engine, web, run):
    jobs = engine.create_queue("jobs")
    jobs.publish("a", b"cat.png", {"n": 3})
    jobs.publish("b", delay=3600)
    engine.publish_many("jobs", [("c",)] * 1_200)
    lines = run(f"browse {web.url} jobs --limit 2")[1].splitlines()
    assert lines[0].split()[:2] == ["1", "ready"]
    assert "cat.png" in lines[0]
    assert lines[1].split()[:2] == ["2", "delayed"]
    assert len(run(f"browse {web.url} jobs")[1].splitlines()) == 1_202
    lines = run(f"browse {web.url} jobs --reverse --limit 2 --json")[1].splitlines()
    assert [json.loads(line)["id"] for line in lines] == [1_202, 1_201]
    assert "jobs   1,201        1" in run(f"stats {web.url}")[1]
    assert json.loads(run(f"stats {web.url} --json")[1])["queues"][0]["ready"] == 1_201
    assert '"jobs"' in run(f"graph {web.url}")[1]
    assert "jobs   1,201" in run("top --once")[1]


def test_pages_of_large_messages_have_fewer_of_them(engine, web, run, monkeypatch):
    monkeypatch.setattr(messages, "BODIES_BYTES_MAX", 10)
    engine.create_queue("jobs")
    engine.publish_many("jobs", [("a", b"123456")] * 5)
    for options, ids in (("", [1, 2, 3, 4, 5]), ("--reverse", [5, 4, 3, 2, 1]), ("--limit 3", [1, 2, 3])):
        lines = run(f"browse {web.url} jobs {options}")[1].splitlines()
        assert [int(line.split()[0]) for line in lines] == ids


def test_top_says_which_selectors_wait_and_why(run, engine):
    engine.create_queue("full", limit=0)
    engine.create_queue("jobs").publish("a")
    engine.create_selector("jobs", when=always, do=move_to("full"))
    engine.create_queue("more").publish("a")
    engine.create_selector("more", when=always, do=move_to("full"), name="second")
    status, out, _ = run("top --once")
    assert status == 0
    assert out.splitlines()[-3:] == [
        "selectors that wait", "  1, jobs: move_to('full'): its target has no room",
        "  2 second, more: move_to('full'): its target has no room"]


@pytest.mark.parametrize(("command", "status", "said"), [
    ("publish nosuch", 1, "no queue 'nosuch'"),
    ("consume nosuch", 1, "no queue 'nosuch'"),
    ("requeue nosuch", 1, "no queue 'nosuch'"),
    ("publish jobs --json --address a", 2, "--json: each line has its own address, headers"),
    ("publish jobs --broker http://127.0.0.1:1", 2, "no broker answers at http://127.0.0.1:1: Connection refused"),
    ("publish jobs --broker http://127.0.0.1:1", 2, "or say with --broker where it is"),
    ("stats http://127.0.0.1:1", 2, "or give the URL where it is"),
    ("browse http://127.0.0.1:1 jobs", 2, "or give the URL where it is"),
    ("graph http://127.0.0.1:1", 2, "or give the URL where it is"),
])
@pytest.mark.parametrize("given", [b"a\n", b""], ids=["a line", "no line"])
def test_what_is_wrong_is_said(engine, run, command, status, said, given):
    engine.create_queue("jobs")
    found, _, error = run(command, given)
    assert found == status
    assert said in error
    assert error.count("\n") == 1


@pytest.mark.parametrize(("command", "said"), [
    ("publish jobs --priority 300", "must be 0 to 255, got '300'"), ("publish jobs --priority -1", "got '-1'"),
    ("publish jobs --header x", "NAME=VALUE, got 'x'"), ("consume jobs --count 0", "1 or more, got '0'"), ("publish ''", "empty"),
    ("publish jobs --ttl nan", "0 or more, got 'nan'"), ("consume jobs --wait -1", "0 or more, got '-1'"),
    ("consume jobs --wait inf", "got 'inf'"), ("consume jobs --wait x", "got 'x'"), ("top --seconds 0", "0.01 or more, got '0'"),
    ("requeue jobs --to ''", "empty"), ("top --broker nowhere", "got 'nowhere'"), ("top --broker http://", "'http://'"),
    ("top --broker http://127.0.0.1:99999", "'http://127.0.0.1:99999' is not where"),
    ("top --broker http://here/there", "'http://here/there'"), ("top --broker http://a..b:80", "'http://a..b:80' is not where"),
    ("top --broker 'http://a b'", "'http://a b' is not where"),
])
def test_options_that_are_wrong(run, capfd, command, said):
    with pytest.raises(SystemExit) as ended:
        run(command)
    assert ended.value.code == 2
    assert said in capfd.readouterr().err


def test_a_broker_that_asks_who_it_is_says_how_to_say_it(engine, run):
    users = Users({"anna": User("anna", hash_password("secret", 2), {"/": {"configure": ANY, "write": ANY, "read": ANY}})})
    with Broker(engine, amqp="127.0.0.1:0", http="127.0.0.1:0", users=users) as broker:
        place = f"127.0.0.1:{broker.http.address[1]}"
        status, _, said = run(f"stats http://{place}")
        assert (status, said.endswith(f"that the broker knows: http://USER:PASSWORD@{place}\n")) == (2, True)
        assert run(f"stats http://anna:secret@{place}")[0] == 0


@pytest.mark.parametrize("content", [
    b"<html>", b"{}", b"[]", b"[{}]", b"{oops", b"[" * 100_000, b"3", b'{"ids": 3}', b'{"requeued": "x"}',
    b'[{"id": 1, "address": "", "headers": {}, "timestamp": 1, "hops": 0, "priority": 0, "body_base64": "x"}]',
    b'{"now": 1, "connections": [], "selectors": [], "queues": [{"name": "q"}]}'])
def test_another_server_is_no_broker(target, run, content):
    url = target(answer(200, content, "Content-Type: application/json")).url.removesuffix("/hook")
    commands = [f"publish jobs --broker {url}", f"requeue jobs --broker {url}", f"top --once --broker {url}", f"stats {url}",
                f"graph {url}"]
    if content != b"[]":                # a queue may have no messages
        commands += [f"consume jobs --broker {url}", f"browse {url} jobs"]
    for command in commands:
        status, out, said = run(command, b"a\n")
        assert (status, out) == (2, "")
        assert said.startswith(f"xump: {url} does not answer as a Xump broker does: to ")
        assert said.count("\n") == 1


@pytest.mark.parametrize("command", [
    "publish \udcff", "consume \udcff", "requeue \udcff", "requeue jobs --to \udcff", "browse URL \udcff"])
def test_names_that_are_no_text(engine, web, run, command):
    engine.create_queue("jobs")
    status, out, said = run(command.replace("URL", web.url))
    assert (status, out) == (2, "")
    assert said.endswith(" is not text in UTF-8, as names and filters are\n")


@pytest.mark.parametrize("beside", [
    "http://x:abc", "http://[::1", "http://127.0.0.1:99999", "http://a..b:80", "ftp://127.0.0.1:1", "here", "", "\0"])
def test_a_file_beside_a_store_that_is_none_of_a_broker(tmp_path, beside):
    (tmp_path / "orders.xump.http").write_text(beside)
    assert process_of(str(tmp_path / "orders.xump")) is None


@pytest.mark.parametrize("command", ["stats", "graph"])
def test_urls_that_are_wrong(run, command):
    status, _, said = run(f"{command} http://127.0.0.1:99999")
    assert status == 2
    assert said.startswith("xump: 'http://127.0.0.1:99999' is not where a broker answers: expected a URL such as")
    assert said.count("\n") == 1


def test_a_store_that_is_in_use_asks_its_process(tmp_path, capfd):
    path = str(tmp_path / "orders.xump")
    options = ["--amqp", "127.0.0.1:0", "--http", "127.0.0.1:0", "--store", "ring", "--path", path]
    command = [sys.executable, "-m", "xump", "serve", *options]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        try:
            url = process.stdout.readline().split()[-1]
            assert Client(url)("PUT", "/queues/jobs", b"{}").status == 201
            assert command_line.main(["stats", path]) == 0
            assert "jobs" in capfd.readouterr().out
        finally:
            process.terminate()
        assert process.wait() == 0
    assert not Path(path + ".http").exists()
    assert command_line.main(["stats", path]) == 0


def test_spans_of_time():
    assert [duration(seconds) for seconds in (0.2, 59, 60, 7_200, 200_000)] == ["0s", "59s", "1m", "2h", "2d"]


@pytest.mark.skipif(shutil.which("amqp-consume") is None, reason="left out: it needs the program amqp-consume (amqp-tools)")
@pytest.mark.skipif(shutil.which("curl") is None, reason="left out: it needs the program curl")
def test_the_website_that_rebuilds_itself(engine, target, tmp_path):
    """Of the notes on RabbitHub: a hook posts what was pushed into an exchange; a script rebuilds the site."""
    hook, script = target(answer(204)), tmp_path / "rebuild"
    script.write_text(f"#!/bin/sh\ncat >> {tmp_path}/site\nexit 0\n")
    script.chmod(0o755)
    with Broker(engine, amqp="127.0.0.1:0", http="127.0.0.1:0", private_targets=True) as broker:
        port = broker.address[1]
        with pika.BlockingConnection(pika.ConnectionParameters("127.0.0.1", port)) as connection:
            channel = connection.channel()
            channel.exchange_declare("website", "topic")
            channel.queue_declare("news")
            channel.queue_bind("news", "website", "push.#")
            channel.queue_declare("hook")
            channel.queue_bind("hook", "website", "#")
            web = Client(broker.http.url)
            assert web("PUT", "/webhooks/mirror", {"queue": "hook", "url": hook.url}).status == 201
            options = ["-s", "localhost", f"--port={port}", "-e", "website", "-r", "push.master", "-A", "-c", "1"]
            consumer = subprocess.Popen(["amqp-consume", *options, str(script)])
            done = False
            while not done:         # until its queue is bound, the message goes to the other two only
                asked = subprocess.run(
                    ["curl", "-sS", "-X", "POST", "-d", "commit 17", "-H", "Content-Type: text/plain",
                     f"{broker.http.url}exchanges/website?address=push.master"], check=True, capture_output=True)
                done = json.loads(asked.stdout)["queues"] == 3
            consumer.wait()
            assert (tmp_path / "site").read_text() == "commit 17"
            _, properties, body = channel.basic_get("news", auto_ack=True)
            assert (properties.content_type, body) == ("text/plain", b"commit 17")
            assert hook.next()[3] == b"commit 17"


def test_the_commands_of_the_page(engine, web):
    engine.create_queue("jobs")
    page = (ROOT / "docs" / "http.md").read_text(encoding="utf-8")
    [text] = [code for _, language, code in blocks(page) if language == "console" and code.startswith("$ seq ")]
    variables = os.environ | {"XUMP_BROKER": web.url, "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}"}
    for command, said in COMMAND.findall(text):
        done = subprocess.run(command, shell=True, env=variables, capture_output=True, text=True, check=True)
        assert done.stdout + done.stderr == said, command


def test_the_topology_says_how_it_is_served_and_where_its_broker_is(tmp_path, capfd):
    topology = tmp_path / "network.toml"
    port = free_port()
    topology.write_text(f'version = 1\n[broker]\namqp = "127.0.0.1:1"\nhttp = "127.0.0.1:{port}"\n[queues.jobs]\n'
                        '[[selectors]]\nsource = "jobs"\nwhen = "always"\ndo = {deliver = "worker"}\n')
    assert command_line.main(["check", str(topology)]) == 0
    command = [sys.executable, "-m", "xump", "serve", str(topology), "--amqp", "127.0.0.1:0"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        try:
            assert f"HTTP on http://127.0.0.1:{port}/" in process.stdout.readline()
            capfd.readouterr()
            assert command_line.main(["top", "--once", "--broker", str(topology)]) == 0
            assert "jobs" in capfd.readouterr().out
        finally:
            process.terminate()
        assert process.wait() == 0


@pytest.mark.parametrize(("table", "said"), [
    ("broker = 3", "broker must be a table, got int"),
    ('[broker]\nhtpp = "x"', "broker has an unknown key 'htpp' (did you mean 'http'?); allowed are amqp, http"),
    ("[broker]\nhttp = 8080", "broker: http must be a text, got int"),
])
def test_a_table_that_is_wrong(tmp_path, capfd, table, said):
    topology = tmp_path / "network.toml"
    topology.write_text(f"version = 1\n{table}\n")
    for command in (["check", str(topology)], ["serve", str(topology), "--amqp", "127.0.0.1:0"]):
        assert command_line.main(command) == 1
        assert said in "".join(capfd.readouterr())
    with pytest.raises(SystemExit):
        command_line.main(["top", "--broker", str(topology)])
