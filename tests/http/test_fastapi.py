"""The receiver within FastAPI, as its how-to page shows: routes, middleware, lifespans, tests of such a program."""

from __future__ import annotations

import asyncio
import re
from collections.abc import AsyncIterator, Callable, Coroutine
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import httpx2
import pytest
from fastapi import FastAPI, Request
from fastapi.testclient import TestClient
from starlette.middleware.gzip import GZipMiddleware

from pubsub.http import Receiver
from tests.http.rig import counting, serving

PAGE = (Path(__file__).parents[2] / "docs/how-to/reliable-requests.md").read_text()
KEY = {"Idempotency-Key": '"a"'}


def against(app: FastAPI, act: Callable[[httpx2.AsyncClient], Coroutine[Any, Any, None]]) -> None:
    """Serve an application by uvicorn, and act as a client of it."""

    async def main() -> None:
        async with serving(app) as url, httpx2.AsyncClient(base_url=url, timeout=120.0) as client:
            await act(client)

    asyncio.run(main())


async def counts_once(client: httpx2.AsyncClient, root: str) -> None:
    """A put below `root` happens once, is answered so again, and its response is confirmed."""
    for _ in range(2):
        answer = await client.put(f"{root}/put", content=b"x", headers=KEY)
        assert (answer.status_code, answer.json()) == (200, {"count": 1})
    assert answer.headers["reliable-confirm"].startswith(f"{root}/.reliable/")
    assert (await client.delete(answer.headers["reliable-confirm"])).status_code == 204
    assert (await client.put(f"{root}/nobody", headers=KEY)).status_code == 404


def test_the_example_of_the_page_runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    (source,) = (
        text for text in re.findall(r"^```python\n(.*?)^```$", PAGE, re.MULTILINE | re.DOTALL) if "FastAPI" in text
    )
    shown: dict[str, Any] = {"__name__": "shown"}
    exec(compile(source, "docs/how-to/reliable-requests.md", "exec"), shown)

    async def act(client: httpx2.AsyncClient) -> None:
        answers = [await client.put("/reliable/orders", content=b"tea", headers=KEY) for _ in range(2)]
        assert [answer.json() for answer in answers] == [{"length": 3}] * 2
        assert (await client.get("/hello")).json() == "hello"
        assert "/hello" in (await client.get("/openapi.json")).json()["paths"]

    against(shown["app"], act)


def test_two_receivers_run_beside_the_lifespan_of_the_application(tmp_path: Path) -> None:
    first, second = counting(Receiver(tmp_path / "1")), counting(Receiver(tmp_path / "2"))

    @asynccontextmanager
    async def lifespan(app: FastAPI) -> AsyncIterator[dict[str, int]]:
        async with first.lifespan(), second.lifespan():
            yield {"answer": 42}

    app, within = FastAPI(lifespan=lifespan), FastAPI()
    app.mount("/first", first)
    within.mount("/second", second)
    app.mount("/v1", within)

    @app.get("/state")
    def state(request: Request) -> int:
        return int(request.state.answer)

    async def act(client: httpx2.AsyncClient) -> None:
        await counts_once(client, "/first")
        await counts_once(client, "/v1/second")
        assert (await client.get("/state")).json() == 42

    against(app, act)


def test_middleware_that_reads_and_writes_bodies_changes_nothing(tmp_path: Path) -> None:
    receiver = counting(Receiver(tmp_path))
    app = FastAPI(lifespan=receiver.lifespan)
    app.add_middleware(GZipMiddleware, minimum_size=1)

    @app.middleware("http")
    async def looks(request: Request, following: Callable[[Request], Coroutine[Any, Any, Any]]) -> Any:
        await request.body()
        answer = await following(request)
        answer.headers["x-seen"] = "yes"
        return answer

    app.mount("/reliable", receiver)

    async def act(client: httpx2.AsyncClient) -> None:
        await counts_once(client, "/reliable")
        message = await client.post("/reliable/message", content=b"x", headers={"Idempotency-Key": '"b"'})
        assert (message.status_code, message.headers["x-seen"]) == (204, "yes")

    against(app, act)


def test_the_test_client_works_as_an_address_of_this_machine(tmp_path: Path) -> None:
    receiver = counting(Receiver(tmp_path))
    app = FastAPI(lifespan=receiver.lifespan)
    app.mount("/reliable", receiver)
    with TestClient(app) as client:
        assert client.put("/reliable/put", content=b"x", headers=KEY).status_code == 403
    for _ in range(2):  # The same receiver begins again with each, on an event loop of its own.
        with TestClient(app, client=("127.0.0.1", 1)) as client:
            assert client.put("/reliable/put", content=b"x", headers=KEY).json() == {"count": 1}
