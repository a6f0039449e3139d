"""Users, permissions and TLS over Flight."""

import base64
import shutil
import subprocess

import pyarrow as pa
import pytest
from pyarrow import flight

from xump import Engine, always, deliver, field
from xump.broker import Broker, Client
from xump.broker.answers import AccessRefused, BrokerUnreachable
from xump.broker.exchanges import Destination, Exchange
from xump.broker.flight import access
from xump.broker.flight.problems import Unknown
from xump.broker.users import hash_password, read_users

ROW = pa.record_batch({"address": ["a"]})


@pytest.fixture
def users(tmp_path):
    path = tmp_path / "users.toml"
    path.write_text(f"""
        [users.anna]
        password = "{hash_password('secret', 2)}"
        [users.anna.vhosts."/"]
        configure = "^mine"
        write = "^(mine|jobs)"
        read = "^(mine|news)"
        [users.berta]
        password = "{hash_password('other', 2)}"
        """)
    return read_users(path)[0]


@pytest.fixture
def guarded(engine, users):
    for name in ("jobs", "news", "mine"):
        engine.create_queue(name)
    with Broker(engine, amqp="127.0.0.1:0", flight="grpc://127.0.0.1:0", users=users) as broker:
        yield broker


@pytest.fixture
def anna(guarded):
    with Client(guarded.flight.url, user="anna", password="secret") as client:
        yield client


@pytest.mark.parametrize("login", [{}, {"user": "anna", "password": "wrong"}, {"user": "guest", "password": "guest"},
                                   {"token": "drawn by lot"}, {"user": "nobody"}], ids=str)
def test_who_is_not_known_is_refused(guarded, login):
    with Client(guarded.flight.url, **login) as client:
        for call in (client.queues, lambda: client.publish("jobs", ROW), lambda: client.browse("news").read_all()):
            with pytest.raises(AccessRefused, match="user and a password|token is not valid"):
                call()


def test_who_has_no_virtual_host_is_refused(guarded, anna):
    for client in (Client(guarded.flight.url, user="berta", password="other"),
                   Client(guarded.flight.url, user="anna", password="secret", vhost="other/place")):
        with client, pytest.raises(AccessRefused, match="has no virtual host '(/|other/place)'"):
            client.queues()


@pytest.mark.parametrize("call", [
    lambda c: c.publish("news", ROW), lambda c: c.browse("jobs").read_all(), lambda c: c.take("jobs"),
    lambda c: c.offsets("jobs"), lambda c: c.target("news"),
    lambda c: c.plan("jobs", 2), lambda c: c.create_queue("other"), lambda c: c.delete_queue("jobs"), lambda c: c.purge("jobs"),
    lambda c: c.stage("run", 0, 0, "news", ROW), lambda c: c.commit("run", "news", []), lambda c: c.abort("run", "news"),
    lambda c: c.create_queue("mine too", dead_letter="news"), lambda c: c.topology(),
    lambda c: c.apply({"version": 1, "selectors": [{"source": "mine", "when": "always", "do": {"copy_to": "news"}}]}),
    lambda c: c.apply({"version": 1, "selectors": [{"source": "jobs", "when": "always", "do": {"copy_to": "mine"}}]}),
    lambda c: c.apply({"version": 1, "selectors": [
        {"source": "mine", "when": "always", "do": {"copy_to": {"field": "address"}}}]}),
    lambda c: c.take("worker", destination=True), lambda c: c.take("a later worker", destination=True),
    lambda c: c.apply({"version": 1, "windows": {"workers": {"credit": 0}}}),
    lambda c: c.apply({"version": 1, "selectors": [
        {"source": "mine", "when": "always", "do": {"deliver": "mine"}, "window": "workers"}]}),
    lambda c: c.apply({"version": 1, "selectors": [{"source": "mine", "when": "always", "do": {"deliver": "worker"}}]}),
    lambda c: c.apply({"version": 1, "selectors": [
        {"source": "mine", "when": "always", "do": {"deliver": {"field": "address"}}}]})])
def test_what_somebody_may_not(engine, anna, call):
    engine.apply({"version": 1, "windows": {"workers": {"credit": 5}}, "selectors": [
        {"source": "jobs", "when": "always", "do": {"deliver": "worker"}, "window": "workers"}]})
    before = engine.topology()
    with pytest.raises(AccessRefused, match="user 'anna' has no permission to (configure|write|read)"):
        call(anna)
    assert engine.topology() == before


