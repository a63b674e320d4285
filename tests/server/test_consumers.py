"""Consumers alone: the one number that stands for each in a store, and the requests that each admits.

The rules are those of docs/explanation/spark-exchange.md, K3; docs/explanation/numbers.md, N5.
"""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from pubsub.base.limits import NUMBER_MAX
from pubsub.server.topic.consumers import Readers, Session, consumer_of
from pubsub.server.topic.subscription import SubscriptionRow, subscription_of

NUMBERS = st.integers(1, NUMBER_MAX)
TOKENS = st.integers(0, NUMBER_MAX)
ROW = SubscriptionRow(7, 9, True, 0, ("a" * 16, 0), ())


@given(NUMBERS, TOKENS)
def test_named_readers_are_restored_from_their_number(number: int, token: int) -> None:
    for readers in (Readers(), Readers.bound(0, number), Readers.bound(token, number)):
        assert 0 <= readers.stored_epoch(number) <= NUMBER_MAX
        assert consumer_of("@archive", number, readers.stored_epoch(number)) == readers
        assert readers.admits(token, number)


@given(NUMBERS, st.integers(0, NUMBER_MAX))
def test_any_number_of_an_earlier_release_is_read(number: int, opening: int) -> None:
    readers = consumer_of("@archive", number, opening)
    assert isinstance(readers, Readers)
    assert readers.used == (opening >= number)
    assert readers.stored_epoch(number) == (opening if opening >= number else 0)


@given(TOKENS, TOKENS)
def test_a_session_admits_its_epoch_and_later_ones(epoch: int, opening: int) -> None:
    assert consumer_of("archive", 7, epoch) == Session(epoch)
    assert Session(epoch).admits(opening, 7) == (opening >= epoch)


def test_a_subscription_ended_by_an_operator_has_no_readers_and_a_permanent_number() -> None:
    named = subscription_of("@archive", ROW)
    assert named.consumer == Readers(used=True, checkpoint=2)
    named.end()
    assert (named.on, named.cursor.backlog, named.consumer, named.epoch) == (False, (), Readers(), 0)
    own = subscription_of("archive", ROW)
    own.end()
    assert (own.number, own.epoch) == (named.number, 9)
    assert own.outdates(ROW.number, 9)
    last = subscription_of("@archive", ROW._replace(number=NUMBER_MAX - 1, epoch=NUMBER_MAX))
    last.end()
    assert last.epoch <= NUMBER_MAX
