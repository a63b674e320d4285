"""Handlers: on threads and on the loop; their effects, their requests and their exceptions."""

from __future__ import annotations

import asyncio
import threading
from pathlib import Path
from typing import Any

import httpx2
import pytest

from pubsub import embedded
from pubsub.errors import CallerError
from pubsub.http import HttpSettings, Receiver
from pubsub.http.core.incoming import Standing
from tests.client.opened import nothing
from tests.http.rig import QUICK, counting, effects, serving, until
from tests.http.test_receiver import against, key


@pytest.fixture
def receiver(tmp_path: Path) -> Receiver:
    made = Receiver(tmp_path / "receiver", settings=HttpSettings(**{**_quick(), "handler_attempts": 3}))

    @made.prepare
    def prepare(transaction: Any) -> None:
        transaction.execute("create table if not exists effects (body blob)")

    return made


def _quick() -> dict[str, Any]:
    return {"backoff_seconds": 0.02, "backoff_seconds_max": 0.1, "try_seconds": 5.0}


def test_a_handler_that_raised_is_rolled_back_and_called_again(receiver: Receiver) -> None:
    attempts: list[int] = []

    @receiver.put("/x")
    def handle(request: Any, transaction: Any) -> str:
        transaction.execute("insert into effects values (?)", (request.body,))
        attempts.append(request.attempt)
        if request.attempt < 3:
            raise ValueError("not yet")
        return "at last"

    async def act(client: httpx2.AsyncClient) -> None:
        first = await client.put("/x", content=b"x", headers=key("a"))
        assert first.status_code == 500
        assert int(first.headers["retry-after"]) >= 1
        assert "not yet" not in first.text
        await until(lambda: attempts == [1, 2, 3], "it is called again by itself")
        again = await client.put("/x", content=b"x", headers=key("a"))
        assert again.text == "at last"
        assert effects(receiver) == [b"x"]

    against(receiver, act)


def test_a_handler_that_always_raises_is_given_up_and_called_again_on_request(
    receiver: Receiver, caplog: pytest.LogCaptureFixture
) -> None:
    broken = [True]

    @receiver.put("/x")
    def handle(request: Any, transaction: Any) -> str:
        if broken[0]:
            raise ValueError("broken")
        return "mended"

    async def act(client: httpx2.AsyncClient) -> None:
        await client.put("/x", headers=key("a"))
        await until(lambda: receiver._receiving.find("", "a").standing is Standing.FAILED, "it is given up")  # type: ignore[union-attr]
        given_up = await client.put("/x", headers=key("a"))
        assert given_up.status_code == 501
        broken[0] = False
        assert [(one.key, one.problem) for one in await receiver.failed()] == [("a", "ValueError: broken")]
        assert await receiver.retry("a")
        assert not await receiver.retry("b")
        await until(lambda: receiver._receiving.find("", "a").standing is Standing.DONE, "it is handled")  # type: ignore[union-attr]
        assert (await client.put("/x", headers=key("a"))).text == "mended"
        assert await receiver.failed() == []

    against(receiver, act)
    place = f"{__file__}:{handle.__code__.co_firstlineno + 3}"  # Its decorator is its first line.
    lines = [one for one in caplog.records if one.levelname == "WARNING" and "handler of /x failed" in one.getMessage()]
    assert lines
    assert all(one.getMessage().endswith(f": ValueError: broken at {place}") for one in lines)
    assert not any(one.exc_info for one in lines)


@pytest.mark.parametrize("returned", [object(), 5, {1, 2}, {"a": object()}, b"x" * 2000])
def test_an_impossible_answer_is_rolled_back(tmp_path: Path, returned: Any) -> None:
    settings = HttpSettings(**_quick(), handler_attempts=1, response_bytes_max=1000)
    receiver = Receiver(tmp_path, settings=settings)

    @receiver.put("/x")
    def handle(request: Any, transaction: Any) -> Any:
        transaction.execute("create table never (x)")
        return returned

    async def act(client: httpx2.AsyncClient) -> None:
        assert (await client.put("/x", headers=key("a"))).status_code == 501
        with receiver._journal.transaction() as transaction:
            assert not list(transaction.execute("select * from sqlite_master where name = 'never'"))

    against(receiver, act)


@pytest.mark.parametrize("status", [409, 429, 503, 100, 700])
def test_a_status_that_asks_for_another_try_cannot_be_stored(tmp_path: Path, status: int) -> None:
    from pubsub.http import Answer

    receiver = Receiver(tmp_path, settings=HttpSettings(**_quick(), handler_attempts=1))
    receiver.put("/x")(lambda request, transaction: Answer(status))

    async def act(client: httpx2.AsyncClient) -> None:
        assert (await client.put("/x", headers=key("a"))).status_code == 501

    against(receiver, act)


