"""Large frames that sockets hold for peers that read nothing are bounded."""

from pubsub.messenger.sockets import open_dealer, open_router, send
from pubsub.messenger.unsent import Unsent
from tests.faults.hostile import raw

MIB = 1024 * 1024


def test_a_peer_that_takes_no_large_messages_gets_no_more_than_its_share(context, until):
    router, endpoint = open_router(context, "tcp://127.0.0.1:0")
    with raw(endpoint, ready=True) as stranger:
        stranger.sendall(b"\0\1x")
        assert router.poll(10_000)
        routing, _ = router.recv_multipart()
        unsent = Unsent(3 * MIB, 8 * MIB)
        taken = []
        while unsent.has_room(routing):
            taken.append(send(router, [routing, unsent.frame(routing, bytes(MIB))]))
            assert len(taken) < 100  # The machine takes some of it.
        assert all(taken)
        assert unsent.size >= 3 * MIB
        stranger.settimeout(10)
        left = len(taken) * MIB
        while left > 0:
            left -= len(stranger.recv(MIB))

        def all_sent():
            unsent.sweep()
            return unsent.size == 0

        until(all_sent)
        assert unsent.has_room(routing)


def test_a_peer_that_has_read_its_messages_has_room_at_once(context, until):
    unsent = Unsent(MIB, 8 * MIB)
    reader, writer = open_router(context, "inproc://reads")[0], open_dealer(context, "inproc://reads")
    for _ in range(3):
        assert unsent.has_room("reader")
        assert send(writer, [unsent.frame("reader", bytes(MIB))])
        assert not unsent.has_room("reader")
        assert reader.poll(10_000)
        assert len(reader.recv_multipart()[1]) == MIB
        until(lambda: unsent.has_room("reader"))
    assert unsent.size == 0


def test_peers_without_waiting_messages_come_first_when_much_waits(context, until):
    unsent = Unsent(3 * MIB, 8 * MIB)
    slow = [open_dealer(context, "inproc://nobody") for _ in range(30)]
    kept = 0
    for number, sock in enumerate(slow):
        while unsent.has_room(number):
            assert send(sock, [unsent.frame(number, bytes(MIB))])
            kept += 1
            assert kept < 100
    assert unsent.size == kept * MIB == 2 * 8 * MIB  # Three each while there was room for that, then one each.
    for sock in slow:
        sock.close(0)
    context.destroy(0)

    def all_dropped():
        unsent.sweep()
        return unsent.size == 0

    until(all_dropped)
