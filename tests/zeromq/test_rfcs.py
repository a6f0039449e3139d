"""Each MUST and SHOULD of RFC 6, 7, 8, 9, 10 and 18, in short, and the test that fails without it; here are those that no other
file has. What concerns the sentences of several RFCs stands once. The peers are raw sockets."""

import asyncio
import importlib

import pytest
import zmq

from tests.zeromq.proxy import free_endpoint
from tests.zeromq.test_majordomo import VERSIONS, Broker, Peer
from tests.zeromq.test_sockets import Asked, endpoint_of
from xump.zeromq import Client, FutureClient, Worker, aio
from xump.zeromq.freelance import Addressed

SENTENCES = {
    "6/PPP": {
        "The first message MUST be READY (queue)": "test_pirates.test_a_worker_must_say_ready_first",
        "The first message MUST be READY (worker)": "test_worker_machine.test_the_first_word_is_ready_and_it_is_said_once",
        "READY and HEARTBEAT are one byte": "test_sockets.test_a_paranoid_pirate_with_raw_peers",
        "REQUEST and REPLY have an optional stack of addresses (queue)":
            "test_pirates.test_requests_and_replies_have_a_stack_of_addresses",
        "REQUEST and REPLY have an optional stack of addresses (worker)":
            "test_worker_machine.test_a_paranoid_pirate_keeps_the_stack_of_addresses_if_there_is_one",
        "Peers SHOULD send heartbeats (queue)":
            "test_pirates.test_a_worker_that_is_told_nothing_else_gets_a_heartbeat_each_interval_busy_or_not",
        "Peers SHOULD send heartbeats (worker)":
            "test_worker_machine.test_heartbeats_are_sent_each_interval_in_which_nothing_else_is_sent",
        "A worker whose queue is gone MUST send READY again":
            "test_sockets.test_a_worker_comes_back_when_its_broker_falls_silent",
        "To a worker that is gone nothing SHOULD be sent":
            "test_pirates.test_a_silent_worker_is_gone_after_its_liveness_and_its_request_goes_on",
    },
    "7/MDP": {
        "Clients SHOULD be served fairly": "test_majordomo.test_a_broker_should_serve_clients_fairly_the_first_that_asks_first",
        "The broker MUST use a ROUTER": "test_sockets.test_a_req_client_and_a_dealer_worker_of_majordomo",
        "Clients SHOULD use a REQ": "test_sockets.test_a_req_client_and_a_dealer_worker_of_majordomo",
        "A DEALER client MUST create the empty frame": "test_rfcs.test_what_our_clients_send_and_take",
        "Requests for absent services SHOULD be queued":
            "test_majordomo.test_a_broker_should_queue_requests_for_absent_services",
        "And SHOULD expire": "test_majordomo.test_requests_for_absent_services_expire_wherever_they_stand_in_the_queue",
        "A worker MUST connect to one broker by one DEALER": "test_rfcs.test_a_worker_of_two_brokers_has_a_socket_for_each",
        "It MUST NOT send a further READY": "test_worker_machine.test_the_first_word_is_ready_and_it_is_said_once",
        "It SHOULD assume that it is registered":
            "test_worker_machine.test_it_should_assume_that_it_is_registered_until_it_hears_otherwise",
        "After its DISCONNECT the broker MUST send nothing":
            "test_majordomo.test_nothing_is_sent_to_a_worker_after_its_disconnect",
        "It MAY send DISCONNECT before READY":
            "test_majordomo.test_a_heartbeat_or_reply_of_an_unknown_worker_is_answered_by_disconnect",
        "What is valid and unexpected MUST be answered by DISCONNECT, and then nothing MUST be sent":
            "test_majordomo.test_an_unexpected_command_is_answered_by_disconnect_then_silence",
        "What is invalid SHOULD be dropped": "test_majordomo.test_what_is_malformed_and_comes_from_no_worker_is_dropped",
        "And its sender SHOULD be treated as invalid":
            "test_majordomo.test_a_worker_that_sends_what_is_malformed_is_invalid_and_its_request_goes_to_the_next",
        "After the broker's DISCONNECT a worker must send nothing":
            "test_worker_machine.test_after_silence_and_after_disconnect_nothing_is_sent",
        "And MUST reconnect by a new socket": "test_sockets.test_a_worker_beats_while_it_works_and_reopens_when_it_is_sent_away",
        "REQUEST and REPLY MUST have one address and an empty frame (broker)":
            "test_majordomo.test_every_client_is_served_by_every_worker_each_in_its_own_form",
        "REQUEST and REPLY MUST have one address and an empty frame (worker)":
            "test_worker_machine.test_a_reply_has_one_address_an_empty_frame_and_the_body",
        "HEARTBEAT is valid at any time after READY": "test_rfcs.test_a_busy_worker_is_kept_while_it_says_something",
        "Any command but DISCONNECT is a heartbeat (broker)": "test_rfcs.test_a_busy_worker_is_kept_while_it_says_something",
        "Any command but DISCONNECT is a heartbeat (worker)":
            "test_worker_machine.test_any_command_but_disconnect_counts_as_a_heartbeat",
        "Heartbeats SHOULD NOT be sent beside other commands (broker)":
            "test_majordomo.test_workers_get_heartbeats_in_every_state_when_nothing_else_is_sent",
        "Both MUST send heartbeats": "test_worker_machine.test_heartbeats_are_sent_each_interval_in_which_nothing_else_is_sent",
        "A silent worker MUST be taken for gone, and nothing SHOULD be sent to it":
            "test_majordomo.test_a_worker_that_is_silent_is_gone",
        "A silent broker MUST be taken for gone, and a worker SHOULD begin anew":
            "test_sockets.test_a_worker_comes_back_when_its_broker_falls_silent",
    },
    "8/MMI": {
        "All of mmi. MUST be handled by the broker, mmi.service MUST be there, the rest MUST be 501": "test_majordomo.test_mmi",
        "Workers of mmi. MUST be disconnected":
            "test_majordomo.test_a_worker_that_registers_a_reserved_service_must_be_disconnected",
    },
    "9/TSP": {
        "The three services MUST be there": "test_titanic.test_the_broker_says_that_the_services_are_there_and_keeps_their_names",
        "titanic.request MUST reply with a status and a UUID, which MUST have 32 hexadecimal characters":
            "test_titanic.test_a_request_is_accepted_with_a_uuid_of_32_hex_digits_and_no_two_are_alike",
        "titanic.reply MUST reply with a status and the body, and MUST NOT delete it":
            "test_titanic.test_a_request_is_done_by_a_worker_of_its_service_and_the_reply_can_be_fetched_again_and_again",
        "titanic.close MUST reply 200, also where the UUID is unknown":
            "test_titanic.test_close_is_always_200_and_what_is_closed_is_unknown",
        "Status codes MUST be 200, 300, 400 or 500": "test_titanic.test_requests_and_workers_at_random_agree_with_a_model",
        "500 where it cannot be done": "test_titanic.test_a_request_without_a_body_or_for_a_service_that_cannot_be_is_refused",
    },
    "10/FLP": {
        "A server MUST answer PING by PONG": "test_freelance.test_a_ping_is_answered_by_pong",
        "It MUST return the control frame unmodified": "test_freelance.test_a_reply_has_the_control_frame_of_its_request",
        "And one or more frames of reply":
            "test_peers_that_lie.test_a_function_that_returns_no_reply_ends_its_worker_and_its_server",
        "Both MUST use ROUTER sockets, and servers MUST set their public endpoint as identity":
            "test_freelance.test_a_raw_router_of_rfc_10_finds_the_server_by_its_endpoint",
        "Clients MUST use ROUTER sockets, and not set an identity": "test_rfcs.test_a_client_of_rfc_10_has_no_identity",
        "A server without PONG SHOULD be taken for disconnected":
            "test_freelance.test_a_server_that_is_silent_for_its_time_to_live_is_dead_and_comes_back",
    },
    "18/MDP": {
        "Clients MUST use a DEALER": "test_rfcs.test_what_our_clients_send_and_take",
        "A client MUST take zero or more PARTIALs": "test_rfcs.test_what_our_clients_send_and_take",
        "After FINAL the broker SHALL send nothing to the client":
            "test_peers_that_lie.test_a_worker_that_answers_twice_reaches_its_client_once",
        "A worker SHALL send any PARTIALs and one FINAL": "test_worker_machine.test_the_first_word_is_ready_and_it_is_said_once",
        "PARTIAL and FINAL SHALL have one address and an empty frame":
            "test_majordomo.test_parts_go_to_the_client_as_they_come",
    },
}


