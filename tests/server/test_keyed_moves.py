"""Topics on their way while servers have, get or lose keys; and the allowed statements to another server."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from pubsub.protocol import Merge, Operate, Outcome, Status, Transfer
from pubsub.protocol.names import keyed_endpoint
from pubsub.server.state.replies import LISTENER, Origin, Outgoing
from tests.server.moving import ADDRESS, Pair, split, take
from tests.server.stage import Stage
from tests.server.stage import put as make_put

LOG = "a" * 16


class Keyed(Pair):
    """Servers that reach each other as processes do: with keys only by an address with the ID that has the key there,
    without keys only by one that has none.
    """

    def __init__(self, directory: Path, *names: str, keys: bool) -> None:
        self.place = {name: ADDRESS[name] for name in names}
        self.keys = keys
        super().__init__(directory, *names)
        self.tell()

    def address(self, name: str) -> str:
        return keyed_endpoint(name, self.place[name]) if self.keys else self.place[name]

    def tell(self) -> None:
        for name, stage in self.stages.items():
            stage.core.proxies.address = self.address(name)

    def start_again(self, *, keys: bool) -> None:
        """All servers are stopped, given keys or rid of them, and started."""
        self.keys = keys
        for stage in self.stages.values():
            stage.restart()
        self.tell()

    def carry(self, name: str, stage: Stage, out: Outgoing) -> None:
        if not (isinstance(out.link, str) or out.link == LISTENER):
            return
        step = out.message.step if isinstance(out.message, Transfer) else "refusal"
        self.steps.append(step)
        if step in self.lose:
            return
        if isinstance(out.link, str):
            for to, receiver in self.stages.items():
                if out.link == self.address(to):
                    origin = Origin(LISTENER, name.encode(), out.source, name if self.keys else None)
                    receiver.core.handle(origin, out.message, receiver.now)
        else:
            giver = self.stages[out.origin.decode()]
            giver.core.handle(Origin(self.address(name), b"", out.destination), out.message, giver.now)

    def merge(self, giver: str, receiver: str, topic: str = "t") -> None:
        self[giver].core.handle(Origin(0, b"", 0), Merge("p1", topic, self.address(receiver)), self[giver].now)


@pytest.fixture
def pair(tmp_path: Path) -> Iterator[Keyed]:
    made = Keyed(tmp_path, "s1", "s2", keys=False)
    yield made
    made.close()


def arrives(pair: Keyed) -> None:
    """The topic that s2 was giving to s1 is there, once and whole."""
    assert pair.holders() == ["s1"]
    assert take(pair["s1"], "bob") == [b"alice1", b"alice2", b"carl1", b"carl2"]
    assert take(pair["s1"], "eve") == [b"carl1", b"carl2", b"alice1", b"alice2"]


@pytest.mark.parametrize("lost", ["chunk", "commit", "done"])
@pytest.mark.parametrize("keys", [True, False], ids=["keys come", "keys go"])
def test_a_topic_on_its_way_at_a_change_of_keys_arrives(pair: Keyed, lost: str, keys: bool) -> None:
    split(pair)
    pair.start_again(keys=not keys)
    pair.turns(3)
    pair.lose = {lost}
    pair.merge("s2", "s1")
    pair.turns(6)
    pair.lose = set()
    pair.start_again(keys=keys)
    pair.turns(30)
    assert pair.holders() == ["s1", "s2"], "the address that was noted leads nowhere"
    pair.merge("s2", "s1")  # Proxies say it again, as long as there are two holders.
    pair.turns(20)
    arrives(pair)


@pytest.mark.parametrize("keys", [True, False], ids=["keys come", "keys go"])
def test_a_repeated_move_of_an_operator_continues_after_a_change_of_keys(pair: Keyed, keys: bool) -> None:
    """A server that holds nothing of the topic is named by no MERGE."""
    pair.start_again(keys=not keys)
    pair["s2"].put("t", 1, [b"a"])
    pair.lose = {"chunk"}
    move(pair)
    pair.turns(5)
    assert pair["s2"].core.state.topics["t"].frozen == pair.address("s1")
    pair.lose = set()
    pair.start_again(keys=keys)
    pair.turns(20)
    assert pair.holders() == ["s2"]
    move(pair)
    pair.turns(20)
    assert pair.holders() == ["s1"]


def move(pair: Keyed) -> None:
    """An operator has s2 give the topic to s1."""
    asked = Operate("op", "s2", "move", topic="t", server="s1", address=pair.address("s1"))
    callback = pair["s2"].say(asked)
    pair.turn()
    assert pair["s2"].answered(callback).outcome is Outcome.SUCCESS


@pytest.mark.parametrize("keys", [True, False], ids=["keys come", "keys go"])
def test_two_servers_that_froze_a_topic_for_each_other_recover_after_a_change_of_keys(pair: Keyed, keys: bool) -> None:
    split(pair)
    pair.start_again(keys=not keys)
    for giver, receiver in (("s1", "s2"), ("s2", "s1")):
        pair[giver].core.state.topics["t"].freeze(pair.address(receiver))
        pair[giver].loop()
    pair.start_again(keys=keys)
    pair.turns(20)
    assert pair.holders() == ["s1", "s2"]
    for _ in range(2):
        pair.merge("s2", "s1")
        pair.merge("s1", "s2")
        pair.turns(20)
    assert len(pair.holders()) == 1


def test_a_receiver_with_a_key_is_recognized_at_another_address_after_the_givers_restart(pair: Keyed) -> None:
    """The note names whose key it is; that of a server without a key names a place only."""
    split(pair)
    pair.start_again(keys=True)
    pair.turns(3)
    pair.lose = {"chunk"}
    pair.merge("s2", "s1")
    pair.turns(6)
    pair.lose = set()
    pair.place["s1"] = "tcp://127.0.0.1:21"
    pair.start_again(keys=True)
    pair.turns(20)
    pair.merge("s2", "s1")
    pair.turns(20)
    arrives(pair)


def test_a_topic_frozen_for_a_server_is_given_to_no_other_server_at_its_address(tmp_path: Path) -> None:
    trio = Keyed(tmp_path, "s1", "s2", "s3", keys=True)
    split(trio)
    trio["s3"].put("t", 1, sender="dan")
    trio.lose = {"done"}
    trio.merge("s2", "s1")
    trio.turns(6)
    trio.lose = set()
    away = trio.stages.pop("s1")
    trio.place["s3"] = trio.place["s1"]
    trio.start_again(keys=True)
    for _ in range(3):
        trio.turns(10)
        trio.merge("s2", "s3")
    assert trio["s2"].core.state.topics["t"].frozen == keyed_endpoint("s1", ADDRESS["s1"])
    assert trio["s3"].core.state.counters["topics_merged"] == 0
    trio.stages["s1"] = away
    trio.close()


def given_up(stage: Stage, server: str, address: str) -> None:
    stage.say(
        Operate("p1", "s2", "abandoned", topic="t", server=server, address=address, log="d" * 16),
        origin=b"",
        callback=0,
    )
    stage.loop()


@pytest.mark.parametrize("dirty", [True, False], ids=["noted with keys", "noted without"])
@pytest.mark.parametrize("told", [True, False], ids=["told with keys", "told without"])
def test_a_topic_whose_receiver_is_abandoned_is_taken_back_under_any_form_of_address(
    pair: Keyed, dirty: bool, told: bool
) -> None:
    pair.start_again(keys=dirty)
    pair["s2"].put("t", 1, [b"a"])
    pair.lose = {"chunk"}
    pair.merge("s2", "s1")
    pair.turns(5)
    assert pair["s2"].core.state.topics["t"].frozen == pair.address("s1")
    pair.start_again(keys=told)
    given_up(pair["s2"], "s1", pair.address("s1"))
    assert pair["s2"].core.state.topics["t"].frozen == ""


def test_abandoning_an_earlier_server_of_that_address_does_not_end_the_freeze(pair: Keyed) -> None:
    pair.start_again(keys=True)
    pair["s2"].put("t", 1, [b"a"])
    pair.lose = {"chunk"}
    pair.merge("s2", "s1")
    pair.turns(5)
    for address in (ADDRESS["s1"], keyed_endpoint("s7", ADDRESS["s1"]), ""):
        given_up(pair["s2"], "s7", address)
    assert pair["s2"].core.state.topics["t"].frozen == pair.address("s1")


# Who may say what


def offer(sender: str) -> Transfer:
    return Transfer(sender, "t", "offer", "1" * 16, 0, LOG)


@pytest.mark.parametrize("speaker", ["s3", ""], ids=["another's key", "a key that is not authorized any more"])
def test_a_transfer_under_an_id_of_another_key_is_refused(stage: Stage, speaker: str) -> None:
    stage.core.handle(Origin(LISTENER, b"x", 7, speaker), offer("s2"), stage.now)
    assert stage.core.state.counters["servers_under_a_wrong_name"] == 1
    assert not stage.core.moves.receiving.incoming
    stage.loop()
    assert stage.answer(7) is None


@pytest.mark.parametrize("speaker", ["s2", None], ids=["with keys", "without"])
def test_a_transfer_under_its_own_id_is_accepted(stage: Stage, speaker: str | None) -> None:
    stage.core.handle(Origin(LISTENER, b"x", 7, speaker), offer("s2"), stage.now)
    assert stage.core.state.counters["servers_under_a_wrong_name"] == 0
    assert stage.core.moves.receiving.incoming


@pytest.mark.parametrize("speaker", ["s2", None], ids=["with keys", "without"])
def test_only_transfers_are_served_at_a_servers_address(stage: Stage, speaker: str | None) -> None:
    for message in (make_put("t", 1), Merge("p1", "t", "tcp://h:1"), Operate("p1", "s1", "drain")):
        stage.core.handle(Origin(LISTENER, b"x", 7, speaker), message, stage.now)
        stage.loop()
        assert stage.answered(7).outcome is Outcome.REFUSED
    assert not stage.core.state.topics
    assert not stage.core.proxies.draining


def test_a_peer_that_is_not_authorized_any_more_gets_no_answer(stage: Stage) -> None:
    origin = Origin(LISTENER, b"x", 7, "")
    stage.core.handle(origin, make_put("t", 1), stage.now)
    stage.core.refuse(origin, "not understood", stage.now)
    stage.loop()
    assert stage.answer(7) is None
    assert stage.core.state.counters["servers_under_a_wrong_name"] == 2


@pytest.mark.parametrize("answer", ["accepted", "done", "refusal"])
def test_an_answer_under_another_id_than_the_requested_one_is_ignored(pair: Keyed, answer: str) -> None:
    pair.start_again(keys=True)
    giver = pair["s2"]
    giver.put("t", 1, [b"a"])
    del pair.stages["s1"]
    giver.core.handle(Origin(0, b"", 0), Merge("p1", "t", pair.address("s1")), giver.now)
    sent = next(out for out in giver.loop() if isinstance(out.message, Transfer))
    assert isinstance(sent.message, Transfer)
    reply: Transfer | Status = Transfer("s3", "t", answer, sent.message.transfer)
    if answer == "refusal":
        reply = Status("s3", Outcome.MOVED, reason="tcp://s3@127.0.0.1:13", server="s3")
    giver.core.handle(Origin(str(sent.link), b"", sent.source), reply, giver.now)
    giver.loop()
    assert giver.core.state.counters["servers_under_a_wrong_name"] == 1
    assert giver.core.state.topics["t"].frozen == ""
    assert giver.core.moves.giving.gifts["t"].address == pair.address("s1")
    giver.close()


def test_transfers_of_a_server_that_is_not_authorized_any_more_end(stage: Stage) -> None:
    for giver in ("s2", "s3"):
        stage.core.handle(Origin(LISTENER, b"x", 7, giver), offer(giver), stage.now)
    stage.loop()
    stage.core.moves.receiving.drop_givers(lambda server: server != "s2")
    assert {giver for _, giver in stage.core.moves.receiving.incoming} == {"s3"}
