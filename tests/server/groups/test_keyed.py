"""A keyed group: parts, their order, and how they go from one member to another."""

from __future__ import annotations

from zlib import crc32

import pytest

from pubsub.protocol.group_bodies import Range, Say, Tried, part_of
from tests.server.groups.workers import Given, Worker, act, another, facts, fill, filled, log_of
from tests.server.stage import STORE, Stage


def part(number: int, parts: int, keys: int) -> int:
    return part_of(f"k{number % keys}".encode(), f"alice/{STORE}", parts)


def in_order(given: Given, parts: int) -> dict[int, list[int]]:
    """The numbers of the records of each part, as they came."""
    out: dict[int, list[int]] = {}
    for place, body in given.records.items():
        of = part_of(given.keys[place], given.publishers[place], parts)
        out.setdefault(of, []).append(int(body))
    return out


def test_a_range_has_the_records_of_its_part_alone(stage: Stage) -> None:
    one = filled(stage, 20, "keyed", parts=3, keys=6)
    log = log_of(stage)
    given = one.work(100)
    assert len(given.records) == 20
    assert {held.part for held in given.held} == {part(n, 3, 6) for n in range(1, 21)}
    for of, numbers in in_order(given, 3).items():
        assert numbers == [n for n in range(1, 21) if part(n, 3, 6) == of]
        assert (log, of) in {(held.log, held.part) for held in given.held}
    assert facts(stage, "members")["members"][0]["claimed"] == 20


def test_nothing_waits_as_soon_as_all_is_given(stage: Stage) -> None:
    one = filled(stage, 20, "keyed", parts=8, keys=6)
    assert facts(stage)["waiting"] > 0
    given = one.work(100)
    assert facts(stage)["waiting"] == 0
    one.work(100, done=given.held)
    assert facts(stage)["waiting"] == 0
    fill(stage, 21, 22, keys=6)
    assert facts(stage)["waiting"] > 0


def test_what_goes_back_comes_first_again(stage: Stage) -> None:
    """The rule is docs/explanation/groups.md, GR16."""
    one = filled(stage, 12, "keyed", parts=1, keys=2)
    log = log_of(stage)
    one.work(6)
    given = one.work(4, done=[Range(log, 1, 3, 0)], keep=[Range(log, 3, 5, 0)])
    assert given.bodies == [b"5", b"6", b"7", b"8"]
    assert given.held == (Range(log, 3, 9, 0),)


def test_a_part_with_claims_is_one_members_alone(stage: Stage) -> None:
    """The rule is docs/explanation/groups.md, GR16."""
    one = filled(stage, 8, "keyed", parts=1)
    log = log_of(stage)
    one.work(2)
    two = another(one, "w2")
    assert two.work(9).records == {}
    assert two.work(0, claim=False, wait_ms=0).lines == ()
    refused = Given(two.status(Say(claim=(Range(log, 3, 4, 0),))))
    assert refused.held == ()
    one.work(0, done=[Range(log, 1, 3, 0)])
    assert two.work(2).bodies == [b"3", b"4"]


def test_only_the_front_of_a_part_is_claimed(stage: Stage) -> None:
    """The rule is docs/explanation/groups.md, GR16."""
    one = filled(stage, 4, "keyed", parts=1)
    log = log_of(stage)
    one.work(2, claim=False)
    assert Given(one.status(Say(claim=(Range(log, 2, 3, 0),), offered=(Range(log, 1, 2, 0),)))).held == ()
    assert Given(one.status(Say(claim=(Range(log, 1, 2, 0),)))).held == (Range(log, 1, 2, 0),)


def test_a_failed_record_holds_up_its_part_and_no_other(stage: Stage) -> None:
    one = filled(stage, 12, "keyed", parts=3, keys=6)
    log = log_of(stage)
    given = one.work(12)
    failing = part(5, 3, 6)
    first = min(n for n in range(1, 13) if part(n, 3, 6) == failing)
    kept = [held for held in given.held if held.part != failing]
    answer = one.work(99, keep=kept, tried=[Tried(log, first, 1)])
    assert list(answer.held) == kept
    assert kept
    stage.sleep(1.1)
    answer = one.work(99, keep=kept)
    assert in_order(answer, 3)[failing][0] == first


