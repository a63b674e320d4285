"""HTTP readers that share a topic, at a real gateway (docs/explanation/gateway.md, H16 and H17)."""

from __future__ import annotations

import threading
import time
from pathlib import Path
from typing import Any

import pytest

from pubsub.client import Client, Message, Transaction
from pubsub.web.tokens import digest, new_token
from tests.faults.cluster import Cluster, until
from tests.gateway.serving import Gateway

pytestmark = pytest.mark.slow


def member(topic: str, name: str) -> str:
    return f"/topics/{topic}/groups/g/members/{name}"


def join(gateway: Gateway, topic: str, *names: str, query: str = "") -> None:
    for name in names:
        answer = gateway.ask("PUT", f"{member(topic, name)}{query}")
        assert answer.status_code == 201, answer.text


def poll(gateway: Gateway, topic: str, name: str, most: int = 100, confirm: float = 60.0) -> dict[str, Any]:
    """The next batch of a member, as soon as there is one."""

    def polled() -> dict[str, Any] | None:
        answer = gateway.ask("GET", f"{member(topic, name)}/messages?max={most}&wait=10&confirm={confirm}")
        assert answer.status_code in {200, 204}, answer.text
        return dict(answer.json()) if answer.content else None

    found: dict[str, Any] = until(polled, "a batch came")
    return found


def bodies(batch: dict[str, Any]) -> list[str]:
    return [one["body"] for one in batch["messages"]]


def group(gateway: Gateway, topic: str) -> dict[str, Any]:
    return dict(gateway.ask("GET", f"/topics/{topic}/groups/g").json())


def test_members_share_the_messages_and_each_is_done_once(gateway: Gateway) -> None:
    join(gateway, "shared", "a", "b")
    for number in range(20):
        gateway.put("shared", b"%d" % number)
    seen: list[str] = []
    while len(seen) < 20:
        for name in ("a", "b"):
            answer = gateway.ask("GET", f"{member('shared', name)}/messages?max=5")
            if answer.status_code == 200:
                seen += bodies(answer.json())
                assert gateway.ask("DELETE", answer.json()["confirm"]).status_code == 204
                assert gateway.ask("DELETE", answer.json()["confirm"]).status_code == 204, "it may be repeated"
    assert sorted(seen, key=int) == [str(number) for number in range(20)]
    until(lambda: group(gateway, "shared")["claimed"] == 0, "all are told as done")
    assert group(gateway, "shared")["waiting"] == 0


def test_a_poll_repeats_the_open_batch_and_another_member_gets_other_messages(gateway: Gateway) -> None:
    join(gateway, "repeated", "a", "b")
    gateway.put("repeated", b"one")
    first = poll(gateway, "repeated", "a")
    gateway.put("repeated", b"two")
    assert poll(gateway, "repeated", "a") == first
    other = poll(gateway, "repeated", "b")
    assert (bodies(first), bodies(other)) == (["one"], ["two"])
    assert gateway.ask("GET", member("repeated", "a")).json()["open_batch"] == first["confirm"]
    (message,) = first["messages"]
    assert (message["attempts"], message.get("doubtful")) == (1, None)
    for batch in (first, other):
        gateway.confirm(batch)
    assert gateway.ask("GET", member("repeated", "a")).json()["open_batch"] is None


def test_a_batch_that_is_not_confirmed_in_time_comes_to_another_member_with_the_mark(gateway: Gateway) -> None:
    join(gateway, "late", "a", "b")
    gateway.put("late", b"x")
    first = poll(gateway, "late", "a", confirm=1.0)
    assert first["confirm_seconds"] == 1.0
    second = poll(gateway, "late", "b")
    (message,) = second["messages"]
    assert (message["body"], message["doubtful"], message["attempts"]) == ("x", True, 2)
    assert message["id"] == first["messages"][0]["id"]
    answer = gateway.ask("DELETE", first["confirm"])
    assert (answer.status_code, "Its messages come again" in answer.json()["detail"]) == (404, True)
    gateway.confirm(second)