def test_a_handler_that_awaits_within_its_transaction_is_refused(
    receiver: Receiver,
) -> None:
    @receiver.put("/right")
    async def right(request: Any, transaction: Any) -> str:
        await asyncio.sleep(0.01)
        transaction.execute("insert into effects values (?)", (request.body,))
        return "right"

    raised: list[str] = []

    @receiver.put("/wrong")
    async def wrong(request: Any, transaction: Any) -> str:
        transaction.execute("insert into effects values (?)", (request.body,))
        try:
            await asyncio.sleep(0.01)
        except Exception as error:
            raised.append(str(error))
            raise
        return "wrong"

    async def act(client: httpx2.AsyncClient) -> None:
        assert (await client.put("/right", content=b"r", headers=key("a"))).text == "right"
        assert (await client.put("/wrong", content=b"w", headers=key("b"))).status_code == 500
        assert "await first" in raised[0]
        assert effects(receiver) == [b"r"]

    against(receiver, act)


def test_a_long_handler_blocks_nobody_before_it_uses_its_transaction(receiver: Receiver) -> None:
    go = threading.Event()

    @receiver.put("/long")
    def long(request: Any, transaction: Any) -> str:
        go.wait(120.0)
        return str(transaction.execute("select count(*) from effects").get)

    @receiver.put("/short")
    def short(request: Any, transaction: Any) -> str:
        transaction.execute("insert into effects values (?)", (request.body,))
        return "short"

    async def act(client: httpx2.AsyncClient) -> None:
        first = asyncio.create_task(client.put("/long", headers=key("long")))
        for number in range(3):
            assert (await client.put("/short", headers=key(f"s{number}"))).text == "short"
        go.set()
        assert (await first).text == "3"

    against(receiver, act)


def test_requests_of_a_handler_are_sent_only_if_its_transaction_commits(receiver: Receiver, tmp_path: Path) -> None:
    target = counting(Receiver(tmp_path / "target"))
    places: list[str] = []

    @receiver.put("/forward")
    def forward(request: Any, transaction: Any) -> str:
        receiver.send(transaction, f"{places[0]}/message", request.body)
        if request.attempt == 1:
            raise ValueError("undone, with what it sent")
        return "sent"

    async def main() -> None:
        async with serving(target) as there, serving(receiver) as here:
            places.append(there)
            async with httpx2.AsyncClient(base_url=here) as client:
                await client.put("/forward", content=b"x", headers=key("a"))
                await until(lambda: effects(target) == [b"x"], "it arrives")
                assert (await client.put("/forward", content=b"x", headers=key("a"))).text == "sent"
            with pytest.raises(CallerError, match="handler"):
                receiver.send(None, there, b"")  # type: ignore[arg-type]
        with_target = effects(await _opened(target))
        assert with_target == [b"x"]
        await target.close()

    asyncio.run(main())


async def _opened(receiver: Receiver) -> Receiver:
    await receiver.start()
    return receiver


def test_puts_of_a_handler_in_a_clients_file_commit_with_the_receipt(tmp_path: Path) -> None:
    with embedded(tmp_path / "cluster") as cluster, cluster.client("gate") as client, cluster.client("bob") as bob:
        bob.subscribe("orders")
        receiver = Receiver(client, settings=QUICK)

        @receiver.put("/orders")
        def order(request: Any, transaction: Any) -> str:
            client.put("orders", request.body, transaction=transaction)
            if request.attempt == 1:
                raise ValueError("not the first time")
            return "ordered"

        async def act(http: httpx2.AsyncClient) -> None:
            while (await http.put("/orders", content=b"7", headers=key("a"))).status_code != 200:
                await asyncio.sleep(0.05)

        against(receiver, act)
        client.flush()
        message = bob.get("orders", timeout=10.0)
        assert message is not None
        assert message.body == b"7"
        assert nothing(bob, "orders")


@pytest.mark.parametrize("raised", [asyncio.CancelledError, SystemExit])
@pytest.mark.parametrize("awaits", [False, True])
def test_a_handler_that_cancels_itself_or_exits_has_failed_and_is_called_again(
    receiver: Receiver, raised: type[BaseException], awaits: bool
) -> None:
    def handle(request: Any, transaction: Any) -> str:
        transaction.execute("insert into effects values (?)", (request.body,))
        if request.attempt == 1:
            raise raised
        return "at last"

    async def handle_on_loop(request: Any, transaction: Any) -> str:
        return handle(request, transaction)

    receiver.put("/x")(handle_on_loop if awaits else handle)

    async def act(client: httpx2.AsyncClient) -> None:
        assert (await client.put("/x", content=b"x", headers=key("a"))).status_code == 500
        await until(lambda: receiver._receiving.find("", "a").standing is Standing.DONE, "it is called again")  # type: ignore[union-attr]
        assert effects(receiver) == [b"x"]

    against(receiver, act)
