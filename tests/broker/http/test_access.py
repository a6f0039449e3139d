"""Who may call: passwords, permissions, and requests that a page of another server makes."""

import base64
import re

import pytest

from tests.broker.http.conftest import Client
from xump import Engine, always, deliver
from xump.broker import Broker
from xump.broker.users import hash_password, read_users


def basic(name, password):
    return {"Authorization": "Basic " + base64.b64encode(f"{name}:{password}".encode()).decode()}


@pytest.fixture
def users(tmp_path):
    path = tmp_path / "users.toml"
    path.write_text(f"""
        [users.anna]
        password = "{hash_password("secret", 2)}"
        [users.anna.vhosts."/"]
        configure = "^own$"
        write = "^(own|in)$"
        read = "^(own|out)$"
        [users.bob]
        password = "{hash_password("secret", 2)}"
        [users.bob.vhosts."/"]
        configure = "^(own|in)$"
        write = "^own$"
        read = "^own$"
    """)
    return read_users(path)[0]


@pytest.fixture
def web(engine, users):
    with Broker(engine, amqp="127.0.0.1:0", http="127.0.0.1:0", users=users) as broker:
        yield Client(broker.http.url)


def test_with_users_it_may_be_called_by_any_name(web):
    assert web("GET", "/queues", headers=basic("anna", "secret") | {"Host": "broker.example"}).status == 200
    assert web("GET", "/queues", headers={"Host": "broker.example"}).status == 401


@pytest.mark.parametrize("headers", [
    {}, basic("anna", "wrong"), basic("eve", "secret"), {"Authorization": "Basic %"}, {"Authorization": "Bearer abc"},
    {"Authorization": "Basic " + base64.b64encode(b"anna").decode()},
])
def test_a_user_is_asked_for(engine, web, headers):
    found = web("GET", "/queues", headers=headers)
    assert (found.status, found.headers["WWW-Authenticate"]) == (401, 'Basic realm="xump"')


def test_permissions(engine, web):
    for name in ("own", "in", "out", "other"):
        engine.create_queue(name).publish("a")
    anna = basic("anna", "secret")
    assert [queue["name"] for queue in web("GET", "/queues", headers=anna).json] == ["own", "out"]
    overview = web("GET", "/overview", headers=anna).json
    assert [queue["name"] for queue in overview["queues"]] == ["own", "out"] and overview["user"]["may_configure"]
    allowed = [(method, path) for method, path in (
        ("POST", "/queues/{}"), ("GET", "/queues/{}/messages"), ("POST", "/queues/{}/hold"), ("POST", "/queues/{}/purge"),
        ("POST", "/queues/{}/release"), ("PUT", "/queues/{}"), ("GET", "/topics/{}/%23"))]
    statuses = {
        name: [web(method, path.format(name), b"{}" if method != "GET" else None, anna).status for method, path in allowed]
        for name in ("own", "in", "out", "other")}
    assert statuses == {
        "own": [201, 200, 200, 200, 200, 201, 200], "in": [201, 403, 403, 403, 403, 403, 403],
        "out": [403, 200, 403, 403, 403, 403, 200], "other": [403] * 7}
    for path in ("/graph.svg", "/topology"):                    # they would show queues that she may not read
        found = web("GET", path, headers=anna)
        assert (found.status, found.json["detail"]) == (403, "user 'anna' may not read all queues of the virtual host '/'")
    engine.create_selector("other", when=always, do=deliver("worker"), enabled=False)
    engine.create_selector("out", when=always, do=deliver("worker"), enabled=False)
    metrics = web("GET", "/metrics", headers=anna).raw.decode()
    assert set(re.findall('messaging_destination_name="(.*?)"', metrics)) == {"own", "out"}
    assert len(re.findall("^xump_selector_blocked{", metrics, re.MULTILINE)) == 1
    assert web("PUT", "/queues/own", {"dead_letter": "other"}, anna).status == 403      # letters would go where she may not write
    assert engine.queues["own"].dead_letter is None


def test_dead_letters_go_only_where_one_may_read(engine, web):
    """Else the permission to configure would be one to read: into a queue of one's own."""
    engine.create_queue("in").publish("secret")
    engine.create_queue("own")
    found = web("POST", "/queues/in/requeue?to=own", b"", basic("bob", "secret"))
    assert (found.status, engine.queues["own"].ready) == (403, 0)
    assert "read" in found.json["detail"]


@pytest.mark.parametrize(("headers", "status"), [
    ({"Host": "evil.example"}, 403), ({"Host": "localhost:1"}, 200), ({"Host": "[::1]:80"}, 200), ({"Host": "10.0.0.1"}, 200),
])
def test_names_that_others_let_point_here(engine, headers, status):
    with Broker(engine, amqp="127.0.0.1:0", http="127.0.0.1:0") as broker:
        assert Client(broker.http.url)("GET", "/queues", headers=headers).status == status


@pytest.mark.parametrize("headers", [
    {"Origin": "http://evil.example"}, {"Origin": "null"}, {"Sec-Fetch-Site": "cross-site"}, {"Sec-Fetch-Site": "same-site"},
])
def test_pages_of_other_servers(engine, headers):
    jobs = engine.create_queue("jobs")
    with Broker(engine, amqp="127.0.0.1:0", http="127.0.0.1:0") as broker:
        client = Client(broker.http.url)
        assert client("POST", "/queues/jobs", b"x", headers).status == 403
        assert client("POST", "/queues/jobs", b"x", {"Origin": broker.http.url.rstrip("/")}).status == 201
        assert client("POST", "/queues/jobs", b"x", {"Sec-Fetch-Site": "same-origin"}).status == 201
    assert jobs.ready == 2


def test_every_answer_keeps_other_pages_out(engine):
    with Broker(engine, amqp="127.0.0.1:0", http="127.0.0.1:0") as broker:
        client = Client(broker.http.url)
        for path in ("/", "/queues", "/nowhere", "/metrics"):
            found = client("GET", path)
            assert "frame-ancestors 'none'" in found.headers["Content-Security-Policy"]
            assert found.headers["X-Content-Type-Options"] == "nosniff"
        assert client("DELETE", "/health").headers["Allow"] == "GET"


@pytest.mark.parametrize("address", ["0.0.0.0:0", "10.0.0.1:80"])
def test_other_machines_need_tls_and_users(address):
    with Engine() as engine, pytest.raises(ValueError, match="lets other machines in: give `tls` and `users`"):
        Broker(engine, amqp="127.0.0.1:0", http=address)


@pytest.mark.parametrize("address", ["127.0.0.1", "127.0.0.1:x", "127.0.0.1:70000"])
def test_addresses_that_are_none(address):
    with Engine() as engine, pytest.raises(ValueError, match="http must be HOST:PORT"):
        Broker(engine, amqp="127.0.0.1:0", http=address)