def test_a_message_that_is_never_confirmed_is_a_dead_letter_of_the_group(gateway: Gateway) -> None:
    join(gateway, "poison", "a", query="?attempts=1")
    gateway.put("poison", b"x")
    poll(gateway, "poison", "a", confirm=1.0)

    def found() -> Any:
        gateway.ask("GET", f"{member('poison', 'a')}/messages")  # The next request for messages meets it.
        return group(gateway, "poison")["letters"]

    (letter,) = until(found, "it is a dead letter")
    assert (letter["kind"], letter["attempts"]) == ("dead", 1)
    done = gateway.ask("POST", "/topics/poison/groups/g/redrive", {"ids": [letter["id"]]})
    assert done.json() == {"topic": "poison", "group": "g", "messages": 1}
    gateway.confirm(poll(gateway, "poison", "a"))


def test_a_reader_puts_messages_off_and_rejects_others_and_confirms_the_rest(gateway: Gateway) -> None:
    join(gateway, "decided", "a")
    for body in (b"good", b"early", b"bad"):
        gateway.put("decided", body)
    seen: dict[str, Any] = {}
    while len(seen) < 3:  # Each put may come by itself; a batch with an earlier one is given back.
        batch = poll(gateway, "decided", "a")
        seen = {one["body"]: one["id"] for one in batch["messages"]}
        if len(seen) < 3:
            gateway.ask("POST", f"{batch['confirm']}/later", {"seconds": 0})
    for _ in range(2):
        answer = gateway.ask("POST", f"{batch['confirm']}/reject", {"reason": "no such customer", "ids": [seen["bad"]]})
        assert (answer.status_code, answer.json()["left"]) == (200, 2), "it may be repeated"
    later = {"seconds": 0, "ids": [seen["early"], seen["bad"]]}
    made = gateway.ask("POST", f"{batch['confirm']}/later", later).json()
    assert made == {"topic": "decided", "group": "g", "member": "a", "messages": 1, "left": 1}, "a decision stays"
    again = poll(gateway, "decided", "a")
    assert (again["confirm"], bodies(again)) == (batch["confirm"], ["good"])
    gateway.confirm(batch)
    assert gateway.ask("POST", f"{batch['confirm']}/reject", {"reason": "late"}).status_code == 409
    next_one = poll(gateway, "decided", "a")
    assert bodies(next_one) == ["early"]
    gateway.confirm(next_one)
    (letter,) = until(lambda: group(gateway, "decided")["letters"], "the rejected one is a dead letter")
    assert letter["reason"] == "no such customer"
    assert until(lambda: not group(gateway, "decided")["claimed"], "the others are done")


def test_putting_messages_off_is_no_failed_attempt_and_ends_a_batch(cluster: Cluster, tmp_path: Path) -> None:
    with Gateway(cluster, tmp_path / "data") as gateway:
        join(gateway, "off", "a", "b", query="?attempts=1")
        gateway.put("off", b"x")
        for name in ("a", "b", "a"):
            batch = poll(gateway, "off", name)
            assert bodies(batch) == ["x"]
            path = f"{batch['confirm']}/later"
            made = [gateway.ask("POST", path, {"seconds": 0}).json() for _ in range(2)]
            assert [(one["messages"], one["left"]) for one in made] == [(1, 0), (0, 0)]
            assert gateway.ask("GET", member("off", name)).json()["open_batch"] is None
        gateway.kill()
        gateway.start()
        assert gateway.ask("DELETE", batch["confirm"]).status_code == 204, "nothing of it waits for a confirmation"
        assert gateway.ask("POST", path, {"seconds": 0}).json()["messages"] == 0
        gateway.confirm(poll(gateway, "off", "b"))
        assert group(gateway, "off")["letters"] == []


@pytest.mark.parametrize(
    ("act", "body", "status"),
    [
        ("later", {}, 400), ("later", {"seconds": "x"}, 400), ("later", {"seconds": True}, 400),
        ("later", {"seconds": -1}, 400), ("later", {"seconds": 1, "reason": "x"}, 400), ("reject", {}, 400),
        ("reject", {"reason": None}, 400), ("reject", {"reason": "x", "ids": []}, 400),
        ("reject", {"reason": "x", "ids": "all"}, 400), ("reject", {"reason": "x", "ids": ["other"]}, 400),
    ],
)  # fmt: skip
def test_a_decision_that_is_not_valid_changes_nothing(gateway: Gateway, act: str, body: object, status: int) -> None:
    gateway.ask("PUT", member("misled", "a"))
    if group(gateway, "misled")["waiting"] + group(gateway, "misled")["claimed"] == 0:
        gateway.put("misled", b"x")
    batch = poll(gateway, "misled", "a", confirm=600.0)
    assert gateway.ask("POST", f"{batch['confirm']}/{act}", body).status_code == status
    assert poll(gateway, "misled", "a") == batch
    for number in ("7", "x", "0"):
        path = f"{member('misled', 'a')}/batches/{number}/{act}"
        assert gateway.ask("POST", path, {"seconds": 1} if act == "later" else {"reason": "x"}).status_code == 404


