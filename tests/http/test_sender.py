"""The sender over real HTTP: the results for its callers, for any acts of the other side."""

from __future__ import annotations

import asyncio
import ssl
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from pubsub.errors import CallerError, ConfigurationError, TooLarge
from pubsub.http import AsyncReliableHttp, HttpSettings, Receiver, State
from pubsub.http.delivery import Delivery
from pubsub.http.errors import JobFailed, RequestExpired, RequestKept, RequestRefused
from pubsub.web.serving import Tls
from tests.http.rig import QUICK, Clock, both, counting, effects, serving, until
from tests.ports import free_port
from tests.web.rig import answering


class Scripted:
    """An application that answers as it is told, one after the other, and the last one for ever."""

    def __init__(self, *answers: Any) -> None:
        self.answers, self.seen = list(answers), []  # type: ignore[var-annotated]

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        if scope["type"] != "http":
            await receive()
            await send({"type": "lifespan.startup.complete"})
            await receive()
            await send({"type": "lifespan.shutdown.complete"})
            return
        body = (await receive())["body"]
        headers = {name.decode(): value.decode() for name, value in scope["headers"]}
        self.seen.append((scope["method"], scope["path"], headers, body))
        status, answered, content = self.answers.pop(0) if len(self.answers) > 1 else self.answers[0]
        fields = [(name.encode(), value.encode()) for name, value in answered.items()]
        await send({"type": "http.response.start", "status": status, "headers": fields})
        await send({"type": "http.response.body", "body": content})


def asking(tmp_path: Path, app: Any, act: Callable[..., Any], **options: Any) -> Any:
    """Act as a sender to an application."""

    async def main() -> Any:
        options.setdefault("settings", QUICK)
        async with serving(app) as url, AsyncReliableHttp(tmp_path / "sender", **options) as http:
            return await act(http, url)

    return asyncio.run(main())


def test_put_send_and_job_have_the_effect_of_their_handlers_once(tmp_path: Path) -> None:
    receiver = counting(Receiver(tmp_path / "receiver", settings=QUICK))

    async def main() -> None:
        async with both(tmp_path, receiver) as (http, url):
            assert (await http.put(f"{url}/put", b"a")).json() == {"count": 1}
            assert await http.send(f"{url}/message", b"b") is None  # type: ignore[func-returns-value]
            await until(lambda: effects(receiver) == [b"a", b"b"], "the message is handled")
            result = await http.perform_job(f"{url}/job", f"http://127.0.0.1:{free_port()}/results", b"c")
            assert result.json() == {"count": 3}
            assert result.headers["content-type"] == "application/json"
            assert await http.requests() == []
            (put,) = [one for one in await http.requests(open_only=False) if one.kind == "put"]

            def kept() -> bool:
                found = receiver._receiving.find("", put.id)
                return found is not None and found.answer is not None

            await until(lambda: not kept(), "its response was confirmed, and is kept no longer")

    asyncio.run(main())


def test_a_sender_leaves_no_tombstones_of_finished_requests(tmp_path: Path) -> None:
    receiver = counting(Receiver(tmp_path / "receiver", settings=QUICK))

    async def main() -> None:
        async with both(tmp_path, receiver) as (http, url):
            for number in range(30):
                await http.put(f"{url}/put", str(number).encode())
            assert receiver._receiving._tombstones <= 2

    asyncio.run(main())


def test_the_same_key_is_the_same_request_in_a_later_process_too(tmp_path: Path) -> None:
    receiver = counting(Receiver(tmp_path / "receiver", settings=QUICK))

    async def main() -> None:
        async with serving(receiver) as url:
            for _ in range(2):
                async with AsyncReliableHttp(tmp_path / "sender", settings=QUICK) as http:
                    for _ in range(2):
                        assert (await http.put(f"{url}/put", b"x", key="order-17")).json() == {"count": 1}
                    with pytest.raises(CallerError, match="order-17"):
                        await http.put(f"{url}/put", b"y", key="order-17")
            assert effects(receiver) == [b"x"]

    asyncio.run(main())


