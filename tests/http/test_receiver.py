"""The receiver over real HTTP: its answers to an ordinary client."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Coroutine
from pathlib import Path
from typing import Any

import httpx2
import pytest
from starlette.applications import Starlette
from starlette.routing import Mount

from pubsub.errors import CallerError, ConfigurationError
from pubsub.http import Answer, HttpSettings, Receiver
from pubsub.web import pump
from tests.http.rig import QUICK, Clock, counting, effects, serving, until

Act = Callable[[httpx2.AsyncClient], Coroutine[Any, Any, None]]


def against(receiver: Receiver, act: Act) -> None:
    """Serve it, and act as a client of it."""

    async def main() -> None:
        async with serving(receiver) as url, httpx2.AsyncClient(base_url=url, timeout=120.0) as client:
            await act(client)

    asyncio.run(main())


def key(name: str) -> dict[str, str]:
    return {"Idempotency-Key": f'"{name}"'}


def test_a_key_is_needed_and_a_repeat_gets_the_stored_response(tmp_path: Path) -> None:
    receiver = counting(Receiver(tmp_path))

    async def act(client: httpx2.AsyncClient) -> None:
        missing = await client.put("/put", content=b"x")
        assert missing.status_code == 400
        assert missing.headers["content-type"] == "application/problem+json"
        assert (await client.put("/put", content=b"x", headers={"Idempotency-Key": '"a'})).status_code == 400
        first = await client.put("/put", content=b"x", headers=key("a"))
        assert (first.status_code, first.json()) == (200, {"count": 1})
        again = await client.put("/put", content=b"x", headers=key("a"))
        assert (again.status_code, again.content, again.headers["content-type"]) == (
            200,
            first.content,
            "application/json",
        )
        other = await client.put("/put", content=b"y", headers=key("a"))
        assert other.status_code == 422
        assert (await client.put("/put?x=1", content=b"x", headers=key("a"))).status_code == 422
        assert effects(receiver) == [b"x"]

    against(receiver, act)


def test_a_repeat_during_the_handler_is_refused_at_once(tmp_path: Path) -> None:
    receiver, go = Receiver(tmp_path), threading.Event()

    @receiver.put("/slow")
    def slow(request: Any, transaction: Any) -> str:
        go.wait(120.0)
        return "done"

    async def act(client: httpx2.AsyncClient) -> None:
        first = asyncio.create_task(client.put("/slow", headers=key("a")))
        await until(lambda: hasattr(receiver, "_receiving") and receiver._receiving.schedule.busy, "it runs")
        again = await client.put("/slow", headers=key("a"))
        assert (again.status_code, again.headers["retry-after"]) == (409, "1")
        go.set()
        assert (await first).text == "done"
        assert (await client.put("/slow", headers=key("a"))).text == "done"

    against(receiver, act)


def test_messages_and_jobs_are_acknowledged_before_they_are_handled(tmp_path: Path) -> None:
    receiver, go = Receiver(tmp_path), threading.Event()
    handled: list[bytes] = []

    def handle(request: Any, transaction: Any) -> None:
        go.wait(120.0)
        handled.append(request.body)

    receiver.message("/m")(handle)
    receiver.job("/j")(handle)

    async def act(client: httpx2.AsyncClient) -> None:
        response = await client.post("/m", content=b"a", headers=key("a"))
        assert (response.status_code, response.content) == (204, b"")
        job = {**key("b"), "Reliable-Response-URL": "http://127.0.0.1:9/results/b"}
        assert (await client.post("/j", content=b"b", headers=job)).status_code == 202
        assert (await client.post("/j", content=b"b", headers=job)).status_code == 202
        assert (await client.post("/m", content=b"a", headers=key("a"))).status_code == 204
        assert handled == []
        go.set()
        await until(lambda: sorted(handled) == [b"a", b"b"], "both are handled once")

    against(receiver, act)


def test_a_request_to_the_wrong_place_gets_the_right_one(tmp_path: Path) -> None:
    receiver = counting(Receiver(tmp_path))
    receiver.job("/only-job")(lambda request, transaction: None)

    async def act(client: httpx2.AsyncClient) -> None:
        assert (await client.put("/nothing", headers=key("a"))).status_code == 404
        wrong = await client.get("/put")
        assert (wrong.status_code, wrong.headers["allow"]) == (405, "PUT")
        assert len((await client.request("G" * 500, "/put")).json()["detail"]) < 100
        lacking = await client.post("/only-job", headers=key("a"))
        assert lacking.status_code == 400
        assert "reliable-response-url" in lacking.json()["detail"]
        bad = await client.post("/job", headers={**key("a"), "Reliable-Response-URL": "ftp://x/"})
        assert bad.status_code == 400
        assert (await client.get("/.reliable/confirmations/x")).status_code == 405
        assert (await client.delete("/.reliable/confirmations/x")).status_code == 404
        many = {f"x-{number}": "y" for number in range(70)}
        assert (await client.put("/put", headers={**key("a"), **many})).status_code == 431
        assert (await client.put("/put?" + "x" * 9000, headers=key("a"))).status_code == 414

    against(receiver, act)


def test_a_confirmed_response_is_dropped_and_its_request_not_repeated(tmp_path: Path) -> None:
    receiver = counting(Receiver(tmp_path))

    async def act(client: httpx2.AsyncClient) -> None:
        first = await client.put("/put", content=b"x", headers=key("a/ b%41"))
        confirm = first.headers["reliable-confirm"]
        assert (await client.delete(confirm)).status_code == 204
        assert (await client.delete(confirm)).status_code == 204
        assert (await client.put("/put", content=b"x", headers=key("a/ b%41"))).status_code == 410
        assert effects(receiver) == [b"x"]
        found = receiver._receiving.find("", "a/ b%41")
        assert found is not None
        assert found.answer is None

    against(receiver, act)


def test_bodies_are_bounded_with_and_without_a_length(tmp_path: Path) -> None:
    receiver = counting(Receiver(tmp_path, settings=HttpSettings(body_bytes_max=1000)))

    async def act(client: httpx2.AsyncClient) -> None:
        assert (await client.put("/put", content=b"x" * 1000, headers=key("a"))).status_code == 200
        assert (await client.put("/put", content=b"x" * 1001, headers=key("b"))).status_code == 413

        async def parts() -> Any:
            for _ in range(20):
                yield b"x" * 100

        assert (await client.put("/put", content=parts(), headers=key("c"))).status_code == 413
        assert len(effects(receiver)) == 1

    against(receiver, act)


def test_a_full_inbox_says_when_to_come_again_and_takes_repeats_all_the_same(tmp_path: Path) -> None:
    receiver, go = Receiver(tmp_path, settings=HttpSettings(inbox_requests_max=2)), threading.Event()
    receiver.message("/m")(lambda request, transaction: go.wait(120.0) and None)

    async def act(client: httpx2.AsyncClient) -> None:
        for name in ("a", "b"):
            assert (await client.post("/m", headers=key(name))).status_code == 204
        full = await client.post("/m", headers=key("c"))
        assert (full.status_code, full.headers["retry-after"]) == (503, "5")
        assert (await client.post("/m", headers=key("a"))).status_code == 204
        go.set()
        await until(lambda: receiver._receiving._count == 0, "both are handled")
        assert (await client.post("/m", headers=key("c"))).status_code == 204

    against(receiver, act)


def test_too_many_tombstones_stop_new_requests_until_old_ones_are_removed(tmp_path: Path) -> None:
    clock = Clock()
    settings = HttpSettings(tombstones_max=3, tombstone_seconds=100.0, expiry_seconds=50.0)
    receiver = counting(Receiver(tmp_path, settings=settings, clock=clock))

    async def act(client: httpx2.AsyncClient) -> None:
        for name in ("a", "b", "c"):
            assert (await client.put("/put", headers=key(name))).status_code == 200
        assert (await client.put("/put", headers=key("d"))).status_code == 503
        clock.ahead += 101.0
        # The pump looks once a minute at least; here it is told to.
        await receiver._store(receiver._receiving.sweep)
        assert receiver._receiving._tombstones == 0
        assert (await client.put("/put", headers=key("d"))).status_code == 200

    against(receiver, act)


def test_old_tombstones_are_removed_while_the_receiver_runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    settings = HttpSettings(tombstone_seconds=1.0, expiry_seconds=0.5)
    receiver = counting(Receiver(tmp_path, settings=settings))

    async def act(client: httpx2.AsyncClient) -> None:
        assert (await client.put("/put", headers=key("a"))).status_code == 200
        await until(lambda: receiver._receiving.find("", "a") is None, "its tombstone is gone")

    monkeypatch.setattr(pump, "SWEEP_SECONDS_MAX", 1.0)
    against(receiver, act)


def test_a_set_wall_clock_moves_no_tombstone(tmp_path: Path) -> None:
    clock = Clock()
    receiver = counting(Receiver(tmp_path, clock=clock))

    async def act(client: httpx2.AsyncClient) -> None:
        await client.put("/put", content=b"x", headers=key("a"))
        for wall in (9e9, 0.0):
            clock.wall_seconds = wall
            await receiver._store(receiver._receiving.sweep)
            assert (await client.put("/put", content=b"x", headers=key("a"))).json() == {"count": 1}

    against(receiver, act)
    clock.wall_seconds = 9e9
    against(receiver, act)


def test_each_client_with_a_token_has_its_own_keys_and_strangers_are_refused(tmp_path: Path) -> None:
    alice, bob = "a" * 20, "b" * 20
    receiver = counting(Receiver(tmp_path, tokens={"alice": alice, "bob": bob}))
    seen: list[str] = []

    @receiver.put("/who")
    def who(request: Any, transaction: Any) -> str:
        seen.append(request.client)
        assert "authorization" not in request.headers
        return request.client  # type: ignore[no-any-return]

    async def act(client: httpx2.AsyncClient) -> None:
        stranger = await client.put("/who", headers=key("a"))
        assert (stranger.status_code, stranger.headers["www-authenticate"]) == (401, "Bearer")
        assert (await client.put("/who", headers={**key("a"), "Authorization": "Bearer x"})).status_code == 401
        for name, token in (("alice", alice), ("bob", bob)):
            response = await client.put("/who", headers={**key("a"), "Authorization": f"Bearer {token}"})
            assert response.text == name
        confirm = response.headers["reliable-confirm"]
        assert (await client.delete(confirm)).status_code == 401
        assert seen == ["alice", "bob"]

    against(receiver, act)
    with pytest.raises(ConfigurationError):
        Receiver(tmp_path, tokens={"alice": "short"})


def test_a_receiver_without_tokens_refuses_other_machines_unless_insecure(tmp_path: Path) -> None:
    async def ask(receiver: Receiver, host: str) -> int:
        transport = httpx2.ASGITransport(receiver, client=(host, 5))
        async with httpx2.AsyncClient(transport=transport, base_url="http://x") as client, receiver.lifespan():
            return (await client.put("/put", headers=key("a"))).status_code

    for host, insecure, status in (("192.0.2.7", False, 403), ("192.0.2.7", True, 200), ("127.0.0.1", False, 200)):
        assert asyncio.run(ask(counting(Receiver(tmp_path, insecure=insecure)), host)) == status


def test_a_response_url_may_be_bound_to_places(tmp_path: Path) -> None:
    receiver = counting(Receiver(tmp_path, response_urls=("http://10.0.0.1/",)))

    async def act(client: httpx2.AsyncClient) -> None:
        for url, status in (("http://10.0.0.1/r", 202), ("http://10.0.0.2/r", 403)):
            headers = {**key(url), "Reliable-Response-URL": url}
            assert (await client.post("/job", headers=headers)).status_code == status

    against(receiver, act)


def test_a_mounted_receiver_begins_with_its_application(tmp_path: Path) -> None:
    receiver = counting(Receiver(tmp_path))
    app = Starlette(routes=[Mount("/reliable", app=receiver)], lifespan=receiver.lifespan)

    async def act(client: httpx2.AsyncClient) -> None:
        first = await client.put("/reliable/put", content=b"x", headers=key("a"))
        assert first.json() == {"count": 1}
        assert first.headers["reliable-confirm"].startswith("/reliable/.reliable/")
        assert (await client.delete(first.headers["reliable-confirm"])).status_code == 204

    async def main() -> None:
        async with serving(app) as url, httpx2.AsyncClient(base_url=url) as client:
            await act(client)

    asyncio.run(main())


def test_a_receiver_without_a_lifespan_begins_with_the_first_request(tmp_path: Path) -> None:
    receiver = counting(Receiver(tmp_path))

    async def main() -> None:
        app = Starlette(routes=[Mount("/", app=receiver)])
        async with serving(app) as url, httpx2.AsyncClient(base_url=url) as client:
            assert (await client.put("/put", headers=key("a"))).json() == {"count": 1}
            await receiver.close()

    asyncio.run(main())


def test_a_received_message_is_handled_by_the_next_process(tmp_path: Path) -> None:
    async def first() -> None:
        receiver, go = Receiver(tmp_path), threading.Event()

        @receiver.message("/message")
        def message(request: Any, transaction: Any) -> None:
            go.wait(0.2)
            raise ValueError("not in this process")

        async with serving(receiver) as url, httpx2.AsyncClient(base_url=url) as client:
            assert (await client.post("/message", content=b"x", headers=key("a"))).status_code == 204

    asyncio.run(first())
    receiver = counting(Receiver(tmp_path, settings=QUICK))

    async def second(client: httpx2.AsyncClient) -> None:
        await until(lambda: effects(receiver) == [b"x"], "it is handled")

    against(receiver, second)


def test_a_body_that_never_ends_is_given_up(tmp_path: Path) -> None:
    receiver = counting(Receiver(tmp_path, settings=HttpSettings(try_seconds=0.05)))

    async def main() -> None:
        async with serving(receiver) as url:
            reader, writer = await asyncio.open_connection("127.0.0.1", int(url.rpartition(":")[2]))
            writer.write(b'PUT /put HTTP/1.1\r\nhost: localhost\r\nidempotency-key: "k"\r\ncontent-length: 9\r\n\r\nx')
            answer = await asyncio.wait_for(reader.read(), 20.0)
            assert answer.startswith(b"HTTP/1.1 408 ")
            writer.close()

    asyncio.run(main())


def test_an_answer_of_a_handler_is_sent_unchanged(tmp_path: Path) -> None:
    receiver = Receiver(tmp_path)
    receiver.put("/teapot")(lambda request, transaction: Answer(418, {"x-a": "b"}, b"short"))

    async def act(client: httpx2.AsyncClient) -> None:
        for _ in range(2):
            response = await client.put("/teapot", headers=key("a"))
            assert (response.status_code, response.headers["x-a"], response.content) == (418, "b", b"short")

    against(receiver, act)


@pytest.mark.parametrize("path", ["no-slash", "/{x:nothing}", "/{x"])
def test_an_invalid_path_is_refused(tmp_path: Path, path: str) -> None:
    if path == "/{x":
        Receiver(tmp_path).put(path)(lambda request, transaction: None)  # A plain text to Starlette.
        return
    with pytest.raises(CallerError):
        Receiver(tmp_path).put(path)(lambda request, transaction: None)
