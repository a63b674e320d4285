"""Groups: each share is taken or withdrawn, never both; due times; and the division into rows.

The rules are those of docs/explanation/batches.md, B5 and B8.
"""

from __future__ import annotations

import threading
from collections.abc import Sequence

from hypothesis import given
from hypothesis import strategies as st

from pubsub.client.batch_contents import BatchContents
from pubsub.client.core.chain import MESSAGES_MAX, Chain
from pubsub.client.core.groups import HOLD_SECONDS, Groups, Share, batches
from pubsub.client.core.retries import Retries
from tests.client.puts import flying, make, put, sent

NEVER = float("inf")


def share(body: bytes = b"x", key: bytes = b"", headers: bytes = b"") -> Share:
    return Share(body, key, headers, 30.0)


def idle(topic: str = "t") -> Chain:
    return Chain(topic, Retries(1, 3, 0.1), 4)


def busy() -> Chain:
    outbox = make()
    chain, _ = flying(outbox, 1)
    for _ in range(MESSAGES_MAX - 1):
        put(outbox, 1)
        assert len(sent(chain, 0.0)) == 1
    return chain


def test_only_the_opener_of_a_group_writes_it_when_no_put_is_in_flight() -> None:
    groups, chain = Groups(), idle()
    assert groups.join(chain, share(), 5.0) is True
    assert groups.join(chain, share(), 5.0) is False
    assert groups.due(5.0) == []
    assert groups.due(5.0 + HOLD_SECONDS) == ["t"], "if its opener does not write it"


def test_a_group_is_held_while_as_many_messages_as_may_are_in_flight_and_no_longer_than_that() -> None:
    chain, _ = flying(make(), 1)
    assert Groups().join(chain, share(), 5.0) is True, "a second message may be sent at once"
    groups, chain = Groups(), busy()
    assert groups.join(chain, share(), 5.0) is None
    assert groups.deadline() == 5.0 + HOLD_SECONDS
    groups.answered("t")
    assert groups.due(5.0) == ["t"]
    assert len(groups.take("t")) == 1
    assert (groups.due(NEVER), groups.deadline()) == ([], NEVER)
    groups.answered("t")
    assert groups.due(NEVER) == []


def test_a_group_is_not_held_for_rows_that_nobody_waits_for() -> None:
    chain = busy()
    chain.tick(31.0)  # Nobody waits for its rows any more, so none of them is sent again.
    assert Groups().join(chain, share(), 31.0) is True


def test_a_taken_share_cannot_be_withdrawn_and_a_withdrawn_share_is_not_taken() -> None:
    groups, chain = Groups(), idle()
    first, second, third = shares = [share(), share(), share()]
    for one in shares:
        groups.join(chain, one, 0.0)
    assert groups.withdraw("t", second)
    assert not groups.withdraw("t", second)
    assert groups.take("t") == [first, third]
    assert not groups.withdraw("t", first)
    assert not groups.withdraw("elsewhere", third)
    assert groups.take("t") == []


def test_each_topic_has_its_own_group() -> None:
    groups, one, other = Groups(), share(), share()
    groups.join(idle("a"), one, 0.0)
    groups.join(idle("b"), other, 0.001)
    assert groups.topics == ["a", "b"]
    assert groups.due(HOLD_SECONDS) == ["a"]
    assert (groups.take("a"), groups.take("b")) == ([one], [other])


def test_threads_that_join_withdraw_and_take_at_once_have_each_share_in_one_place() -> None:
    groups, chain, count, workers = Groups(), idle(), 400, 4
    withdrawn: list[Share] = []
    joined: list[list[Share]] = [[share() for _ in range(count)] for _ in range(workers)]
    taken: list[Share] = []
    over = threading.Event()

    def put(shares: Sequence[Share]) -> None:
        for index, one in enumerate(shares):
            groups.join(chain, one, 0.0)
            if index % 3 == 0 and groups.withdraw("t", one):
                withdrawn.append(one)

    def write() -> None:
        while not over.is_set():
            taken.extend(groups.take("t"))

    threads = [threading.Thread(target=put, args=(shares,)) for shares in joined]
    writer = threading.Thread(target=write)
    for thread in (writer, *threads):
        thread.start()
    for thread in threads:
        thread.join()
    over.set()
    writer.join()
    taken += groups.take("t")
    assert {id(one) for one in taken}.isdisjoint({id(one) for one in withdrawn})
    assert len(taken) + len(withdrawn) == count * workers
    for shares in joined:
        own = {id(one): place for place, one in enumerate(shares)}
        places = [own[id(one)] for one in taken if id(one) in own]
        assert places == sorted(places), "the order of a caller's own"


def cut(*shares: Share, records: int = 100, size: int = 1000) -> list[BatchContents]:
    return [contents for contents, _ in batches(shares, records, size)]


def test_plain_records_are_one_batch() -> None:
    assert cut(share(b"a"), share(b"b")) == [BatchContents([b"a", b"b"])]
    assert cut() == []


def test_a_batch_ends_at_a_limit() -> None:
    assert [len(one.bodies) for one in cut(*[share()] * 5, records=2)] == [2, 2, 1]
    assert [len(one.bodies) for one in cut(share(b"12345"), share(b"1234567"), share(b"1"), size=10)] == [1, 2]
    assert [one.bodies for one in cut(share(b"1"), share(b"x" * 50), share(b"2"), size=10)] == [
        [b"1"], [b"x" * 50], [b"2"]
    ]  # fmt: skip


def test_records_with_keys_or_headers_do_not_share_a_batch_with_earlier_plain_ones() -> None:
    """A server of an earlier release refuses a batch with keys or headers; plain records alone are accepted."""
    plain, keyed, headed = share(b"p"), share(b"k", key=b"key"), share(b"h", headers=b"head")
    assert cut(plain, plain, keyed, plain, headed) == [
        BatchContents([b"p", b"p"]),
        BatchContents([b"k", b"p", b"h"], [b"key", b"", b""], [b"", b"", b"head"]),
    ]
    assert cut(keyed, plain) == [BatchContents([b"k", b"p"], [b"key", b""])]


@given(
    st.lists(st.tuples(st.binary(max_size=6), st.binary(max_size=2), st.binary(max_size=2)), max_size=30),
    st.integers(1, 8),
    st.integers(1, 20),
)
def test_batches_hold_every_share_once_in_order(
    records: list[tuple[bytes, bytes, bytes]], most: int, size: int
) -> None:
    shares = [Share(body, key, headers, 30.0) for body, key, headers in records]
    found = list(batches(shares, most, size))
    assert [one for _, its in found for one in its] == shares
    for contents, its in found:
        assert contents.bodies == [one.body for one in its]
        assert list(contents.keys) in ([one.key for one in its], [])
        assert len(its) <= most
        assert len(its) == 1 or sum(one.size for one in its) <= size
