"""`xump serve`: a process of its own, and its end; `xump users`, and what a file of users lets somebody do."""

import contextlib
import io
import re
import signal
import socket
import subprocess
import sys
import threading
import time

import pika
import pytest
from pika import exceptions

from xump import Engine
from xump.broker import Broker
from xump.broker.serve import loop_factory
from xump.broker.users import BadUsers, User, hash_password, password_holds, read_users
from xump.cli.main import main


class Served:
    """A process."""

    def __init__(self, *options):
        self.process = subprocess.Popen(
            [sys.executable, "-m", "xump", "serve", "--amqp", "127.0.0.1:0", *options], stdout=subprocess.PIPE,
            stderr=subprocess.PIPE, text=True)
        self.line = self.process.stdout.readline()
        found = re.fullmatch(r"xump serve: AMQP on (127\.0\.0\.1):(\d+)\n", self.line)
        assert found, self.line + self.process.stderr.read()
        self.address = found[1], int(found[2])
        self.connections = []

    def connect(self, name="guest", password="guest", **options):
        self.connections.append(pika.BlockingConnection(pika.ConnectionParameters(
            *self.address, credentials=pika.PlainCredentials(name, password), **options)))
        return self.connections[-1]

    def end(self, how=signal.SIGTERM):
        """Returns the exit code."""
        for connection in self.connections:
            if connection.is_open and how != signal.SIGKILL:
                connection.close()
        self.process.send_signal(how)
        self.process.communicate(timeout=30)
        for connection in self.connections:
            with contextlib.suppress(exceptions.AMQPError):
                while connection.is_open:           # until it sees that the server has gone
                    connection.process_data_events(time_limit=30)
        return self.process.returncode


@pytest.fixture
def serve():
    processes = []

    def start(*options):
        processes.append(Served(*options))
        return processes[-1]

    yield start
    for served in processes:
        served.end(signal.SIGKILL)


@pytest.mark.parametrize("how", [signal.SIGTERM, signal.SIGINT])
def test_it_ends_in_good_order(serve, how):
    served = serve()
    connection = served.connect()
    connection.channel().queue_declare("jobs")
    served.process.send_signal(how)
    with pytest.raises(exceptions.ConnectionClosedByBroker) as raised:
        while True:
            connection.process_data_events(time_limit=30)
    assert (raised.value.reply_code, raised.value.reply_text) == (
        320, "CONNECTION_FORCED - broker forced connection closure with reason 'shutdown'")
    assert served.process.wait(30) == 0


@pytest.mark.parametrize("store", ["ring", "lmdb"])
@pytest.mark.parametrize("how", [signal.SIGTERM, signal.SIGKILL])
def test_durable_queues_keep_what_was_confirmed(serve, tmp_path, store, how):
    options = ("--store", store, "--path", str(tmp_path / "broker.xump"))
    served = serve(*options)
    channel = served.connect().channel()
    channel.queue_declare("jobs", durable=True)
    channel.confirm_delivery()
    for number in range(50):
        channel.basic_publish("", "jobs", b"%d" % number)
    served.end(how)
    channel = serve(*options).connect().channel()
    assert channel.queue_declare("jobs", passive=True).method.message_count == 50
    assert [channel.basic_get("jobs", auto_ack=True)[2] for _number in range(50)] == [b"%d" % number for number in range(50)]


@pytest.mark.parametrize("last", ["queue", "exchange", "bind", "delete"])
def test_what_was_answered_is_there_when_the_broker_is_killed(serve, tmp_path, last):
    """An answer says that it is on the disk, so nobody relies on what a crash undoes."""
    options = ("--store", "ring", "--path", str(tmp_path / "broker.xump"))
    served = serve(*options)
    channel = served.connect().channel()
    channel.queue_declare("jobs", durable=True)
    if last != "queue":
        channel.exchange_declare("in", "fanout", durable=True)
    if last in ("bind", "delete"):
        channel.queue_bind("jobs", "in")
    if last == "delete":
        channel.queue_delete("jobs")
    served.process.kill()
    channel = serve(*options).connect().channel()
    if last != "queue":
        channel.exchange_declare("in", passive=True)
    if last == "delete":
        with pytest.raises(exceptions.ChannelClosedByBroker, match="NOT_FOUND"):
            channel.queue_declare("jobs", passive=True)
        return
    channel.queue_declare("jobs", passive=True)
    if last == "bind":
        channel.basic_publish("in", "", b"x")
        assert channel.basic_get("jobs", auto_ack=True)[2] == b"x"


