"""Deliberate breakages of the rules of trains; each takes one rule out of the shipped code.

They are tried like the others (`table`), and by `test_trains` each with seeds that show it.
"""

from __future__ import annotations

import contextlib
from dataclasses import replace
from typing import Any

import pubsub.client.core.chain
import pubsub.client.core.core
import pubsub.server.requests.puts
from pubsub.protocol.messages import Outcome, Put
from tests.simulation.breakages.room import Room, substitute

TRAIN = "train: "

breakage = Room(TRAIN)


_FINAL = {Outcome.REFUSED, Outcome.DENIED, Outcome.GONE}


@breakage("one answer counts for all its rows")
def _(stack: contextlib.ExitStack) -> None:
    core = pubsub.client.core.core.ClientCore
    original = core._put_answered

    def answered(self: Any, chain: Any, status: Any, flight: Any, now: float) -> None:
        if flight.train and status.last >= 0 and status.outcome not in _FINAL:
            status = replace(status, outcome=Outcome.SUCCESS, last=flight.row.last)
        original(self, chain, status, flight, now)

    substitute(stack, core, "_put_answered", answered)


@breakage("refused, and not sent row by row")
def _(stack: contextlib.ExitStack) -> None:
    core = pubsub.client.core.core.ClientCore
    original = core._put_answered
    substitute(
        stack,
        core,
        "_put_answered",
        lambda self, chain, status, flight, now: original(self, chain, status, flight._replace(train=False), now),
    )


@breakage("a row's previous is not checked")
def _(stack: contextlib.ExitStack) -> None:
    puts = pubsub.server.requests.puts
    original = puts.split_train
    substitute(stack, puts, "split_train", lambda train: [replace(row, previous=0) for row in original(train)])


@breakage("going back leaves rows held")
def _(stack: contextlib.ExitStack) -> None:
    chain = pubsub.client.core.chain.Chain
    original = chain.send_anew

    def send_anew(self: Any) -> None:
        held = list(self.messages)
        original(self)
        self.messages.extend(held)

    substitute(stack, chain, "send_anew", send_anew)


@breakage("known by its first row")
def _(stack: contextlib.ExitStack) -> None:
    """A train of which the first row is a duplicate is called one as a whole."""
    puts = pubsub.server.requests.puts.Puts
    original = puts._rows

    def rows(self: Any, origin: Any, put: Put) -> Any:
        found = original(self, origin, put)
        topic = self._state.topics.get(put.topic)
        number = self._state.publishers.find(f"{put.sender}/{put.publisher}")
        if len(found) > 1 and topic and number and found[0].counter <= topic.last.get(number, 0):
            last = found[-1].counter + found[-1].count - 1
            self._state.replies.answer(origin, Outcome.DUPLICATE, last=last, log=topic.open.id)
            return ()
        return found

    substitute(stack, puts, "_rows", rows)
