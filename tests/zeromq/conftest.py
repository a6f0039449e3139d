"""Brokers on free ports, raw sockets, and threads that end with their test."""

import threading
from contextlib import ExitStack

import pytest
import zmq

WAIT_MS = 60_000
"""A message that has not come by then will not come. No test waits for that to happen."""


@pytest.fixture
def context():
    context = zmq.Context()
    yield context
    context.destroy(linger=0)


@pytest.fixture
def serve(context):
    """serve(server) runs it in a thread, and returns it."""
    with ExitStack() as ends:
        def run(server):
            thread = threading.Thread(target=server.run)
            thread.start()
            ends.callback(server.engine.close)
            ends.callback(server.close)
            ends.callback(thread.join)
            ends.callback(server.stop)
            return server
        yield run


@pytest.fixture
def work(context):
    """work(worker, function) runs it in a thread, and returns it."""
    with ExitStack() as ends:
        def run(worker, function=lambda body: body):
            thread = threading.Thread(target=worker.run, args=(function,))
            thread.start()
            ends.callback(worker.close)
            ends.callback(thread.join)
            ends.callback(worker.stop)
            return worker
        yield run


@pytest.fixture
def raw(context):
    """raw(kind, endpoint) is a raw socket that is connected, or bound if there is no endpoint."""
    with ExitStack() as ends:
        def opened(kind, endpoint=None):
            socket = ends.enter_context(context.socket(kind))
            socket.linger = 0
            socket.rcvtimeo = socket.sndtimeo = WAIT_MS
            if endpoint is None:
                socket.bind("tcp://127.0.0.1:*")
            else:
                socket.connect(endpoint)
            return socket
        yield opened
