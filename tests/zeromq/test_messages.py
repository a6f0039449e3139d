"""Whole messages, by compiled code and through pyzmq: both do the same."""

import asyncio
import os
import signal
import threading

import pytest
import zmq
import zmq.asyncio

from xump.zeromq import messages as ways
from xump.zeromq.frames import FRAMES_MAX
from xump.zeromq.messages import FrameByFrame, messages
from xump_ext.zeromq.multipart import FUNCTIONS, Multipart

SIZES = (0, 1, 29, 30, 33, 34, 255, 256, 8191, 8192, 70_000, 3_000_000)
"""Around the sizes at which libzmq keeps, frames and copies otherwise."""


def compiled(socket):
    made = messages(socket)
    assert isinstance(made, Multipart)          # the functions of libzmq were found
    return made


@pytest.fixture(params=[compiled, FrameByFrame], ids=["compiled", "pyzmq"])
def of(request):
    return request.param


@pytest.fixture
def pair(context, raw, of):
    """A ROUTER and a DEALER that have met, and the DEALER's identity; raw pyzmq is opposite of what is tested."""
    router = context.socket(zmq.ROUTER)
    router.rcvtimeo = 60_000
    router.router_mandatory = True
    port = router.bind_to_random_port("tcp://127.0.0.1")
    dealer = raw(zmq.DEALER, f"tcp://127.0.0.1:{port}")
    dealer.send(b"here")
    identity, here = of(router).receive(wait=True)
    assert here == b"here"
    yield router, dealer, identity
    router.close(linger=0)


@pytest.mark.parametrize("frames", [[b""], [b"", b"", b""], [b"x" * size for size in SIZES], [b"\0\xff\n"] * 500], ids=len)
def test_frames_come_and_go_as_they_are(pair, of, frames):
    router, dealer, identity = pair
    dealer.send_multipart(frames)
    assert of(router).receive(wait=True) == [identity, *frames]
    assert of(router).send([identity, *frames])
    assert dealer.recv_multipart() == frames
    assert of(router).receive() is None


def test_nothing_comes_within_the_time(pair, of):
    router, _, _ = pair
    router.rcvtimeo = 1
    assert of(router).receive(wait=True) is None
    assert of(router).receive() is None


@pytest.mark.parametrize("count", [FRAMES_MAX - 1, FRAMES_MAX, FRAMES_MAX + 5000], ids=str)
def test_too_many_frames_are_not_kept(pair, of, count):
    router, dealer, identity = pair
    dealer.send_multipart([b"x"] * count)
    dealer.send(b"next")
    assert len(of(router).receive(wait=True)) == min(count + 1, FRAMES_MAX + 1)
    assert of(router).receive(wait=True) == [identity, b"next"]


def test_a_peer_that_is_gone_and_a_pipe_that_is_full(pair, of, context):
    router, _, _ = pair
    assert not of(router).send([b"nobody", b"", b"x"])
    full = context.socket(zmq.ROUTER)
    full.router_mandatory, full.sndhwm, full.linger = True, 1, 0
    full.bind("inproc://full")
    deaf = context.socket(zmq.DEALER)
    deaf.rcvhwm = 1
    deaf.connect("inproc://full")
    deaf.send(b"")
    identity = full.recv_multipart()[0]
    taken = 0
    while of(full).send([identity, b"%d" % taken, b"rest"]):
        taken += 1
    assert taken
    for number in range(taken):                 # what was not taken left nothing behind
        assert deaf.recv_multipart() == [b"%d" % number, b"rest"]
    full.close()
    deaf.close()


NO_FRAMES = ["text", None, 3, bytearray(b"x"), memoryview(b"x"), [b"x"]]