def test_windows_and_queues_of_others_are_not_shown(engine, guarded, anna):
    engine.apply({"version": 1, "windows": {"workers": {"credit": 5}, "mine": {"credit": 5}}})
    assert list(anna.stats()["windows"]) == ["mine"]
    table, options = anna._stream()
    for name in ("jobs", "a queue that is not there"):
        with pytest.raises(flight.FlightUnauthorizedError, match=f"no permission to read '{name}'"):
            table.get_flight_info(flight.FlightDescriptor.for_path(name), options)
    with pytest.raises(flight.FlightUnauthenticatedError):
        list(flight.connect(guarded.flight.url).list_actions())


def test_a_target_that_messages_name_may_be_any_queue(engine, anna):
    """Also one that is not there yet."""
    for name in ("news", "jobs"):
        engine.delete_queue(name)
    with pytest.raises(AccessRefused, match="no permission to write 'any queue'"):
        anna.apply({"version": 1, "selectors": [{"source": "mine", "when": "always", "do": {"copy_to": {"field": "address"}}}]})
    assert not engine.selectors


def test_what_messages_name_is_taken_by_who_may_read_their_queue(engine, anna):
    """`jobs` is not hers, and may deliver to what is."""
    selector = engine.create_selector("jobs", when=always, do=deliver(field("address")), credit=10)
    jobs, _ = engine.queues["jobs"], engine.publish("jobs", "mine")
    with pytest.raises(AccessRefused, match="no permission to read 'jobs'"):
        anna.take("mine", destination=True)
    assert (jobs.ready, jobs.outstanding) == (0, 1)
    selector.delete()
    engine.create_selector("jobs", when=always, do=deliver(field("address"), "news"), credit=10)       # that is not handed out
    with anna.take("mine", destination=True, timeout=0) as stream:
        assert list(stream) == []


def test_a_stream_ends_when_a_queue_delivers_that_its_user_may_not_read(engine, anna):
    with anna.take("mine", destination=True, timeout=60) as stream:
        engine.create_selector("jobs", when=always, do=deliver("mine"), credit=10)
        engine.publish("jobs", "mine")
        with pytest.raises(AccessRefused, match="no permission to read 'jobs'"):
            list(stream)
    assert [message.address for message in engine.take(10, "mine")] == ["mine"]


@pytest.mark.parametrize("name", ["amq.consumer/1", "xump.flight/session"])
def test_what_a_consumer_gets_is_its_own(engine, flying, name):
    """Even who may do everything neither takes it nor adds to it."""
    engine.create_queue("mine")
    with Client(flying.flight.url) as client:
        for call in (lambda: client.take(name, destination=True), lambda: client.apply(
                {"version": 1, "selectors": [{"source": "mine", "when": "always", "do": {"deliver": name}}]})):
            with pytest.raises(AccessRefused, match="is a consumer's own: choose a name"):
                call()
    assert not engine.selectors


def test_exchanges_are_for_publishing(engine, guarded, anna):
    vhost = guarded.vhosts["/"]
    vhost.bindings.declare(Exchange("mine.news", "topic", False, False, False, {}))
    vhost.bindings.declare(Exchange("inner", "topic", False, False, True, {}))
    for name in ("mine.news", "inner"):
        vhost.bindings.bind(vhost.exchanges[name], Destination("queue", "jobs"), "a.#", {})
    assert anna.publish("amq.x/mine.news", pa.record_batch({"address": ["a.b", "b.a"]})).rows == 2
    assert engine.queues["jobs"].ready == 1
    for call in (lambda: anna.publish("amq.x/inner", ROW), lambda: anna.delete_queue("amq.x/mine.news"),
                 lambda: anna.create_queue("amq.x/mine.new")):
        with pytest.raises(AccessRefused, match="is for clients of AMQP"):
            call()
    with pytest.raises(AccessRefused, match="permission to write 'news'"):
        anna.publish("amq.x/news", ROW)


def test_what_somebody_may(engine, anna):
    assert anna.publish("jobs", ROW).rows == 1
    engine.publish("news", "x")
    assert anna.browse("news").read_all().num_rows == 1
    assert [queue["name"] for queue in anna.queues()] == ["news", "mine"]
    assert list(anna.stats()["queues"]) == ["news", "mine"]
    anna.create_queue("mine too", dead_letter="mine")
    anna.apply({"version": 1, "selectors": [{"source": "mine", "when": "always", "do": {"copy_to": "mine too"}}]})
    assert anna.commit("run", "jobs", [anna.stage("run", 0, 0, "jobs", ROW)]).entered
    assert anna.delete_queue("mine")


