"""Where the results of jobs arrive: once, for jobs that are known, from whoever knows the URL."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import httpx2

from pubsub.http import AsyncReliableHttp, HttpSettings, Receiver
from pubsub.http.core.outgoing import Kind, State
from pubsub.http.sending import Draft
from tests.http.rig import both, counting, serving
from tests.ports import free_port

SETTINGS = HttpSettings(response_bytes_max=1000)


def test_a_result_is_taken_once_and_its_repeats_are_acknowledged(tmp_path: Path) -> None:
    async def main() -> None:
        async with AsyncReliableHttp(tmp_path, settings=SETTINGS) as http, serving(http.results) as url:
            draft = Draft(Kind.JOB, "http://127.0.0.1:9/j", {}, b"", "", f"{url}/results", listens=False)
            job = await http._store(http._sending.submit, draft)
            waiting = asyncio.create_task(http._delivery.over(job.id))
            place = job.headers["reliable-response-url"]
            async with httpx2.AsyncClient() as client:

                async def bring(where: str, body: bytes, **headers: str) -> int:
                    key = {"idempotency-key": '"r1"'}
                    return (await client.post(where, content=body, headers=key | headers)).status_code

                assert (await client.post(place, content=b"r")).status_code == 400
                assert (await client.get(place)).status_code == 405
                assert await bring(f"{url}/results/unknown", b"r") == 404
                assert await bring(place, b"x" * 1001) == 413
                assert await bring(place, b"result") == 204
                assert await bring(place, b"result") == 204
                assert await bring(place, b"another") == 204
            settled: Any = await waiting
            assert (settled.state, settled.answer.body) == (State.DONE, b"result")
            assert (await http._store(http._sending.find, job.id)).answer.body == b"result"  # type: ignore[union-attr]

    asyncio.run(main())


def test_a_put_is_no_job_whose_result_could_be_brought(tmp_path: Path) -> None:
    async def main() -> None:
        async with AsyncReliableHttp(tmp_path, settings=SETTINGS) as http, serving(http.results) as url:
            put = await http._store(http._sending.submit, Draft(Kind.PUT, "http://127.0.0.1:9/", {}, b""))
            async with httpx2.AsyncClient() as client:
                response = await client.post(f"{url}/{put.id}", headers={"idempotency-key": '"r"'})
                assert response.status_code == 404
            found = await http._store(http._sending.find, put.id)
            assert found is not None
            assert not found.over

    asyncio.run(main())


def test_a_key_with_characters_that_a_url_does_not_have_is_found_again(tmp_path: Path) -> None:
    async def main() -> None:
        receiver = counting(Receiver(tmp_path / "receiver"))
        async with asyncio.timeout(60.0), both(tmp_path, receiver) as (http, url):
            local = f"http://127.0.0.1:{free_port()}/results"
            done = await http.perform_job(f"{url}/job", local, b"j", key="order/7 a?b#c%41")
            assert done.json() == {"count": 1}

    asyncio.run(main())