@pytest.mark.parametrize("status", [409, 429, 500, 503])
def test_a_temporary_failure_is_tried_until_it_is_over(tmp_path: Path, status: int) -> None:
    app = Scripted((status, {}, b""), (status, {}, b""), (200, {}, b"yes"))

    async def act(http: Any, url: str) -> None:
        assert (await http.put(f"{url}/x", b"body")).body == b"yes"

    asking(tmp_path, app, act)
    assert len(app.seen) == 3
    assert len({seen[2]["idempotency-key"] for seen in app.seen}) == 1
    assert {seen[3] for seen in app.seen} == {b"body"}


@pytest.mark.parametrize("status", [301, 400, 404, 422, 501])
def test_a_final_status_ends_the_request_with_its_reason(tmp_path: Path, status: int) -> None:
    app = Scripted((status, {"content-type": "application/problem+json"}, b'{"title": "no such thing"}'))

    async def act(http: Any, url: str) -> None:
        for kind in ("put", "send"):
            with pytest.raises(RequestRefused, match=f"{status}: no such thing") as caught:
                await getattr(http, kind)(f"{url}/x", b"")
            assert caught.value.status == status
            assert caught.value.exit_code == 26
        assert await http.requests() == []

    asking(tmp_path, app, act)
    assert len(app.seen) == 2


def test_retry_after_is_waited_for(tmp_path: Path) -> None:
    app = Scripted((503, {"retry-after": "30"}, b""))
    clock = Clock()

    async def act(http: Any, url: str) -> None:
        with pytest.raises(RequestKept):
            await http.put(f"{url}/x", b"", key="k", timeout=0.5)
        assert len(app.seen) == 1
        (found,) = await http.requests()
        assert found.due - http.journal.now() > 25.0
        app.answers = [(200, {}, b"now")]
        clock.ahead += 31.0
        http._delivery.wake()
        assert (await http.put(f"{url}/x", b"", key="k")).body == b"now"

    asking(tmp_path, app, act, clock=clock)


def test_a_request_without_an_answer_expires_despite_changes_of_the_wall_clock(tmp_path: Path) -> None:
    clock = Clock()

    async def act(http: Any, url: str) -> None:
        with pytest.raises(RequestKept, match="pubsub http resume") as caught:
            await http.put(f"{url}/x", b"", key="k", timeout=0.2)
        assert caught.value.exit_code == 5
        for wall in (0.0, 9e9):
            clock.wall_seconds = wall
            with pytest.raises(RequestKept):
                await http.put(f"{url}/x", b"", key="k", timeout=0.2)
        clock.ahead += 8 * 86_400.0
        http._delivery.wake()
        with pytest.raises(RequestExpired, match="503") as expired:
            await http.put(f"{url}/x", b"", key="k", timeout=120.0)
        assert expired.value.exit_code == 27

    asking(tmp_path, Scripted((503, {}, b"")), act, clock=clock)


def test_an_open_request_continues_in_the_next_process_and_can_be_forgotten(tmp_path: Path) -> None:
    port = free_port()

    async def main() -> None:
        async with AsyncReliableHttp(tmp_path / "sender", settings=QUICK) as http:
            for name in ("a", "b"):
                with pytest.raises(RequestKept, match="ConnectError"):
                    await http.put(f"http://127.0.0.1:{port}/put", name.encode(), key=name, timeout=0.3)
            assert await http.forget("b")
            assert not await http.forget("b")
        receiver = counting(Receiver(tmp_path / "receiver", settings=QUICK))
        async with serving(receiver, port=port), AsyncReliableHttp(tmp_path / "sender", settings=QUICK) as http:
            (settled,) = await http.resume()
            assert (settled.id, settled.state, settled.answer.json()) == ("a", State.DONE, {"count": 1})  # type: ignore[union-attr]
            assert effects(receiver) == [b"a"]

    asyncio.run(main())


def test_a_waiting_call_raises_when_its_request_is_forgotten(tmp_path: Path) -> None:
    async def act(http: Any, url: str) -> None:
        waiting = asyncio.create_task(http.put(f"{url}/x", b"", key="k"))
        await until(lambda: http._delivery._waiters, "it waits")
        await http.forget("k")
        with pytest.raises(RequestRefused, match="forgotten"):
            await waiting

    asking(tmp_path, Scripted((503, {}, b"")), act)