@pytest.mark.parametrize("wrong", NO_FRAMES, ids=lambda value: type(value).__name__)
def test_what_is_no_frame_is_refused_before_anything_is_sent(pair, of, wrong):
    router, dealer, identity = pair
    with pytest.raises(TypeError, match="a frame of a message must be bytes, got"):
        of(router).send([identity, b"first", wrong])
    with pytest.raises(ValueError, match="at least one frame"):
        of(router).send([])
    assert of(router).send((identity, b"whole"))
    assert dealer.recv_multipart() == [b"whole"]


def test_a_closed_socket_and_a_context_that_has_ended(of):
    context = zmq.Context()
    closed, open_ = context.socket(zmq.ROUTER), context.socket(zmq.ROUTER)
    of_closed, of_open = of(closed), of(open_)
    closed.close()
    with pytest.raises(zmq.ZMQError) as raised:
        of_closed.receive()
    assert raised.value.errno == zmq.ENOTSOCK
    with pytest.raises(zmq.ZMQError) as raised:
        of_closed.send([b"x"])
    assert raised.value.errno == zmq.ENOTSOCK
    ends = threading.Thread(target=context.term)
    ends.start()
    with pytest.raises(zmq.ContextTerminated):
        of_open.receive(wait=True)
    with pytest.raises(zmq.ContextTerminated):
        of_open.send([b"x"])
    open_.close()
    ends.join()


def test_a_socket_that_is_of_no_kind_for_it(context, of):
    pull, push = context.socket(zmq.PULL), context.socket(zmq.PUSH)
    with pytest.raises(zmq.ZMQError):
        of(pull).send([b"x"])
    with pytest.raises(zmq.ZMQError):
        of(push).receive()
    assert not of(push).send([b"x"])            # it has no peer
    pull.close()
    push.close()


def test_a_signal_is_handled_while_a_receive_waits(pair, of):
    """The handler runs, and the receive goes on; one that raises ends it."""
    router, dealer, identity = pair
    seen = []

    def handled(number, frame):
        seen.append(number)
        dealer.send(b"from the handler")

    def raises(number, frame):
        raise KeyboardInterrupt

    before = signal.signal(signal.SIGUSR1, handled)
    try:
        threading.Timer(0.02, os.kill, (os.getpid(), signal.SIGUSR1)).start()
        assert of(router).receive(wait=True) == [identity, b"from the handler"]
        assert seen == [signal.SIGUSR1]
        signal.signal(signal.SIGUSR1, raises)
        threading.Timer(0.02, os.kill, (os.getpid(), signal.SIGUSR1)).start()
        with pytest.raises(KeyboardInterrupt):
            of(router).receive(wait=True)
    finally:
        signal.signal(signal.SIGUSR1, before)


def test_other_threads_run_while_a_receive_waits(pair, of):
    router, dealer, identity = pair
    threading.Timer(0.01, dealer.send, (b"from a thread",)).start()
    assert of(router).receive(wait=True) == [identity, b"from a thread"]


def test_a_socket_of_asyncio_may_be_read_so_once_it_is_readable(pair, of):
    router, dealer, identity = pair

    async def read():
        socket = zmq.asyncio.Socket.from_socket(router)
        dealer.send_multipart([b"a", b"b"])
        assert await socket.poll(60_000) == zmq.POLLIN
        return of(router).receive()

    assert asyncio.run(read()) == [identity, b"a", b"b"]


def test_addresses_are_all_or_none(context, monkeypatch):
    socket = context.socket(zmq.ROUTER)
    for wrong in ([], [1] * (len(FUNCTIONS) - 1), [0] * len(FUNCTIONS)):
        with pytest.raises(ValueError, match="addresses must be those of zmq_msg_init, "):
            Multipart(socket, wrong, ways._fail, frames_max=1, unreachable=1)
    monkeypatch.setattr(ways, "FUNCTIONS", (*FUNCTIONS, "zmq_that_is_not"))
    assert ways._addresses() is None            # and then pyzmq does it
    monkeypatch.setattr(ways, "_ADDRESSES", None)
    assert isinstance(messages(socket), FrameByFrame)
    socket.close()