@pytest.mark.parametrize("store", ["ring", "lmdb"])
def test_what_is_rejected_is_in_one_queue_or_the_other_whenever_the_broker_is_killed(serve, tmp_path, store):
    """A dead letter leaves its queue, and enters the queues of its exchange, in one step on the disk."""
    options = ("--store", store, "--path", str(tmp_path / "broker.xump"))
    served = serve(*options)
    channel = served.connect().channel()
    channel.exchange_declare("dlx", "fanout", durable=True)
    for name in ("failed", "copy"):
        channel.queue_declare(name, durable=True)
        channel.queue_bind(name, "dlx")
    channel.queue_declare("jobs", durable=True, arguments={
        "x-dead-letter-exchange": "dlx", "x-dead-letter-strategy": "at-least-once", "x-queue-type": "quorum",
        "x-overflow": "reject-publish"})
    channel.confirm_delivery()
    everything = [b"%d" % number for number in range(300)]
    for body in everything:
        channel.basic_publish("", "jobs", body)
    killer = threading.Timer(0.05, served.process.kill)
    with contextlib.suppress(exceptions.AMQPError):
        for method, _properties, _body in channel.consume("jobs"):
            channel.basic_reject(method.delivery_tag, requeue=False)
            if method.delivery_tag == 20:
                killer.start()
    killer.join()
    served.end(signal.SIGKILL)
    channel = serve(*options).connect().channel()
    left, failed, copy = ([*bodies(channel, name)] for name in ("jobs", "failed", "copy"))
    assert sorted([*left, *failed], key=int) == everything and copy == failed


def bodies(channel, queue):
    """All that is in a queue."""
    while (found := channel.basic_get(queue, auto_ack=True))[0] is not None:
        yield found[2]


@pytest.mark.parametrize("store", ["ring", "lmdb"])
def test_exchanges_and_bindings_are_as_they_were(serve, tmp_path, store):
    options = ("--store", store, "--path", str(tmp_path / "broker.xump"))
    served = serve(*options)
    channel = served.connect().channel()
    for name, durable in (("news", True), ("sport", True), ("passing", False), ("gone", True)):
        channel.exchange_declare(name, "topic", durable=durable)
    channel.queue_declare("chess", durable=True, arguments={"x-max-length": 5, "x-dead-letter-exchange": ""})
    channel.queue_declare("fleeting")
    channel.exchange_bind("sport", "news", "sport.#")
    channel.queue_bind("chess", "sport", "#.chess")
    channel.queue_bind("chess", "passing", "#")
    channel.queue_bind("chess", "news", "once")
    channel.queue_unbind("chess", "news", "once")
    channel.queue_bind("chess", "gone", "#")
    channel.exchange_delete("gone")
    channel.queue_declare("deleted", durable=True)
    channel.queue_bind("deleted", "news", "#")
    channel.queue_delete("deleted")
    for first in (True, False):
        channel.exchange_delete("again")
        channel.exchange_declare("again", "fanout", durable=True)
        channel.queue_bind("chess", "again")
        if first:
            channel.exchange_bind("again", "news", "again")
    channel.confirm_delivery()
    channel.basic_publish("news", "sport.chess", b"draw", mandatory=True)
    served.end(signal.SIGKILL)
    connection = serve(*options).connect()
    channel = connection.channel()
    channel.confirm_delivery()
    channel.exchange_declare("news", "topic", durable=True)
    channel.exchange_declare("gone", "topic", durable=True)
    channel.queue_declare("chess", durable=True, arguments={"x-max-length": 5, "x-dead-letter-exchange": ""})
    channel.basic_publish("news", "sport.chess", b"mate", mandatory=True)
    assert [channel.basic_get("chess", auto_ack=True)[2] for _message in range(3)] == [b"draw", b"mate", None]
    for exchange, key in (("news", "once"), ("news", "again"), ("gone", "x")):
        with pytest.raises(exceptions.UnroutableError):
            channel.basic_publish(exchange, key, b"x", mandatory=True)
    for what, name in (("exchange", "passing"), ("queue", "fleeting"), ("queue", "deleted")):
        with pytest.raises(exceptions.ChannelClosedByBroker, match=f"no {what} '{name}'"):
            getattr(connection.channel(), f"{what}_declare")(name, passive=True)