def test_a_cancelled_call_names_its_kept_request(tmp_path: Path) -> None:
    async def act(http: Any, url: str) -> None:
        waiting = asyncio.create_task(http.put(f"{url}/x", b"", key="k"))
        await until(lambda: http._delivery._waiters, "it waits")
        waiting.cancel()
        with pytest.raises(asyncio.CancelledError) as caught:
            await waiting
        assert "is kept as k" in caught.value.__notes__[0]
        assert [one.id for one in await http.requests()] == ["k"]

    asking(tmp_path, Scripted((503, {}, b"")), act)


def test_the_token_and_headers_go_with_each_try_and_cookies_do_not(tmp_path: Path) -> None:
    app = Scripted((503, {"set-cookie": "a=b"}, b""), (200, {"set-cookie": "a=b"}, b""))

    async def act(http: Any, url: str) -> None:
        await http.put(f"{url}/x", b"", headers={"X-Trace": "7", "Content-Type": "text/plain"})

    asking(tmp_path, app, act, token="t" * 20)
    for _, _, headers, _ in app.seen:
        assert headers["authorization"] == "Bearer " + "t" * 20
        assert (headers["x-trace"], headers["content-type"]) == ("7", "text/plain")
        assert "cookie" not in headers


def test_a_confirmation_url_of_another_origin_is_not_asked(tmp_path: Path) -> None:
    app = Scripted((200, {"reliable-confirm": "http://127.0.0.1:9/x"}, b""), (200, {"reliable-confirm": "/c/1"}, b""))

    async def act(http: Any, url: str) -> None:
        await http.put(f"{url}/x", b"")
        await http.put(f"{url}/x", b"")
        await until(lambda: [seen[:2] for seen in app.seen[2:]] == [("DELETE", "/c/1")], "the second is confirmed")
        await until(lambda: not http._sending.schedule and not http._sending.schedule.busy, "nothing is left to do")

    asking(tmp_path, app, act)


def test_responses_and_the_outbox_are_bounded(tmp_path: Path) -> None:
    settings = HttpSettings(
        backoff_seconds=0.02, response_bytes_max=1000, body_bytes_max=100, outbox_requests_max=2, outbox_bytes_max=150
    )
    app = Scripted((200, {}, b"x" * 1001), (503, {}, b""))

    async def act(http: Any, url: str) -> None:
        with pytest.raises(RequestRefused, match="response_bytes_max"):
            await http.put(f"{url}/x", b"")
        with pytest.raises(TooLarge, match="body_bytes_max"):
            await http.put(f"{url}/x", b"x" * 101)
        with pytest.raises(RequestKept):
            await http.put(f"{url}/x", b"x" * 100, timeout=0.1)
        with pytest.raises(TooLarge, match="outbox_bytes_max"):
            await http.put(f"{url}/x", b"x" * 51)
        with pytest.raises(RequestKept):
            await http.put(f"{url}/x", b"", timeout=0.1)
        with pytest.raises(TooLarge, match="outbox_requests_max"):
            await http.put(f"{url}/x", b"")

    asking(tmp_path, app, act, settings=settings)


def test_a_dead_host_holds_up_no_other(tmp_path: Path) -> None:
    settings = HttpSettings(requests_per_host=1, requests_at_once=2, try_seconds=60.0)
    receiver = counting(Receiver(tmp_path / "receiver"))

    async def main() -> None:
        silent = await asyncio.start_server(lambda reader, writer: asyncio.sleep(3600), "127.0.0.1", 0)
        dead = f"http://127.0.0.1:{silent.sockets[0].getsockname()[1]}/"
        async with serving(receiver) as url, AsyncReliableHttp(tmp_path / "sender", settings=settings) as http:
            for _ in range(3):
                with pytest.raises(RequestKept):
                    await http.put(dead, b"", timeout=0.05)
            assert (await http.put(f"{url}/put", b"x", timeout=120.0)).json() == {"count": 1}
        silent.close()

    asyncio.run(main())


def test_the_permanent_failure_of_a_job_is_reported(tmp_path: Path) -> None:
    receiver = Receiver(tmp_path / "receiver", settings=HttpSettings(backoff_seconds=0.02, handler_attempts=2))

    @receiver.job("/job")
    def job(request: Any, transaction: Any) -> None:
        raise ValueError("no paper")

    async def main() -> None:
        async with both(tmp_path, receiver) as (http, url):
            with pytest.raises(JobFailed, match="too often"):
                await http.perform_job(f"{url}/job", f"http://127.0.0.1:{free_port()}/r", b"")

    asyncio.run(main())


