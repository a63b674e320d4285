"""Topics over HTTP, as any client sees them: putting, subscribing, polling, confirming."""

from __future__ import annotations

import contextlib
from concurrent.futures import ThreadPoolExecutor

import httpx2

from tests.faults.cluster import until
from tests.gateway.serving import CLIENT, LINES, Gateway


def test_a_message_comes_unchanged_under_the_id_of_the_answer(gateway: Gateway) -> None:
    gateway.subscribe("whole", "s")
    put = gateway.put("whole", "grüße".encode())
    (message,) = gateway.take("whole", "s", 1)
    assert (message["body"], message["id"]) == ("grüße", put["id"])
    assert put["publisher"] == message["publisher"]


def test_a_message_that_is_no_text_comes_as_base64(gateway: Gateway) -> None:
    gateway.subscribe("binary", "s")
    gateway.put("binary", b"\xff\x00")
    assert gateway.take("binary", "s", 1)[0]["body_base64"] == "/wA="


def test_each_line_is_a_message_byte_for_byte_and_in_order(gateway: Gateway) -> None:
    gateway.subscribe("lines", "s")
    answer = gateway.ask("POST", "/topics/lines/messages", b'{"a": 1}\n\n[2]\r\n"three"', **LINES)
    assert answer.status_code == 201
    assert answer.json()["count"] == 3
    messages = gateway.take("lines", "s", 3)
    assert [message["body"] for message in messages] == ['{"a": 1}', "[2]", '"three"']
    (run,) = answer.json()["ids"]
    assert (run["first"], run["last"], run["count"]) == (messages[0]["id"], messages[2]["id"], 3)


def test_a_body_without_a_line_is_refused(gateway: Gateway) -> None:
    assert gateway.ask("POST", "/topics/lines/messages", b"\n\n", **LINES).status_code == 400


def test_a_topic_with_a_slash_is_written_with_an_escape(gateway: Gateway) -> None:
    gateway.subscribe("orders%2Feu", "s")
    gateway.put("orders%2Feu", b"one")
    batch = gateway.poll("orders%2Feu", "s")
    assert batch["topic"] == "orders/eu"
    gateway.confirm(batch)
    # The report of the cluster may be a second old, and from before this topic.
    answer = until(
        lambda: (found := gateway.ask("GET", "/topics/orders%2Feu")).status_code == 200 and found, "the report knows it"
    )
    assert answer.json()["topic"] == "orders/eu"


def test_a_repeated_key_puts_nothing_and_gets_the_same_answer(gateway: Gateway) -> None:
    gateway.subscribe("keyed", "s")
    first = gateway.ask("POST", "/topics/keyed/messages", b"once", idempotency_key='"a-1"')
    again = gateway.ask("POST", "/topics/keyed/messages", b"once", idempotency_key='"a-1"')
    assert (first.status_code, again.status_code) == (201, 201)
    assert first.json() == again.json()
    assert "idempotency-replayed" not in first.headers
    assert again.headers["idempotency-replayed"] == "true"
    assert len(gateway.take("keyed", "s", 1)) == 1


def test_a_key_is_good_for_one_body_of_one_topic(gateway: Gateway) -> None:
    gateway.put("keyed2", b"one", idempotency_key="b-1")
    other = gateway.ask("POST", "/topics/keyed2/messages", b"two", idempotency_key="b-1")
    assert (other.status_code, other.json()["type"]) == (422, "urn:pubsub:problem:key-reused")
    lines = gateway.ask("POST", "/topics/keyed2/messages", b"one", idempotency_key="b-1", **LINES)
    assert lines.status_code == 422
    assert gateway.put("keyed3", b"one", idempotency_key="b-1")["count"] == 1


def test_requests_at_the_same_time_with_one_key_put_once_and_are_answered_alike(gateway: Gateway) -> None:
    gateway.subscribe("racing", "s")
    with ThreadPoolExecutor(16) as pool:
        answers = list(pool.map(lambda _: gateway.put("racing", b"x", idempotency_key="r"), range(32)))
    assert all(answer == answers[0] for answer in answers)
    assert gateway.take("racing", "s", 1)[0]["id"] == answers[0]["id"]


def test_puts_at_the_same_time_each_arrive_once(gateway: Gateway) -> None:
    gateway.subscribe("crowd", "s")
    bodies = [f"m{number}".encode() for number in range(200)]
    with ThreadPoolExecutor(16) as pool:
        answers = list(pool.map(lambda body: gateway.put("crowd", body), bodies))
    found = {message["body"].encode(): message["id"] for message in gateway.take("crowd", "s", 200)}
    assert found == {body: answer["id"] for body, answer in zip(bodies, answers, strict=True)}


