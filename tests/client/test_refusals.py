"""The sentences for a key that a proxy refuses: one form for all, with the remedy of the one that asks."""

from __future__ import annotations

import pytest

from pubsub.client.refusals import Asker
from pubsub.messenger import Refusal
from pubsub.security.keys import format_public
from pubsub.security.pairs import new_pair
from pubsub.spark.identity import Identity

PROXY = "tcp://127.0.0.1:5601"
PAIR, THEIRS = new_pair(), new_pair().public
KEY, EXPECTED = format_public(PAIR.public), format_public(THEIRS)


@pytest.mark.parametrize(
    ("refusal", "sentence"),
    [
        (Refusal.KEY_WANTED, f"{PROXY} wants a key: pubsub keys new client alice"),
        (
            Refusal.KEY_UNKNOWN,
            f"proxy {PROXY} does not know the key {KEY[:11]}… of client alice: pubsub keys"
            f" authorize client alice {KEY}",
        ),
        (Refusal.KEY_MISSING, f"{PROXY} has no key; one is named in the proxies file, {EXPECTED}: not used"),
        (
            Refusal.KEY_DIFFERS,
            f"{PROXY} closed the handshake: its key is not the one in the proxies file, {EXPECTED}",
        ),
    ],
)
def test_each_refusal_has_its_sentence_and_its_remedy(refusal: Refusal, sentence: str) -> None:
    assert Asker("alice", PAIR).sentence(refusal, PROXY, [THEIRS]) == sentence


def test_every_refusal_of_a_client_without_a_key_asks_for_one() -> None:
    for refusal in Refusal:
        assert Asker("alice").sentence(refusal, PROXY) == f"{PROXY} wants a key: pubsub keys new client alice"


def test_a_command_and_a_query_name_their_own_remedies() -> None:
    command = Asker(pair=PAIR, rights=" --status --operate")
    said = command.sentence(Refusal.KEY_UNKNOWN, PROXY)
    assert said.endswith(f"{KEY[:11]}…: pubsub keys authorize client ID {KEY} --status --operate")
    with Identity(client="etl").connect([PROXY], 1.0) as query:
        assert "option keyFile" in query.asker.sentence(Refusal.KEY_WANTED, PROXY)
        assert str(query.asker.key_refused(["a", "b"])).startswith("a; b; then start the query again")