@pytest.mark.parametrize("rfc", SENTENCES)
def test_each_sentence_has_its_test(rfc):
    for sentence, place in SENTENCES[rfc].items():
        module, name = place.split(".")
        assert callable(getattr(importlib.import_module(f"tests.zeromq.{module}"), name, None)), sentence


# ---- clients

WIRE = {"0.1": ([b"", b"MDPC01", b"s"], None, [b"", b"MDPC01", b"s"]),
        "0.2": ([b"MDPC02", b"\1", b"s"], [b"MDPC02", b"\2", b"s"], [b"MDPC02", b"\3", b"s"])}


def in_asyncio(endpoint, version):
    async def ask():
        async with aio.Client(endpoint, version=version, timeout=60.0) as client:
            return await client.request(b"s", b"body", b"")
    return asyncio.run(ask())


def sync(kind):
    def ask(endpoint, version):
        with kind(endpoint, version=version, timeout=60.0) as client:
            return client.request(b"s", b"body", b"")
    return ask


@pytest.mark.parametrize("parts", [0, 1, 3])
@pytest.mark.parametrize("version", WIRE)
@pytest.mark.parametrize("ask", [sync(Client), sync(FutureClient), in_asyncio], ids=["Client", "FutureClient", "aio.Client"])
def test_what_our_clients_send_and_take(ask, version, parts, raw):
    request, partial, final = WIRE[version]
    broker = raw(zmq.ROUTER)
    asked = Asked(lambda: ask(endpoint_of(broker), version))
    identity, *said = broker.recv_multipart()
    assert said == [*request, b"body", b""]
    sent = [b"%d" % number for number in range(parts)] if partial else []
    for part in sent:
        broker.send_multipart([identity, *partial, part, b""])
    broker.send_multipart([identity, *final, b"last"])
    assert asked.end() == [frame for part in sent for frame in (part, b"")] + [b"last"]