def test_an_unconfirmed_batch_comes_again_unchanged(gateway: Gateway) -> None:
    gateway.subscribe("again", "s")
    for number in range(3):
        gateway.put("again", b"%d" % number)
    first = gateway.poll("again", "s", most=2)
    gateway.put("again", b"later")
    assert gateway.poll("again", "s", most=100) == first
    assert gateway.ask("GET", "/topics/again/subscribers/s").json()["open_batch"] == first["confirm"]
    gateway.confirm(first)
    gateway.confirm(first)
    rest = gateway.take("again", "s", 2)
    assert [one["body"] for one in first["messages"] + rest] == ["0", "1", "2", "later"]


def test_an_unknown_batch_cannot_be_confirmed(gateway: Gateway) -> None:
    gateway.subscribe("never", "s")
    for batch in ("1", "0", "x", "9" * 30):
        assert gateway.ask("DELETE", f"/topics/never/subscribers/s/batches/{batch}").status_code == 404


def test_one_reader_at_a_time_polls(gateway: Gateway) -> None:
    gateway.subscribe("single", "s")
    path = "/topics/single/subscribers/s/messages"

    def read() -> int:
        return int(
            until(lambda: (code := gateway.ask("GET", f"{path}?wait=30").status_code) != 409 and code, "it reads")
        )

    with ThreadPoolExecutor(1) as pool:
        reading = pool.submit(read)
        answer = until(
            lambda: (found := gateway.ask("GET", f"{path}?wait=0")).status_code == 409 and found, "the other one reads"
        )
        assert answer.json()["type"] == "urn:pubsub:problem:busy-subscriber"
        gateway.put("single", b"end")
        assert reading.result() == 200


def test_a_poll_that_was_given_up_makes_room_for_the_next_one(gateway: Gateway) -> None:
    gateway.subscribe("left", "s")
    path = "/topics/left/subscribers/s/messages"
    with contextlib.suppress(httpx2.ReadTimeout):
        CLIENT.get(f"{gateway.url}{path}?wait=30", timeout=0.5)
    until(lambda: gateway.ask("GET", f"{path}?wait=0").status_code == 204, "the next one reads")


def test_two_subscribers_each_get_everything(gateway: Gateway) -> None:
    for name in ("a", "b"):
        gateway.subscribe("both", name)
    gateway.put("both", b"x")
    assert gateway.take("both", "a", 1) == gateway.take("both", "b", 1)


def test_a_deleted_subscriber_is_gone_with_its_messages(gateway: Gateway) -> None:
    gateway.subscribe("gone", "s")
    gateway.put("gone", b"x")
    batch = gateway.poll("gone", "s")
    assert gateway.ask("DELETE", "/topics/gone/subscribers/s").status_code == 204
    assert gateway.ask("DELETE", "/topics/gone/subscribers/s").status_code == 404
    assert gateway.ask("GET", "/topics/gone/subscribers/s/messages").status_code == 404
    gateway.subscribe("gone", "s")
    assert gateway.poll("gone", "s", wait=0)["messages"] == []
    assert batch["messages"][0]["body"] == "x"


def test_one_subscriber_may_have_several_topics(gateway: Gateway) -> None:
    for topic in ("t1", "t2"):
        gateway.subscribe(topic, "many")
        gateway.put(topic, topic.encode())
    assert [gateway.take(topic, "many", 1)[0]["body"] for topic in ("t1", "t2")] == ["t1", "t2"]


def test_invalid_names_are_refused(gateway: Gateway) -> None:
    for method, path in (
        ("PUT", "/topics/_x/subscribers/s"),
        ("PUT", "/topics/x/subscribers/a%20b"),
        ("POST", "/topics/a%20b/messages"),
        ("POST", "/topics/%C3%A4/messages"),
        ("PUT", f"/topics/x/subscribers/{'s' * 100}"),
    ):
        answer = gateway.ask(method, path, b"x" if method == "POST" else None)
        assert answer.status_code == 400, (path, answer.text)


def test_numbers_in_the_query_are_checked(gateway: Gateway) -> None:
    gateway.subscribe("numbers", "s")
    for query in ("max=0", "max=x", "wait=-1", "wait=nan"):
        assert gateway.ask("GET", f"/topics/numbers/subscribers/s/messages?{query}").status_code == 400
