"""Which announcements are believed: every row of the table in `admission`.

The rules are those of docs/explanation/ownership.md, O4, O5 and O6.
"""

from __future__ import annotations

from pubsub.protocol import Outcome, Status
from tests.proxy.stage import Stage, log_id


def outcome(answer: Status | None) -> str:
    return "" if answer is None else answer.outcome.value


def test_a_server_is_accepted_at_its_first_full_announcement() -> None:
    stage = Stage()
    answer = stage.announce("s1", {"t": "x"}, change=7)
    assert answer is not None
    assert (answer.outcome, answer.change) == (Outcome.SUCCESS, 7)
    assert stage.get("t") == "-> s1"


def test_a_partial_announcement_of_an_unknown_server_makes_the_proxy_ask_for_all() -> None:
    stage = Stage()
    assert outcome(stage.announce("s1", {"t": "x"}, partial=1)) == "announce"
    assert stage.get("t").startswith("unknown")


def test_an_older_announcement_is_dropped_without_an_answer() -> None:
    stage = Stage()
    stage.announce("s1", {"t": "x"}, change=7)
    assert stage.announce("s1", {}, change=6) is None
    assert stage.get("t") == "-> s1"
    assert stage.core.counters["announcements_late"] == 1


def test_the_same_announcement_again_changes_nothing() -> None:
    stage = Stage()
    stage.announce("s1", {"t": "x"}, change=7)
    stage.core.table.changes.clear()
    assert outcome(stage.announce("s1", {"t": "x"}, change=7)) == "success"
    assert not stage.core.table.changes


def test_a_second_server_with_the_same_id_waits_until_the_first_is_silent() -> None:
    stage = Stage()
    stage.announce("s1", {"t": "x"})
    assert outcome(stage.announce("s1", {"t": "y"}, store="other", link=b"new")) == "taken"
    assert stage.get("t") == "-> s1"
    stage.sleep(2.5)
    assert outcome(stage.announce("s1", {"t": "y"}, store="other", link=b"new")) == "taken"
    stage.sleep(1.0)
    assert outcome(stage.announce("s1", {"u": "y"}, store="other", link=b"new")) == "success"
    assert stage.get("u") == "-> new"
    expected = f"unavailable server_s1_with_store_{log_id('s1')}_sends_no_heartbeats"
    assert stage.get("t") == expected, "the other store's topics are not inherited"


def test_a_copied_data_directory_waits_until_the_original_is_silent() -> None:
    stage = Stage()
    stage.announce("s1", {"t": "x"}, change=5)
    assert outcome(stage.announce("s9", {"t": "x"}, store="s1", incarnation=2, change=5, link=b"s9")) == "taken"
    stage.sleep(2.0, "s1")
    assert outcome(stage.announce("s9", {"t": "x"}, store="s1", incarnation=2, change=5, link=b"s9")) == "taken"


def test_a_second_link_of_a_server_makes_the_proxy_probe_the_old_one_first() -> None:
    stage = Stage()
    stage.announce("s1", {"t": "x"})
    stage.sleep(1.0)
    stage.announce("s1", {"t": "x"}, incarnation=2, link=b"new")
    stage.from_server(b"new", b"", _periodic(incarnation=2))
    probe, taken = stage.said()
    assert (probe.link, type(probe.message).__name__) == (b"s1", "Heartbeat")
    assert (taken.link, getattr(taken.message, "outcome", None)) == (b"new", Outcome.TAKEN)


def _periodic(incarnation: int) -> object:
    from pubsub.protocol import Periodic

    return Periodic("s1", log_id("s1"), incarnation, 1, "a", "p", 0, 0, {})


def test_a_restarted_server_is_accepted_as_soon_as_its_old_link_is_closed() -> None:
    stage = Stage()
    stage.announce("s1", {"t": "x"})
    assert outcome(stage.announce("s1", {"t": "x"}, incarnation=2, link=b"new")) == "taken"
    stage.core.servers.presence.unreachable(b"s1", stage.now)
    (asked,) = stage.said()
    assert (asked.link, getattr(asked.message, "outcome", None)) == (b"new", Outcome.ANNOUNCE)
    assert outcome(stage.announce("s1", {"t": "x"}, incarnation=2, link=b"new")) == "success"
    assert stage.get("t") == "-> new"
    assert stage.said() == [], "who was let in is not asked again"


def test_the_same_process_may_come_over_a_new_link_at_once() -> None:
    stage = Stage()
    stage.announce("s1", {"t": "x"})
    assert outcome(stage.announce("s1", {"t": "x"}, link=b"again")) == "success"
    assert stage.get("t") == "-> again"
    assert stage.heartbeat("s1", link=b"s1") is not None, "the old link is a stranger's now"


def test_a_late_message_on_the_old_link_does_not_restore_that_link() -> None:
    stage = Stage()
    stage.announce("s1", {"t": "x"}, change=5)
    stage.announce("s1", {"t": "x"}, change=6, link=b"again")
    assert stage.announce("s1", {}, change=5, link=b"s1") is None
    assert stage.get("t") == "-> again"


def test_a_store_restored_from_an_older_copy_is_stale() -> None:
    stage = Stage()
    stage.announce("s1", {"t": "x"}, change=9)
    stage.sleep(4.0)
    answer = stage.announce("s1", {}, incarnation=2, change=8, link=b"new")
    assert answer is not None
    assert (answer.outcome, answer.change) == (Outcome.STALE, 9)
    assert stage.get("t") == "unavailable server_s1_sends_no_heartbeats"


