"""TLS with real certificates, made by `openssl`; and who may come from other machines."""

import contextlib
import shutil
import socket
import ssl
import subprocess

import pika
import pytest
from pika import credentials, exceptions

from xump.broker import Broker, Limits, Users
from xump.broker.users import User, guest, hash_password

pytestmark = pytest.mark.skipif(shutil.which("openssl") is None, reason="left out: there is no program `openssl`")


def openssl(*words):
    subprocess.run(["openssl", *words], check=True, capture_output=True)


@pytest.fixture(scope="module")
def certificates(tmp_path_factory):
    """An authority, a server and a client named anna."""
    folder = tmp_path_factory.mktemp("tls")

    def key_and_request(name, subject):
        openssl("req", "-newkey", "rsa:2048", "-nodes", "-keyout", f"{folder}/{name}.key", "-out", f"{folder}/{name}.csr",
                "-subj", subject)

    openssl("req", "-x509", "-newkey", "rsa:2048", "-nodes", "-keyout", f"{folder}/ca.key", "-out", f"{folder}/ca.pem",
            "-subj", "/CN=authority", "-days", "2")
    (folder / "names").write_text("subjectAltName=DNS:localhost,IP:127.0.0.1\n")
    for name in ("localhost", "anna"):
        key_and_request(name, f"/CN={name}")
        openssl("x509", "-req", "-in", f"{folder}/{name}.csr", "-CA", f"{folder}/ca.pem", "-CAkey", f"{folder}/ca.key",
                "-CAcreateserial", "-out", f"{folder}/{name}.pem", "-days", "2", "-extfile", f"{folder}/names")
    return folder


@pytest.fixture
def secure(engine, certificates):
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH, cafile=certificates / "ca.pem")
    context.load_cert_chain(certificates / "localhost.pem", certificates / "localhost.key")
    context.verify_mode = ssl.CERT_OPTIONAL
    everywhere = guest()._users["guest"].vhosts
    users = Users({"anna": User("anna", "", everywhere), "berta": User("berta", hash_password("secret", 2), everywhere)})
    with Broker(engine, amqp="127.0.0.1:0", tls=context, users=users) as broker:
        yield broker


def connect(broker, certificates, name=None, given=None):
    context = ssl.create_default_context(cafile=certificates / "ca.pem")
    if name is not None:
        context.load_cert_chain(certificates / f"{name}.pem", certificates / f"{name}.key")
    return pika.BlockingConnection(pika.ConnectionParameters(
        *broker.address, credentials=given or pika.PlainCredentials("berta", "secret"),
        ssl_options=pika.SSLOptions(context, "localhost")))


def test_messages_large_and_small(secure, certificates):
    connection = connect(secure, certificates)
    channel = connection.channel()
    channel.queue_declare("jobs")
    bodies = [b"x" * size for size in (0, 1, 1000, 100_000, 3_000_000)]
    for body in bodies:
        channel.basic_publish("", "jobs", body)
    assert [channel.basic_get("jobs", auto_ack=True)[2] for _body in bodies] == bodies
    connection.close()


def test_a_certificate_says_who_it_is(secure, certificates):
    connection = connect(secure, certificates, "anna", credentials.ExternalCredentials())
    channel = connection.channel()
    channel.queue_declare("jobs")
    channel.basic_publish("", "jobs", b"x", pika.BasicProperties(user_id="anna"))
    assert channel.basic_get("jobs", auto_ack=True)[2] == b"x"
    connection.close()
    for name in (None, "localhost"):
        with pytest.raises(exceptions.ProbableAuthenticationError):
            connect(secure, certificates, name, credentials.ExternalCredentials())


def test_without_a_certificate_of_the_authority_there_is_no_connection(secure):
    host, port = secure.address
    with pytest.raises((exceptions.AMQPConnectionError, ssl.SSLError)):
        pika.BlockingConnection(pika.ConnectionParameters(
            host, port, ssl_options=pika.SSLOptions(ssl.create_default_context(), "localhost")))
    with pytest.raises(exceptions.AMQPConnectionError):
        pika.BlockingConnection(pika.ConnectionParameters(host, port))


def test_other_machines_need_tls_and_users(engine):
    for options in ({}, {"users": guest()}, {"tls": ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)}):
        with pytest.raises(ValueError, match="lets other machines in: give `tls` and `users`, or insecure=True"):
            Broker(engine, amqp="0.0.0.0:0", **options)
    with Broker(engine, amqp="0.0.0.0:0", insecure=True) as broker:
        connection = pika.BlockingConnection(pika.ConnectionParameters("127.0.0.1", broker.address[1]))
        connection.close()


def test_a_client_that_says_nothing_is_disconnected(engine, certificates):
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    context.load_cert_chain(certificates / "localhost.pem", certificates / "localhost.key")
    limits = Limits(handshake_seconds=0.05)
    with Broker(engine, amqp="127.0.0.1:0", tls=context, limits=limits) as broker:
        with socket.create_connection(broker.address, 30) as silent, contextlib.suppress(ConnectionResetError):
            assert silent.recv(1) == b""
