"""A request without the right ends at once, is kept, and continues once the right is there, at real proxies."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from keyed import BOB, EVERYTHING, SECONDS, Keyed, keyed, line, wait_until

from pubsub.client import Client
from pubsub.errors import NotAllowed, NotSubscribed
from tests.client.opened import nothing

AT_ONCE = 10.0
NOTHING = line("client", "alice")
KEPT = "the put is kept: ask for the right, then pubsub client alice flush, or discard orders"


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[Keyed]:
    with keyed(tmp_path) as made:
        yield made


def denied(call: Callable[[], object]) -> NotAllowed:
    """Return the error of a call that is denied at once."""
    begun = time.monotonic()
    with pytest.raises(NotAllowed) as error:
        call()
    assert time.monotonic() - begun < AT_ONCE
    assert error.value.exit_code == 22
    assert "\n" not in str(error.value)
    return error.value


def taken(client: Client, topic: str, count: int) -> list[bytes]:
    """Return the next messages, and check that there is no other."""
    found = [message.body for _ in range(count) if (message := client.get(topic)) is not None]
    assert nothing(client, topic)
    return found


def test_a_put_without_the_right_is_kept_and_the_error_names_the_remedy(cluster: Keyed) -> None:
    cluster.authorize(line("client", "alice", "put=other", "get=*"), BOB)
    with cluster.client() as alice, cluster.client("bob") as bob:
        bob.subscribe("orders")
        error = denied(lambda: alice.put("orders", b"1"))
        assert str(error) == f"client alice may not put to orders; {KEPT}"
        assert (error.operation, error.topic) == ("put", "orders")
        assert alice.unfinished("orders") == 1
        alice.put("other", b"x")  # Another topic is none of its business.
        denied(lambda: alice.put("orders", b"2"))
        denied(alice.flush)
        denied(lambda: alice.put_many("orders", [b"3", b"4"]))
        alice.put("orders", b"5", wait=False)
        with alice.transaction() as transaction:
            alice.put("orders", b"6", transaction=transaction)
        assert alice.unfinished("orders") == 6
        wait_until(lambda: not len(alice._session.core.flights))
        cluster.authorize(EVERYTHING, BOB)
        alice.flush()
        alice.put("orders", b"7")
        assert taken(bob, "orders", 7) == [b"1", b"2", b"3", b"4", b"5", b"6", b"7"]


def test_a_denied_put_is_not_retried_automatically(cluster: Keyed) -> None:
    cluster.authorize(NOTHING, BOB)
    with cluster.client(try_seconds=20.0) as alice:
        alice.put("orders", b"1", wait=False)
        wait_until(lambda: alice._session.core.outbox.chain("orders").failure)
        assert not alice._session.core.outbox.active
        assert alice._session.core.deadline() is None
        assert cluster.proxy.count("denied") == 1


def test_a_denied_put_is_sent_with_the_next_one_on_its_topic(cluster: Keyed) -> None:
    cluster.authorize(NOTHING, BOB)
    with cluster.client() as alice, cluster.client("bob") as bob:
        bob.subscribe("orders")
        denied(lambda: alice.put("orders", b"1"))
        cluster.authorize(EVERYTHING, BOB)
        alice.put("orders", b"2")
        assert taken(bob, "orders", 2) == [b"1", b"2"]


def test_the_put_is_kept_by_the_next_start_too(cluster: Keyed) -> None:
    cluster.authorize(NOTHING, BOB)
    with cluster.client("bob") as bob:
        bob.subscribe("orders")
        with cluster.client() as alice:
            denied(lambda: alice.put("orders", b"1"))
        cluster.authorize(EVERYTHING, BOB)
        with cluster.client() as alice:
            assert alice.unfinished("orders") == 1
            alice.flush()
        assert taken(bob, "orders", 1) == [b"1"]


def test_the_put_can_be_given_up(cluster: Keyed) -> None:
    cluster.authorize(NOTHING, BOB)
    with cluster.client() as alice, cluster.client("bob") as bob:
        bob.subscribe("orders")
        denied(lambda: alice.put("orders", b"1"))
        assert alice.discard("orders") == 1
        alice.flush()
        cluster.authorize(EVERYTHING, BOB)
        alice.put("orders", b"2")
        assert taken(bob, "orders", 1) == [b"2"]


def test_a_flush_sends_the_allowed_puts_and_then_reports_the_denied_ones(cluster: Keyed) -> None:
    cluster.authorize(line("client", "alice", "put=a,z"), BOB)
    with cluster.client("bob") as bob, cluster.client() as alice:
        bob.subscribe("a")
        bob.subscribe("z")
        for topic in ("a", "orders", "z"):
            with alice.transaction() as transaction:  # Not sent before the block ends.
                alice.put(topic, b"x", transaction=transaction)
        assert denied(alice.flush).topic == "orders"
        assert [alice.unfinished(topic) for topic in ("a", "orders", "z")] == [0, 1, 0]
        assert taken(bob, "a", 1) == taken(bob, "z", 1) == [b"x"]


def test_a_publisher_learns_of_a_denial_by_flush_and_by_put_at_its_window(cluster: Keyed) -> None:
    cluster.authorize(NOTHING, BOB)
    with cluster.client("bob") as bob, cluster.client(window=4) as alice:
        bob.subscribe("orders")
        publisher = alice.publisher("orders", records=1)
        put = 0

        def fill() -> None:
            nonlocal put
            for _ in range(100):
                publisher.put(b"%d" % (put + 1))
                put += 1  # A put that raises has not taken the message.

        denied(fill)
        denied(publisher.flush)
        denied(publisher.close)
        cluster.authorize(EVERYTHING, BOB)
        alice.flush()
        assert taken(bob, "orders", put) == [b"%d" % number for number in range(1, put + 1)]


def test_a_denied_subscription_is_made_once_the_right_exists(cluster: Keyed) -> None:
    cluster.authorize(line("client", "alice", "put=*"), BOB)
    with cluster.client() as alice, cluster.client("bob") as bob:
        error = denied(lambda: alice.subscribe("orders"))
        assert str(error) == "client alice may not get from orders"
        assert error.operation == "subscribe"
        denied(lambda: alice.subscribe("orders"))
        assert denied(lambda: alice.get("orders")).operation == "subscribe"
        cluster.authorize(EVERYTHING, BOB)
        assert nothing(alice, "orders")  # Wanted is wanted.
        bob.put("orders", b"1")
        assert taken(alice, "orders", 1) == [b"1"]
        cluster.authorize(NOTHING, BOB)
        denied(lambda: alice.subscribe("orders"))
        assert denied(lambda: alice.unsubscribe("orders")).operation == "unsubscribe"
        cluster.authorize(EVERYTHING, BOB)
        alice.unsubscribe("orders")
        with pytest.raises(NotSubscribed):
            alice.get("orders")


def test_a_subscriber_without_the_right_keeps_its_position(cluster: Keyed) -> None:
    with cluster.client("bob") as bob:
        with cluster.client(prefetch_records=1) as alice:
            alice.subscribe("orders")
            for number in range(1, 7):
                bob.put("orders", b"%d" % number)
            found = [alice.get("orders").body for _ in range(2)]  # type: ignore[union-attr]
            cluster.authorize(NOTHING, BOB)
            while True:  # Messages that are here already came while there was the right.
                try:
                    found.append(alice.get("orders").body)  # type: ignore[union-attr]
                except NotAllowed:
                    break
            assert str(denied(lambda: alice.get("orders"))) == "client alice may not get from orders"
            assert len(found) < 6
            for call in (alice.messages("orders").__next__, lambda: alice.process("orders", lambda *_: None)):
                denied(call)
        cluster.authorize(EVERYTHING, BOB)
        with cluster.client() as alice:
            found += taken(alice, "orders", 6 - len(found))
    assert found == [b"%d" % number for number in range(1, 7)]


def test_acknowledgements_that_are_denied_lose_nothing_and_hand_out_nothing_twice(cluster: Keyed) -> None:
    with cluster.client("bob") as bob, cluster.client() as alice:
        alice.subscribe("orders")
        for number in range(1, 5):
            bob.put("orders", b"%d" % number)
        first = alice.get("orders")
        assert first is not None
        wait_until(lambda: alice._session.core.subscriptions["orders"].prefetch.records == 3)
        cluster.authorize(NOTHING, BOB)
        rest = [message.body for message in alice.get_many("orders")]
        assert rest == [b"2", b"3", b"4"]
        wait_until(lambda: cluster.proxy.count("denied"))  # The acknowledgement was sent, and denied.
        denied(lambda: alice.get("orders"))
        cluster.authorize(EVERYTHING, BOB)
        bob.put("orders", b"5")
        assert taken(alice, "orders", 1) == [b"5"]


def test_a_long_poll_ends_when_the_right_is_taken_away(cluster: Keyed) -> None:
    errors: list[BaseException] = []

    def get(alice: Client) -> None:
        try:
            alice.get("orders", timeout=60.0)
        except NotAllowed as error:
            errors.append(error)

    with cluster.client("bob") as bob, cluster.client() as alice:
        alice.subscribe("orders")
        thread = threading.Thread(target=get, args=(alice,))
        thread.start()
        sub = alice._session.core.subscriptions["orders"]
        wait_until(lambda: sub.deadline is not None and sub.waiting)
        cluster.authorize(NOTHING, BOB)
        bob.put("orders", b"1")
        thread.join(SECONDS)
        assert str(errors[0]) == "client alice may not get from orders"
        cluster.authorize(EVERYTHING, BOB)
        assert taken(alice, "orders", 1) == [b"1"]


def test_a_key_is_not_used_under_another_name(cluster: Keyed) -> None:
    with cluster.client("bob", key="alice") as bob:
        error = denied(lambda: bob.put("orders", b"1"))
        assert str(error).startswith("this key is alice's, not bob's; the put is kept")
        assert str(denied(lambda: bob.subscribe("orders"))) == "this key is alice's, not bob's"


def test_a_key_revoked_while_connected_is_denied(cluster: Keyed) -> None:
    with cluster.client() as alice:
        alice.put("orders", b"1")
        cluster.authorize(BOB)
        assert str(denied(lambda: alice.put("orders", b"2"))) == f"this key is not authorized any more; {KEPT}"


def test_a_client_under_a_mistaken_id_continues_after_the_correction(cluster: Keyed) -> None:
    """A connection keeps the identity from its handshake, so the connection is made anew."""
    cluster.authorize(line("client", "alise", "put=*", key="alice"))
    with cluster.client() as alice:
        with pytest.raises(NotAllowed, match="this key is alise's, not alice's"):
            alice.put("orders", b"one", timeout=20)
        cluster.authorize(line("client", "alice", "put=*"))
        with pytest.raises(NotAllowed, match="is authorized as client alice since it connected"):
            alice.put("orders", b"two", timeout=20)
        alice.put("orders", b"three", timeout=20)
        assert alice.unfinished("orders") == 0


def test_a_denial_by_one_of_two_proxies_ends_the_call(tmp_path: Path) -> None:
    with keyed(tmp_path, proxies=2) as cluster, cluster.client("bob") as bob, cluster.client() as alice:
        first, second = cluster.proxies
        bob.subscribe("orders")
        first.authorize(NOTHING, BOB)
        denied(lambda: alice.put("orders", b"1"))
        assert second.count("denied") == 0
        first.authorize(EVERYTHING, BOB)
        second.authorize(NOTHING, BOB)
        alice.put("orders", b"2")
        assert taken(bob, "orders", 2) == [b"1", b"2"]


def test_denials_are_the_same_for_an_async_client(cluster: Keyed) -> None:
    cluster.authorize(NOTHING, BOB)

    async def main() -> None:
        async with cluster.async_client() as alice, cluster.async_client("bob") as bob:
            await bob.subscribe("orders")
            for call in (
                lambda: alice.put("orders", b"1"),
                alice.flush,
                lambda: alice.subscribe("orders"),
                lambda: alice.get("orders"),
                lambda: alice.messages("orders").__anext__(),
                lambda: alice.process("orders", lambda message, transaction: None),
            ):
                with pytest.raises(NotAllowed, match="client alice may not"):
                    await asyncio.wait_for(call(), AT_ONCE)
            await asyncio.to_thread(cluster.authorize, EVERYTHING, BOB)
            await alice.flush()
            await alice.subscribe("orders")
            await bob.put("orders", b"2")
            found = [await bob.get("orders") for _ in range(2)]
            assert [message.body for message in found if message is not None] == [b"1", b"2"]
            message = await alice.get("orders")
            assert message is not None
            assert message.body == b"2"

    asyncio.run(main())


def test_a_handler_with_a_denied_put_has_its_effect_and_the_put_waits(cluster: Keyed) -> None:
    cluster.authorize(line("client", "alice", "put=other", "get=*"), BOB)
    with cluster.client("bob") as bob, cluster.client() as alice:
        alice.subscribe("in")
        bob.subscribe("orders")
        bob.put("in", b"1")
        assert alice.process("in", lambda message, transaction: transaction.put("orders", [message.body])) == 1  # type: ignore[func-returns-value]
        denied(alice.flush)
        cluster.authorize(EVERYTHING, BOB)
        alice.flush()
        assert taken(bob, "orders", 1) == [b"1"]
        assert nothing(alice, "in")


def test_the_record_marks_a_denied_put_as_in_doubt(cluster: Keyed, tmp_path: Path) -> None:
    cluster.authorize(NOTHING, BOB)
    with cluster.client(record=tmp_path / "record") as alice:
        denied(lambda: alice.put("orders", b"1"))
    results = [line for line in (tmp_path / "record").read_text().splitlines() if '"orders"' in line]
    assert '"begun"' in results[0]
    assert '"in_doubt"' in results[-1]