def test_nobody_answers_for_another(guarded, anna, engine):
    with anna.take("news", credit=5) as taken:
        engine.publish("news", "x")
        batch = next(taken.batches)
        other = Client(guarded.flight.url, user="berta", password="other")
        with other, pytest.raises(AccessRefused):
            other._ask("ack", session=taken._session, ids=[1])
        assert taken.ack(batch) == 1


def test_a_handshake_gives_a_token(guarded):
    client = flight.connect(guarded.flight.url)
    name, value = client.authenticate_basic_token("anna", "secret")
    assert name == b"authorization"
    assert [info.descriptor.path for info in client.list_flights(options=flight.FlightCallOptions(headers=[(name, value)]))] == [
        [b"news"], [b"mine"]]
    with Client(guarded.flight.url, token=value.decode().removeprefix("Bearer ")) as again:
        assert again.publish("jobs", ROW).rows == 1
    for wrong in (("anna", "wrong"), ("nobody", "secret")):
        with pytest.raises(flight.FlightUnauthenticatedError):
            client.authenticate_basic_token(*wrong)


def test_a_user_who_logs_in_often_ends_no_token_of_others(users, monkeypatch):
    """Nor does one who is not known."""
    monkeypatch.setattr(access, "USER_TOKENS_MAX", 2)
    with Engine() as engine, Broker(engine, amqp="127.0.0.1:0", users=users) as broker:
        found = access.Access(broker)

        def token(name, password):
            return found.token_for("Basic " + base64.b64encode(f"{name}:{password}".encode()).decode())

        kept = token("berta", "other")
        first, *others = [token("anna", "secret") for _ in range(3)]
        assert token("anna", "wrong") is None
        assert found._given(f"Bearer {kept}") == ("berta", "other")
        for each in others:
            assert found._given(f"Bearer {each}") == ("anna", "secret")
        with pytest.raises(Unknown, match="log in again"):
            found._given(f"Bearer {first}")


@pytest.mark.parametrize("address", ["grpc://0.0.0.0:0", "[::]:0", "grpc://example.org:1"])
def test_other_machines_need_tls_and_users(address):
    with Engine() as engine, pytest.raises(ValueError, match="lets other machines in: give `flight_certificate` and `users`"):
        Broker(engine, flight=address)


@pytest.mark.parametrize("address, said", [
    ("grpc+tls://127.0.0.1:0", "needs `flight_certificate`"), ("127.0.0.1", "flight must be HOST:PORT"),
    ("127.0.0.1:x", "HOST:PORT")])
def test_wrong_addresses(address, said):
    with Engine() as engine, pytest.raises(ValueError, match=said):
        Broker(engine, flight=address)


def test_a_port_that_is_taken(engine, flying):
    host, port = flying.flight.address
    with pytest.raises(OSError, match="in use"), Broker(engine, amqp="127.0.0.1:0", flight=f"{host}:{port}"):
        pass


@pytest.mark.skipif(shutil.which("openssl") is None, reason="left out: there is no program `openssl`")
def test_tls(engine, users, tmp_path):
    subprocess.run(
        ["openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-keyout", f"{tmp_path}/key", "-out", f"{tmp_path}/pem",
         "-days", "2", "-subj", "/CN=localhost", "-addext", "subjectAltName=DNS:localhost,IP:127.0.0.1"],
        check=True, capture_output=True)
    pem = (tmp_path / "pem").read_bytes()
    engine.create_queue("jobs")
    with Broker(engine, amqp="127.0.0.1:0", flight="grpc://127.0.0.1:0", users=users,
                flight_certificate=(pem, (tmp_path / "key").read_bytes())) as broker:
        assert broker.flight.url.startswith("grpc+tls://127.0.0.1:")
        with Client(broker.flight.url, user="anna", password="secret", tls_root_certs=pem) as client:
            assert client.publish("jobs", ROW).rows == 1
        for endpoint, options in ((broker.flight.url, {}), (broker.flight.url.replace("+tls", ""), {})):
            with Client(endpoint, user="anna", password="secret", timeout=3, **options) as client:
                with pytest.raises(BrokerUnreachable):
                    client.queues()