def test_the_queues_of_a_topology_are_there(serve, tmp_path):
    page = tmp_path / "network.toml"
    page.write_text('version = 1\n[queues.jobs]\nlimit = 10\n[queues.copies]\n'
                    '[[selectors]]\nsource = "jobs"\nwhen = "always"\ndo = {copy_to = "copies"}\n')
    channel = serve(str(page)).connect().channel()
    channel.basic_publish("", "jobs", b"x")
    assert channel.basic_get("copies", auto_ack=True)[2] == b"x"


@pytest.mark.parametrize(("options", "said"), [
    (["--busy-poll", "1001"], "--busy-poll must be from 0 to 1000, got 1001"),
    (["--memory-bytes", "-1"], "--memory-bytes must be at least 1, got -1"),
    (["--staging-bytes", "-1"], "--staging-bytes must be at least 0, got -1"),
    (["--staging-seconds", "-1"], "--staging-seconds must be at least 0, got -1.0"),
    (["--staging-seconds", "nan"], "--staging-seconds must be at least 0, got nan"),
    (["--ack-timeout", "-5"], "--ack-timeout must be at least 0, got -5"),
    (["--amqp", "0.0.0.0:0"], "amqp='0.0.0.0:0' lets other machines in: give --certificate and --users, or --insecure"),
    (["--amqp", "5672"], "amqp must be HOST:PORT with a port of at most 65535, got '5672'"),
    (["--store", "ring"], "--store ring needs --path, where it lies on disk"),
    (["--path", "broker.xump"], "--path needs --store ring or --store lmdb: without one the broker keeps everything in memory"),
    (["nothing.toml"], "nothing.toml cannot be read: No such file or directory"),
    (["--client-ca", "x.pem"], "--client-ca needs --certificate"),
])
def test_what_is_wrong_is_said_at_once(options, said):
    done = subprocess.run(
        [sys.executable, "-m", "xump", "serve", *options], capture_output=True, text=True, check=False, timeout=60)
    assert (done.returncode, done.stdout, done.stderr) == (2, "", f"xump: {said}\n")


def ended(*options):
    """Exit code and errors of a command that ends at once."""
    done = subprocess.run(
        [sys.executable, "-m", "xump", "serve", "--amqp", "127.0.0.1:0", *options], capture_output=True, text=True, check=False,
        timeout=60)
    return done.returncode, done.stderr


def test_a_topology_that_is_wrong_or_a_store_in_use_is_a_problem_found(tmp_path):
    page, path = tmp_path / "network.toml", str(tmp_path / "broker.xump")
    page.write_text('version = 1\n[broker]\nbusy_pol = 5\n')
    code, said = ended(str(page))
    assert code == 1 and "busy_pol" in said and ", busy_poll," in said
    with Engine() as engine:
        engine.create_store("disk", "ring", path=path)
        code, said = ended("--store", "ring", "--path", path)
    assert code == 1 and "is owned by process" in said


@pytest.mark.parametrize("closed", ["<&-", ">&-", "2>&-", "<&- >&- 2>&-"])
def test_streams_that_are_closed(tmp_path, closed):
    """Their numbers went to sockets of the loop, which uvloop took for the standard streams."""
    path = tmp_path / "broker.xump"
    command = f"exec {sys.executable} -m xump serve --amqp 127.0.0.1:0 --http 127.0.0.1:0 --store ring --path {path} {closed}"
    with subprocess.Popen(["sh", "-c", command], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL) as process:
        while process.poll() is None and not path.with_suffix(".xump.http").exists():
            time.sleep(0.05)
        process.terminate()
        assert process.wait() == 0


@contextlib.contextmanager
def sighup(handler):
    """A process that is started here begins with that, whatever these tests were started by."""
    before = signal.signal(signal.SIGHUP, handler)
    try:
        yield
    finally:
        signal.signal(signal.SIGHUP, before)


def test_sighup_without_users_ends_it_in_good_order(serve):
    with sighup(signal.SIG_DFL):
        served = serve()
    served.connect()
    assert served.end(signal.SIGHUP) == 0


def test_sighup_that_is_ignored_stays_so(serve):
    """As `nohup` has it."""
    with sighup(signal.SIG_IGN):
        served = serve()
    served.process.send_signal(signal.SIGHUP)
    served.connect().channel().queue_declare("jobs")
    assert served.end() == 0


# ---- users

def users_file(path, configure=".*", write=".*", read=".*", password="secret"):
    made = subprocess.run([sys.executable, "-m", "xump", "users", "anna"], input=f"{password}\n", capture_output=True, text=True,
                          check=True)
    text = made.stdout
    for name, pattern in (("configure", configure), ("write", write), ("read", read)):
        text = text.replace(f'{name} = ".*"', f"{name} = '{pattern}'")
    path.write_text(text)
    return path