def test_a_member_without_work_takes_a_part_of_one_with_several(stage: Stage) -> None:
    one = filled(stage, 40, "keyed", parts=8, keys=40)
    given = one.work(4)
    parts = {part(number, 8, 40) for number in range(1, 41)}
    assert len(parts) > 3
    two = another(one, "w2")
    seen: set[int] = set()
    for _ in range(4):
        answer = two.work(1, keep=two_held(stage, "w2"))
        seen |= {held.part or 0 for held in answer.held}
    assert seen
    assert seen.isdisjoint(held.part for held in given.held)


def two_held(stage: Stage, client: str) -> list[Range]:
    group = stage.core.state.topics["t"].groups["billing"]
    member = group.members.get((client, f"{crc32(client.encode()):016x}"))
    return [Range(log, low, high, of) for of, log, low, high in (member.pieces() if member else ())]


def test_a_part_that_moves_is_given_when_its_last_claim_is_done(stage: Stage) -> None:
    one = filled(stage, 30, "keyed", parts=3, keys=30)
    given = one.work(1000)
    fill(stage, 31, 60, keys=30)
    two = another(one, "w2")
    waits = two.send(records_max=1000, claim=1, wait_ms=30_000)
    stage.loop()
    moved = one.work(1000, done=given.held)
    assert len(moved.held) == 2
    assert len(Given(stage.answered(waits)).offered) == 1  # It has waited, so it gets no claim (GR27).


def test_records_without_a_key_keep_the_order_of_their_publisher(stage: Stage) -> None:
    one = filled(stage, 5, "keyed", parts=16)
    fill(stage, 1, 5, sender="bob")
    given = one.work(100)
    found = in_order(given, 16)
    assert sorted(found) == sorted({part_of(b"", f"{who}/{STORE}", 16) for who in ("alice", "bob")})


def test_a_keyed_group_goes_on_after_a_restart_of_the_server(stage: Stage) -> None:
    one = filled(stage, 20, "keyed", parts=4, keys=8)
    given = one.work(10)
    stage.restart()
    again = one.work(100, keep=given.held)
    assert {int(body) for body in (*given.bodies, *again.bodies)} == set(range(1, 21))
    assert not set(given.bodies) & set(again.bodies)


def test_parts_without_records_do_not_hold_the_log(stage: Stage) -> None:
    one = filled(stage, 6, "keyed", parts=64)
    log = log_of(stage)
    given = one.work(100)
    one.work(0, done=given.held)
    stage.sleep(25)
    assert stage.core.state.topics["t"].floors()[log] == 7


def test_a_shared_group_becomes_keyed_while_it_holds_nothing(stage: Stage) -> None:
    one = filled(stage, 12, keys=6)
    log = log_of(stage)
    one.work(4)
    refused = act(stage, "change", one.subscription, mode="keyed", parts=4)
    assert refused.reason == "not_empty"
    one.work(0, done=[Range(log, 1, 5)])
    before = one.subscription
    for _ in range(2):  # A repeat changes nothing.
        assert act(stage, "change", before, mode="keyed", parts=4).outcome.value == "success"
    assert act(stage, "change", before, mode="keyed", parts=5).outcome.value == "superseded"
    assert one.subscribe("keyed", parts=4).number == before + 1
    given = one.work(100)
    assert sorted(map(int, given.bodies)) == list(range(5, 13))
    assert all(held.part is not None for held in given.held)
    stage.restart()
    assert one.work(0, keep=given.held).held == given.held


def test_a_released_part_is_handed_out_in_order_with_the_mark(stage: Stage) -> None:
    one = filled(stage, 6, "keyed", parts=1)
    one.work(3)
    stage.sleep(4)
    member = facts(stage, "members")["members"][0]
    act(stage, "release", one.subscription, member="w1", store=one.store, number=member["number"])
    two = another(one, "w2")
    given = two.work(9)
    assert given.bodies == [b"1", b"2", b"3", b"4", b"5", b"6"]
    assert [line.doubtful for line in given.lines] == [True, False]