def test_a_client_of_rfc_10_has_no_identity(context):
    """A ROUTER gives a peer that has none one of its own: five bytes, of which the first is zero."""
    endpoint = free_endpoint()
    with context.socket(zmq.ROUTER) as server:
        server.linger, server.rcvtimeo, server.routing_id = 0, 60_000, endpoint.encode()
        server.bind(endpoint)
        with Addressed(endpoint, context=context):
            identity, ping = server.recv_multipart()
    assert ping == b"PING"
    assert len(identity) == 5 and identity[0] == 0


# ---- workers and brokers

def test_a_worker_of_two_brokers_has_a_socket_for_each(raw, work, context):
    brokers = [raw(zmq.ROUTER), raw(zmq.ROUTER)]
    work(Worker([endpoint_of(broker) for broker in brokers], b"s", heartbeat=60.0, context=context))
    identities = []
    for broker in brokers:
        identity, *said = broker.recv_multipart()
        assert said == [b"MDPW02", b"\1", b"s"]
        identities.append(identity)
    for number, (broker, identity) in enumerate(zip(brokers, identities, strict=True)):
        broker.send_multipart([identity, b"MDPW02", b"\2", b"c", b"", b"%d" % number])
        assert broker.recv_multipart() == [identity, b"MDPW02", b"\4", b"c", b"", b"%d" % number]
    for broker in brokers:
        assert not broker.poll(50), "nothing came to a broker that was not its own"


@pytest.mark.parametrize("version", VERSIONS)
def test_a_busy_worker_is_kept_while_it_says_something(version):
    broker, peer = Broker(), Peer(version)
    broker.get(*peer.says("ready", b"s"))
    broker.get(*peer.asks(b"x"))
    words = [peer.says("heartbeat")] * 3
    if "part" in peer.codes:
        words += [peer.says("part", b"c", b"", b"1")] * 3
    for frames in words:
        broker.pass_time(2.0)
        assert peer.says("disconnect") not in broker.get(*frames)
    broker.pass_time(2.0)
    assert broker.get(*peer.says("reply", b"c", b"", b"y")) == [[b"c", *peer.final, b"y"]]
    broker.pass_time(2.0)
    assert broker.machine.workers == 1