def test_users_of_a_file(serve, tmp_path):
    path = users_file(tmp_path / "users.toml", configure="^anna", write="^(anna|amq)", read="^anna")
    served = serve("--users", str(path))
    for name, password in (("anna", "wrong"), ("guest", "guest"), ("berta", "secret")):
        with pytest.raises(exceptions.ProbableAuthenticationError):
            served.connect(name, password)
    connection = served.connect("anna", "secret")
    channel = connection.channel()
    channel.queue_declare("anna.jobs")
    channel.basic_publish("", "anna.jobs", b"x")
    assert channel.basic_get("anna.jobs")[2] == b"x"
    for refused, kind, name in (
        (lambda channel: channel.queue_declare("other"), "queue", "other"),
        (lambda channel: channel.exchange_declare("other"), "exchange", "other"),
        (lambda channel: channel.queue_bind("anna.jobs", "other"), "exchange", "other"),
    ):
        with pytest.raises(exceptions.ChannelClosedByBroker) as raised:
            refused(connection.channel())
        assert raised.value.reply_text == f"ACCESS_REFUSED - access to {kind} '{name}' in vhost '/' refused for user 'anna'"


def test_sighup_reads_the_users_again(serve, tmp_path):
    path = users_file(tmp_path / "users.toml")
    served = serve("--users", str(path))
    connection = served.connect("anna", "secret")
    users_file(path, password="other")
    served.process.send_signal(signal.SIGHUP)
    while True:
        try:
            served.connect("anna", "other").close()
            break
        except exceptions.ProbableAuthenticationError:
            connection.process_data_events(time_limit=0.01)
    with pytest.raises(exceptions.ProbableAuthenticationError):
        served.connect("anna", "secret")
    path.write_text("users = 5")
    served.process.send_signal(signal.SIGHUP)
    assert any("the users stay as they were" in line for line in served.process.stderr)         # after warnings
    served.connect("anna", "other").close()
    path.write_text("users = {}")
    served.process.send_signal(signal.SIGHUP)
    with pytest.raises(exceptions.ConnectionClosedByBroker, match="user 'anna' was deleted"):
        while True:
            connection.process_data_events(time_limit=1)


def test_warnings_are_written_to_stderr(serve):
    served = serve()
    with socket.create_connection(served.address) as stranger:
        stranger.sendall(b"GET / HTTP/1.1")
        assert re.fullmatch(r"20\d\d-\S+ \S+ WARNING a client at \S+ begins with b'GET / HT', which is not AMQP 0-9-1\n",
                            served.process.stderr.readline())
    assert served.end() == 0


def test_passwords_are_hashed():
    one, two = hash_password("secret"), hash_password("secret")
    assert one != two and "secret" not in one
    assert password_holds("secret", one) and password_holds("secret", two) and not password_holds("Secret", one)
    assert not password_holds("", "") and not password_holds("x", "scrypt$x$8$1$a$b")


@pytest.mark.parametrize(("text", "said"), [
    ("users = ", "cannot be read"),
    ("other = 5", "expected the tables `users` and `vhosts`"),
    ("users = 5", "`users` must be a table"),
    ('[users.anna]\npassword = "secret"', "must be a text that `xump users` made"),
    ("[users.anna]\nage = 5", "expected `password`, `vhosts`, `impersonates`"),
    ('[users.anna]\nvhosts = "/"', "`vhosts` must be a table"),
    ('[users.anna.vhosts.other]\nread = ""', "there is no virtual host 'other'; there are '/'"),
    ('[users.anna.vhosts."/"]\nsee = ""', "expected `configure`, `write` and `read`"),
    ('[users.anna.vhosts."/"]\nread = "("', "is no regular expression"),
])
def test_a_file_that_is_wrong_says_where(tmp_path, text, said):
    path = tmp_path / "users.toml"
    path.write_text(text)
    with pytest.raises(BadUsers, match=re.escape(said)):
        read_users(path)


def test_a_password_that_cannot_be_sent(monkeypatch, capsys):
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(b"se\0cret\n")))
    assert main(["users", "anna"]) == 2
    assert "the password has a NUL" in capsys.readouterr().err


@pytest.mark.parametrize("name", ["anna", 'a"b', "a\\b", "a\nc", "\x01", "\x7f", "é", "a.b]"])
def test_an_entry_can_be_read_whatever_the_name(monkeypatch, capsys, tmp_path, name):
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(b"secret\n")))
    assert main(["users", name]) == 0
    path = tmp_path / "users.toml"
    path.write_text(capsys.readouterr().out)
    assert read_users(path)[0].get(name).may("/", "write", "x")