def test_a_worker_of_a_shared_group_names_no_parts(stage: Stage) -> None:
    one = filled(stage, 2)
    log = log_of(stage)
    assert one.status(Say(done=(Range(log, 1, 2, 0),))).outcome.value == "refused"
    keyed = Worker(stage, "w1", group="other")
    keyed.subscribe("keyed", parts=2)
    assert keyed.status(Say(done=(Range(log, 1, 2),))).outcome.value == "refused"
    assert keyed.status(Say(done=(Range(log, 1, 2, 2),))).outcome.value == "refused"


def test_members_of_a_group_that_becomes_keyed_have_to_join_it_again(stage: Stage) -> None:
    """A member of the shared group would take ranges of parts for ranges without a record (GR30)."""
    one = filled(stage, 0)
    one.work()
    waits = one.send(records_max=5, wait_ms=30_000)
    stage.loop()
    assert act(stage, "change", one.subscription, mode="keyed", parts=4).outcome.value == "success"
    told = stage.answered(waits)
    assert (told.outcome.value, told.reason, told.number) == (
        "superseded",
        "the_group_was_made_again",
        one.subscription + 1,
    )
    assert one.status(records_max=5).reason == "the_group_was_made_again"


def test_a_lost_record_is_told_after_those_before_it_are_claimed(stage: Stage) -> None:
    """The rule is docs/explanation/groups.md, GR16."""
    one = filled(stage, 4, "keyed", parts=1)
    log = log_of(stage)
    topic = stage.core.state.topics["t"]
    stage.store.db.execute("update batch set body = null where key = ?", (topic.open.number << 40 | 2,))
    stage.store.reader.begin()
    given = one.work(9, claim=False)
    assert (given.lost, given.offered, given.bodies) == ((), (Range(log, 1, 2, 0),), [b"1"])
    given = Given(one.status(Say(claim=given.offered), records_max=9))
    assert (given.held, given.lost) == ((Range(log, 1, 2, 0),), (Range(log, 2, 3, 0),))
    assert (given.offered, given.bodies) == ((Range(log, 3, 5, 0),), [b"3", b"4"])


def test_a_batch_that_is_repaired_after_its_part_went_on_is_told_as_lost(
    stage: Stage, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A client would take the record of another part for none, and tell the range as done."""
    one = filled(stage, 12, "keyed", parts=3, keys=12)
    log, state = log_of(stage), stage.core.state
    lost = crc32(log.encode()) % 3
    number = next(n for n in range(1, 13) if part(n, 3, 12) != lost)
    key = (state.topics["t"].open.number << 40 | number,)
    (body,) = stage.store.db.execute("select body from batch where key = ?", key).fetchone()
    monkeypatch.setattr(state, "ask_repair", lambda log, offset: True)
    stage.store.db.execute("update batch set body = zeroblob(9) where key = ?", key)
    stage.store.reader.begin()
    first = one.work(99)
    assert (first.lost, number in map(int, first.bodies)) == ((), False)
    stage.store.db.execute("update batch set body = ? where key = ?", (body, *key))
    stage.store.db.execute("delete from quarantine")
    stage.store.reader.damaged.clear()
    stage.store.reader.drop(key[0])
    stage.store.reader.begin()
    stage.sleep(1)
    rest = one.work(99, keep=first.held)
    assert rest.lost == (Range(log, number, number + 1, lost),)
    assert {*map(int, first.bodies), *map(int, rest.bodies)} == set(range(1, 13)) - {number}


def test_an_offer_ends_when_another_member_claims_in_its_part(stage: Stage) -> None:
    """The rule is docs/explanation/groups.md, GR18."""
    one = filled(stage, 4, "keyed", parts=1)
    log = log_of(stage)
    assert one.work(2, claim=False).offered == (Range(log, 1, 3, 0),)
    two = another(one, "w2")
    assert Given(two.status(Say(claim=(Range(log, 1, 2, 0),)))).held == (Range(log, 1, 2, 0),)
    assert one.work(0, claim=False, offered=[Range(log, 1, 3, 0)]).lines == ()
    assert two.work(9, keep=[Range(log, 1, 2, 0)]).bodies == [b"2", b"3", b"4"]