def test_a_job_delivers_its_result_when_its_sender_is_back(tmp_path: Path) -> None:
    receiver = counting(Receiver(tmp_path / "receiver", settings=QUICK))
    local = f"http://127.0.0.1:{free_port()}/results"

    async def main() -> None:
        async with serving(receiver) as url:
            async with AsyncReliableHttp(tmp_path / "sender", settings=QUICK) as http:
                asked = asyncio.create_task(http.perform_job(f"{url}/job", local, b"x", key="j"))
                await until(lambda: http._sending.find("j") is not None, "it is asked for")
                asked.cancel()
            await until(lambda: effects(receiver) == [b"x"] or None, "it is done meanwhile")
            async with AsyncReliableHttp(tmp_path / "sender", settings=QUICK) as http:
                assert (await http.perform_job(f"{url}/job", local, b"x", key="j")).json() == {"count": 1}

    async def guarded() -> None:
        async with asyncio.timeout(60.0):
            await main()

    asyncio.run(guarded())


def test_a_local_url_that_others_reach_or_that_is_taken_is_refused(tmp_path: Path) -> None:
    async def act(http: Any, url: str) -> None:
        with pytest.raises(ConfigurationError, match="insecure"):
            await http.perform_job(f"{url}/job", "http://0.0.0.0:8099/r", b"")
        with pytest.raises(ConfigurationError, match="in use"):
            await http.perform_job(f"{url}/job", f"{url}/r", b"")
        with pytest.raises(CallerError, match="listen=False"):
            await http.perform_job(f"{url}/job", "https://127.0.0.1:8099/r", b"")
        assert await http.requests(open_only=False) == []

    asking(tmp_path, Scripted((404, {}, b"")), act)


def test_an_untrusted_certificate_is_refused(tmp_path: Path) -> None:
    certificate, key = tmp_path / "cert.pem", tmp_path / "key.pem"
    subprocess.run(
        ["openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "2", "-subj", "/CN=127.0.0.1",
         "-addext", "subjectAltName=IP:127.0.0.1", "-keyout", key, "-out", certificate],
        check=True, capture_output=True,
    )  # fmt: skip
    receiver = counting(Receiver(tmp_path / "receiver"))

    async def main() -> None:
        async with serving(receiver, Tls(str(certificate), str(key))) as url:
            async with AsyncReliableHttp(tmp_path / "stranger", settings=QUICK) as http:
                with pytest.raises(RequestKept, match=r"(?i)certificate"):
                    await http.put(f"{url}/put", b"x", timeout=1.0)
            trusted = ssl.create_default_context(cafile=certificate)
            async with AsyncReliableHttp(tmp_path / "sender", settings=QUICK, verify=trusted) as http:
                assert (await http.put(f"{url}/put", b"x")).json() == {"count": 1}

    asyncio.run(main())


@pytest.mark.parametrize("behind", [b"HTTP/1.1 200 OK\r\ncontent-length: 5\r\n\r\nstale", b"OK"])
def test_bytes_behind_an_answer_settle_no_other_request(tmp_path: Path, behind: bytes) -> None:
    def said(text: bytes) -> bytes:
        return b"HTTP/1.1 200 OK\r\ncontent-length: %d\r\n\r\n%s" % (len(text), text)

    async def main() -> list[str]:
        async with (
            answering(said(b"one") + behind, said(b"two"), said(b"three")) as url,
            AsyncReliableHttp(tmp_path / "sender", settings=QUICK) as http,
        ):
            return [(await http.put(url, b"x", timeout=120)).text for _ in range(3)]

    assert asyncio.run(main()) == ["one", "two", "three"]


def test_a_try_ended_by_an_internal_error_counts_and_is_repeated(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def breaking(self: Delivery, *words: Any) -> Any:
        raise RecursionError("too deep")

    async def act(http: AsyncReliableHttp, url: str) -> Any:
        with monkeypatch.context() as broken:
            broken.setattr(Delivery, "_exchange", breaking)
            with pytest.raises(RequestKept, match="RecursionError: too deep"):
                await http.put(url, b"x", key="k", timeout=0.3)
            (request,) = await http.requests()
        return request.attempts, (await http.put(url, b"x", key="k", timeout=120)).status

    attempts, status = asking(tmp_path, Scripted((200, {}, b"")), act)
    assert attempts >= 1
    assert status == 200