@pytest.mark.parametrize(("name", "said"), [
    ("", "must not be empty"), ("\udcff", "has a lone surrogate"), ("a:b", "has no colon")])
def test_a_name_that_no_user_has(capsys, name, said):
    assert main(["users", name]) == 2
    out, err = capsys.readouterr()
    assert out == "" and err.startswith(f"xump: the name of a user {said}")


def test_a_topology_is_no_file_of_users(tmp_path):
    path = tmp_path / "network.toml"
    path.write_text("version = 1\n[queues.a]\n")
    assert ended("--users", str(path)) == (2, f"xump: {path}: expected the tables `users` and `vhosts` and no other\n")


def test_a_password_that_is_no_text():
    made = subprocess.run([sys.executable, "-m", "xump", "users", "anna"], input=b"a\xffb\n", capture_output=True, check=False)
    assert (made.returncode, made.stdout) == (2, b"")
    assert made.stderr == b"xump: the password is not text in UTF-8, as clients send it; choose another one\n"


def test_a_user_who_was_read_anew_may_write_what_the_new_file_says():
    anything, nothing = ({"/": dict.fromkeys(("configure", "write", "read"), re.compile(text))} for text in (".*", "^$"))
    with Engine(hop_limit=1024) as engine, Broker(engine, amqp="127.0.0.1:0") as broker:
        vhost = broker.vhosts["/"]
        assert b"" in vhost.exchanges_for(User("anna", vhosts=anything))
        assert vhost.exchanges_for(User("anna", vhosts=nothing)) == {}


VHOSTS = '\n[vhosts."/"]\n[vhosts."/staging"]\n[users."anna".vhosts."/staging"]\nconfigure = ".*"\nwrite = ".*"\nread = ".*"\n'


@pytest.mark.parametrize("store", ["ram", "ring"])
def test_each_virtual_host_has_queues_of_its_own(serve, tmp_path, store):
    path = users_file(tmp_path / "users.toml")
    path.write_text(path.read_text() + VHOSTS)
    options = ["--users", str(path)]
    if store != "ram":
        options += ["--store", store, "--path", str(tmp_path / "broker.xump")]
    served = serve(*options)
    for vhost in ("/", "/staging"):
        channel = served.connect("anna", "secret", virtual_host=vhost).channel()
        channel.queue_declare("jobs", durable=True)
        channel.confirm_delivery()
        channel.basic_publish("", "jobs", vhost.encode())
    if store != "ram":
        served.end()
        served = serve(*options)
    for vhost in ("/staging", "/"):
        channel = served.connect("anna", "secret", virtual_host=vhost).channel()
        assert [*bodies(channel, "jobs")] == [vhost.encode()]
    with pytest.raises(exceptions.ProbableAccessDeniedError, match="vhost /other not found"):
        served.connect("anna", "secret", virtual_host="/other")


def test_a_virtual_host_that_is_new_comes_with_the_next_start(serve, tmp_path):
    path = users_file(tmp_path / "users.toml")
    served = serve("--users", str(path))
    path.write_text(path.read_text() + VHOSTS)
    served.process.send_signal(signal.SIGHUP)
    assert "virtual hosts that are new come with the next start: '/staging'" in served.process.stderr.readline()


# ---- the loop

def test_the_loop_is_uvloops_if_that_is_installed_and_not_with_tls(monkeypatch):
    uvloop = pytest.importorskip("uvloop")
    assert loop_factory(False) is uvloop.new_event_loop
    assert loop_factory(True) is None
    monkeypatch.setitem(sys.modules, "uvloop", None)        # as if it were not installed
    assert loop_factory(False) is None


def test_the_process_runs_in_uvloop(serve):
    pytest.importorskip("uvloop")
    with open(f"/proc/{serve().process.pid}/maps") as maps:
        assert "uvloop" in maps.read()


@pytest.mark.parametrize("program", ["from xump.broker import Broker", "import xump.broker.serve"])
def test_a_library_that_is_missing_is_named_with_what_to_do(program):
    blocked = "import sys; sys.modules['pamqp'] = None; "
    done = subprocess.run([sys.executable, "-c", blocked + program], capture_output=True, text=True, check=False)
    assert done.stderr.splitlines()[-1] == (
        "ModuleNotFoundError: the broker needs pamqp, which is not installed: pip install 'xump[broker]'")