def test_an_older_incarnation_is_refused_as_taken_and_as_stale_once_it_is_alone() -> None:
    stage = Stage()
    stage.announce("s1", {"t": "x"}, incarnation=2, change=5, link=b"newer")
    assert outcome(stage.announce("s1", {"t": "x"}, incarnation=1, change=9, link=b"older")) == "taken"
    stage.sleep(4.0)
    assert outcome(stage.announce("s1", {"t": "x"}, incarnation=1, change=9, link=b"older")) == "stale"


def test_stale_is_known_after_a_restart_of_the_proxy() -> None:
    stage = Stage()
    stage.announce("s1", {"t": "x"}, incarnation=1, change=9)
    changes = stage.core.table.changes
    from pubsub.proxy.remembered import Remembered

    rows = [row for row in changes.stores.values() if row is not None]
    again = Stage(remembered=Remembered(rows, [(t, s, log) for (t, s), log in changes.holders.items() if log]))
    assert outcome(again.announce("s1", {}, incarnation=2, change=3)) == "stale"
    assert outcome(again.announce("s1", {"t": "x"}, incarnation=2, change=9)) == "success"


def test_a_store_may_return_under_another_server_id_with_its_topics() -> None:
    stage = Stage()
    stage.announce("s1", {"t": "x"}, change=4)
    stage.sleep(4.0)
    assert outcome(stage.announce("s9", {"t": "x"}, store="s1", incarnation=2, change=4)) == "success"
    assert stage.get("t") == "-> s9"
    assert not stage.core.table.contested
    assert "which was server s1, is server s9 now" in stage.log()


def test_a_link_cannot_become_another_server() -> None:
    stage = Stage()
    stage.announce("s1", {"t": "x"})
    assert outcome(stage.announce("s2", {"t": "x"}, link=b"s1")) == "refused"
    assert outcome(stage.announce("s1", {"t": "x"}, store="s2", link=b"s1")) == "refused"
    assert stage.get("t") == "-> s1"


def test_parts_that_follow_each_other_are_applied() -> None:
    stage = Stage()
    stage.announce("s1", {"a": "x"}, change=5)
    assert outcome(stage.announce("s1", {"b": "y"}, change=8, partial=1, previous=5)) == "success"
    assert outcome(stage.announce("s1", {"a": ""}, change=9, partial=1)) == "success"
    assert (stage.get("a").split()[0], stage.get("b")) == ("unknown", "-> s1")


def test_a_part_after_a_gap_is_applied_and_the_full_announcement_is_requested() -> None:
    stage = Stage()
    stage.announce("s1", {"a": "x"}, change=5)
    assert outcome(stage.announce("s1", {"c": "z"}, change=9, partial=1, previous=7)) == "announce"
    assert stage.get("c") == "-> s1"
    assert stage.whole("s1", "a").reason == "an_announcement_is_missing"
    assert outcome(stage.announce("s1", {"d": "z"}, change=10, partial=1, previous=9)) == "announce"
    assert outcome(stage.announce("s1", {"a": "x", "b": "y", "c": "z"}, change=10)) == "success"
    assert stage.whole("s1", "a").outcome is Outcome.SUCCESS


def test_a_restarted_server_must_announce_all_topics_first() -> None:
    stage = Stage()
    stage.announce("s1", {"t": "x"})
    stage.sleep(4.0)
    assert outcome(stage.announce("s1", {}, incarnation=2, change=2, partial=1, link=b"new")) == "announce"


def test_a_server_beyond_the_limit_is_refused_unless_one_left_without_topics() -> None:
    stage = Stage(servers_max=2)
    stage.announce("s1", {"t": "x"})
    stage.announce("s2", {})
    assert outcome(stage.announce("s3", {})) == "full"
    stage.heartbeat("s2", leaving=1)
    assert outcome(stage.announce("s3", {})) == "success"
    stage.heartbeat("s1", leaving=1)
    assert outcome(stage.announce("s4", {})) == "full", "what s1 holds must stay remembered"


def test_a_store_under_another_id_ends_no_server_with_its_old_id() -> None:
    stage = Stage()
    stage.announce("s1", {"t": "x"})
    stage.heartbeat("s1", leaving=1)
    stage.announce("s1", {"u": "y"}, store="other", link=b"new")
    assert outcome(stage.announce("s2", {"t": "x"}, store="s1", incarnation=2, link=b"s2")) == "success"
    assert (stage.get("t"), stage.get("u")) == ("-> s2", "-> new")


def test_a_store_under_the_id_of_a_silent_server_stays_when_that_server_returns() -> None:
    stage = Stage()
    stage.announce("s1", {"t": "x"})
    stage.announce("s2", {"u": "y"})
    stage.sleep(4.0)
    assert outcome(stage.announce("s2", {"t": "x"}, store="s1", incarnation=2, link=b"new")) == "success"
    assert outcome(stage.heartbeat("s2")) == "announce", "it is nobody's link any more"
    assert outcome(stage.announce("s2", {"u": "y"}, change=2)) == "taken"
    assert outcome(stage.announce("s2", {"t": "x"}, store="s1", incarnation=2, change=2, link=b"new")) == "success"