def test_a_member_that_leaves_gives_its_open_batch_back(gateway: Gateway) -> None:
    join(gateway, "left", "a", "b")
    gateway.put("left", b"x")
    poll(gateway, "left", "a")
    assert gateway.ask("DELETE", member("left", "a")).status_code == 204
    assert gateway.ask("DELETE", member("left", "a")).status_code == 404
    assert gateway.ask("GET", f"{member('left', 'a')}/messages").status_code == 404
    batch = poll(gateway, "left", "b")
    assert (bodies(batch), batch["messages"][0]["doubtful"]) == (["x"], True)
    gateway.confirm(batch)


def test_one_request_of_a_member_polls_at_a_time_and_ends_with_its_connection(gateway: Gateway) -> None:
    join(gateway, "busy", "a")
    answers: list[int] = []
    path = f"{member('busy', 'a')}/messages?wait=10"

    def wait() -> None:
        while not answers or answers[-1] == 409:  # The other requests may come first.
            answers.append(gateway.ask("GET", path).status_code)

    waiting = threading.Thread(target=wait)
    waiting.start()
    until(lambda: gateway.ask("GET", path.replace("=10", "=0")).status_code == 409, "one request polls")
    gateway.put("busy", b"x")
    waiting.join()
    assert answers[-1] == 200
    gateway.confirm(poll(gateway, "busy", "a"))


def test_programs_and_http_readers_share_a_keyed_group(cluster: Cluster, gateway: Gateway, tmp_path: Path) -> None:
    join(gateway, "mixed", "a", query="?mode=keyed&parts=4")
    with Client("program", proxies=cluster.addresses, directory=tmp_path) as client:
        client.subscribe("mixed", group="g")
        for number in range(12):
            client.put("mixed", b"%d" % number, key=b"k%d" % (number % 4))
        seen: list[str] = []

        def handle(message: Message, _: Transaction) -> None:
            seen.append(message.body.decode())

        deadline = time.monotonic() + 40
        while len(seen) < 12:
            assert time.monotonic() < deadline, seen
            client.process("mixed", handle, 0.2, 1, group="g")
            answer = gateway.ask("GET", f"{member('mixed', 'a')}/messages?max=3&wait=0.3")
            if answer.status_code == 200:
                for message in answer.json()["messages"]:
                    assert 0 <= message["part"] < 4
                seen += bodies(answer.json())
                gateway.confirm(answer.json())
    assert sorted(seen, key=int) == [str(number) for number in range(12)]


def test_a_gateway_that_was_killed_gives_its_open_batches_back_when_it_starts(
    cluster: Cluster, gateway: Gateway, tmp_path: Path
) -> None:
    join(gateway, "killed", "other")
    with Gateway(cluster, tmp_path / "data") as killed:
        join(killed, "killed", "a")
        gateway.put("killed", b"x")
        batch = poll(killed, "killed", "a")
        killed.kill()
        killed.start()
        again = poll(gateway, "killed", "other")
        assert (bodies(again), again["messages"][0]["doubtful"]) == (["x"], True)
        assert killed.ask("DELETE", batch["confirm"]).status_code == 404
        gateway.confirm(again)
        gateway.put("killed", b"y")
        assert gateway.ask("DELETE", member("killed", "other")).status_code == 204
        killed.confirm(poll(killed, "killed", "a"))


def test_a_confirmation_is_known_after_a_kill(cluster: Cluster, tmp_path: Path) -> None:
    with Gateway(cluster, tmp_path / "data") as gateway:
        join(gateway, "known", "a")
        gateway.put("known", b"x")
        batch = poll(gateway, "known", "a")
        gateway.confirm(batch)
        gateway.kill()
        gateway.start()
        assert gateway.ask("DELETE", batch["confirm"]).status_code == 204
        assert gateway.ask("GET", f"{member('known', 'a')}/messages").status_code == 204


