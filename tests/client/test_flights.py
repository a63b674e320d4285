"""Transmissions that may still be answered."""

from __future__ import annotations

from puts import flying, make

from pubsub.client.core.flights import Flights
from pubsub.client.core.retries import Retries
from pubsub.client.core.subscription import Subscription


def test_a_token_is_answered_once() -> None:
    flights = Flights()
    chain, (row, *_) = flying(make(), 1)
    token = flights.add(chain, row, chain.generation, 1)
    flight = flights.completed(token)
    assert flight is not None
    assert (flight.target, flight.row, flight.proxy) == (chain, row, 1)
    assert flights.completed(token) is None
    assert len(flights) == 0


def test_a_forgotten_token_is_reported_once_and_only_if_it_was_open() -> None:
    flights = Flights()
    chain, (row, *_) = flying(make(), 1)
    tokens = [flights.add(chain, row, 0, 0) for _ in range(3)]
    flights.completed(tokens[1])
    first, _, last = tokens
    flights.forget(tokens)
    assert (flights.forgotten, tokens, flights.get(first)) == ([first, last], [], None)


def test_puts_differ_from_requests_of_subscriptions() -> None:
    flights = Flights()
    chain, (row, *_) = flying(make(), 1)
    flights.add(Subscription("c", "t", Retries(1, 3, 0.1), lambda topic: {}), None, 0, 0)
    put = flights.add(chain, row, 0, 0)
    assert flights.of_puts() == [put]


def test_the_oldest_tokens_beyond_the_limit_are_forgotten() -> None:
    flights, tokens = Flights(), list[int]()
    chain, (row, *_) = flying(make(), 1)
    made = [flights.add(chain, row, 0, 0) for _ in range(3)]
    for token in made:
        flights.keep(tokens, token, 2)
    assert (tokens, flights.forgotten) == (made[1:], made[:1])
    flights.keep(tokens, made[0], 1)
    assert tokens == made[:1]
    assert flights.forgotten == made
