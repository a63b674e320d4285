"""A link cut on one side only: a peer that returns through it is heard at once, and each message once."""

import time

import pytest

from pubsub.messenger import Messenger, MessengerLimits

# So slow that no retry of the Messenger can be what brings a message through.
PATIENT = MessengerLimits(retry_seconds=30.0, retry_seconds_max=30.0, heartbeat_seconds=0.1)
CLIENT_SIDE, SERVER_SIDE = 0, 1


@pytest.fixture
def ends(relay_to):
    """A server, a client whose connection goes through a relay, the relay, and what the server was sent."""
    taken = []

    def loop(request) -> None:
        taken.append(bytes(request.contents))
        peers.append(request.peer)
        if request.wants_answer:
            request.reply(request.contents)

    peers = []
    server, client = Messenger(limits=PATIENT), Messenger(limits=PATIENT)
    relay = relay_to(server.listen("tcp://127.0.0.1:0", loop))
    received = []
    peer = client.connect(relay.endpoint, lambda request: received.append(bytes(request.contents)))
    yield server, client, relay, peer, taken, peers, received
    client.close()
    server.close()


def ask(client, peer, contents, seconds):
    answers = []
    client.send(peer, contents, lambda _, answer, __: answers.append(bytes(answer)))
    client.wait(lambda: bool(answers), time.monotonic() + seconds)
    return answers


def test_a_client_cut_off_without_notice_to_the_server_is_served_at_once(ends):
    _, client, relay, peer, taken, peers, _ = ends
    assert ask(client, peer, b"before", 10) == [b"before"]
    relay.cut(CLIENT_SIDE)
    begun = time.monotonic()
    assert ask(client, peer, b"after", 10) == [b"after"]
    assert time.monotonic() - begun < 3
    assert len(relay.pairs) == 2
    assert taken == [b"before", b"after"]
    assert peers[0] is peers[1]


def test_messages_of_the_server_go_to_the_new_connection(ends, until):
    server, client, relay, peer, _, peers, received = ends
    assert ask(client, peer, b"before", 10)
    relay.cut(CLIENT_SIDE)
    assert ask(client, peer, b"after", 10)
    server.send(peers[0], b"news")
    until(lambda: received == [b"news"], 3)


def test_a_client_without_notice_of_the_cut_detects_it_and_is_served(ends, until):
    _, client, relay, peer, taken, _, _ = ends
    assert ask(client, peer, b"before", 10) == [b"before"]
    relay.cut(SERVER_SIDE)
    until(lambda: len(relay.pairs) == 2)
    assert ask(client, peer, b"after", 10) == [b"after"]
    assert taken == [b"before", b"after"]


def test_a_message_lost_in_a_dead_link_arrives_once_by_its_retry(relay_to, until):
    taken = []
    limits = MessengerLimits(retry_seconds=0.2, retry_seconds_max=0.4, heartbeat_seconds=0.1)
    with Messenger(limits=limits) as server, Messenger(limits=limits) as client:
        relay = relay_to(server.listen("tcp://127.0.0.1:0", lambda request: taken.append(bytes(request.contents))))
        peer = client.connect(relay.endpoint)
        client.send(peer, b"before")
        until(lambda: taken == [b"before"])
        relay.cut(SERVER_SIDE)
        client.send(peer, b"into the dead link")
        until(lambda: len(taken) == 2 and client.pending == 0)
        assert taken == [b"before", b"into the dead link"]