@pytest.mark.parametrize(
    ("path", "status"),
    [
        ("/topics/w/groups/g/members/a?mode=odd", 400),
        ("/topics/w/groups/g/members/a?parts=x", 400),
        ("/topics/w/groups/g/members/a?attempts=0", 400),
        ("/topics/w/groups/g/members/a?lost_seconds=0", 400),
        ("/topics/w/groups/g/members/a?start=yesterday", 400),
        ("/topics/w/groups/a%20b/members/a", 400),
        ("/topics/w/groups/g/members/" + "m" * 64, 400),
        ("/topics/w.*/groups/g/members/a", 400),
    ],
)
def test_a_member_that_is_not_valid_is_refused(gateway: Gateway, path: str, status: int) -> None:
    assert gateway.ask("PUT", path).status_code == status
    assert gateway.ask("GET", "/topics/w/groups/g/members/a").status_code == 404


def test_a_group_with_other_values_is_refused(gateway: Gateway) -> None:
    join(gateway, "values", "a", query="?attempts=3&on_lost=redeliver&lost_seconds=30")
    made = gateway.ask("PUT", member("values", "a")).json()
    assert made == {
        "topic": "values", "group": "g", "member": "a", "client": "http.g.a", "mode": "shared", "parts": 0,
        "on_lost": "redeliver", "lost_seconds": 30.0, "attempts": 3,
    }  # fmt: skip
    answer = gateway.ask("PUT", f"{member('values', 'b')}?attempts=4")
    assert (answer.status_code, "exists with other values" in answer.json()["detail"]) == (400, True)
    assert gateway.ask("GET", member("values", "b")).status_code == 404


def test_rights_are_those_of_the_topic_and_acting_needs_operate(cluster: Cluster, tmp_path: Path) -> None:
    names = ("reader", "stranger")
    made = {name: new_token() for name in names}
    tokens = tmp_path / "tokens"
    lines = [f"reader th_{digest(made['reader'])} get=mine put=*", f"stranger th_{digest(made['stranger'])} get=other"]
    tokens.write_text("\n".join(lines) + "\n")
    tokens.chmod(0o600)
    with Gateway(cluster, tmp_path / "data", "--tokens", str(tokens), token=made["reader"]) as gateway:
        join(gateway, "mine", "a")
        assert gateway.ask("GET", "/topics/mine/groups").status_code == 200
        assert gateway.ask("GET", "/topics/mine/groups/g").status_code == 200
        for path, body in (("release", {"member": "x"}), ("redrive", {}), ("drop", {}), ("resume", {"skip": True})):
            assert gateway.ask("POST", f"/topics/mine/groups/g/{path}", body).status_code == 403
        assert gateway.ask("PATCH", "/topics/mine/groups/g", {"attempts": 2}).status_code == 403
        assert gateway.ask("DELETE", "/topics/mine/groups/g").status_code == 403
        gateway.token = made["stranger"]
        assert gateway.ask("PUT", member("mine", "b")).status_code == 403
        assert gateway.ask("GET", f"{member('mine', 'a')}/messages").status_code == 403
        assert gateway.ask("GET", "/topics/mine/groups").status_code == 403


@pytest.mark.parametrize(
    ("method", "path", "body"),
    [
        ("POST", "release", {}), ("POST", "release", {"member": 1}), ("POST", "redrive", {"ids": "x"}),
        ("POST", "redrive", {"ids": ["x"]}), ("POST", "drop", {"all": True}), ("POST", "resume", {"skip": 1}),
        ("PATCH", "", {}), ("PATCH", "", {"attempts": "x"}), ("PATCH", "", {"size": 1}),
    ],
)  # fmt: skip
def test_an_action_that_is_not_valid_is_refused(gateway: Gateway, method: str, path: str, body: object) -> None:
    assert gateway.ask(method, f"/topics/acted/groups/g{path and '/'}{path}", body).status_code == 400


def test_an_unknown_group_or_topic_is_not_found(gateway: Gateway) -> None:
    assert gateway.ask("GET", "/topics/unknown-groups/groups").status_code == 404
    gateway.put("ungrouped", b"x")
    assert gateway.ask("GET", "/topics/ungrouped/groups").json()["groups"] == []
    assert gateway.ask("GET", "/topics/ungrouped/groups/g").status_code == 404
    assert gateway.ask("DELETE", "/topics/ungrouped/groups/g").status_code == 404
