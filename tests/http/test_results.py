"""The arrival of the results of jobs: once, for known jobs, from any sender that knows the URL."""

from __future__ import annotations

import asyncio
import socket
from pathlib import Path
from typing import Any

import httpx2
import pytest

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


def test_a_result_for_a_put_is_refused(tmp_path: Path) -> None:
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


FOREIGN_PAGES = [{"origin": "https://evil.example"}, {"origin": "null"}, {"sec-fetch-site": "cross-site"}]


@pytest.mark.parametrize("headers", [*FOREIGN_PAGES, {"host": "evil.example"}, {"host": "203.0.113.7"}])
@pytest.mark.parametrize("method", ["POST", "PUT", "GET", "OPTIONS"])
def test_pages_of_other_sites_and_foreign_names_bring_no_result(
    tmp_path: Path, method: str, headers: dict[str, str]
) -> None:
    async def main() -> None:
        async with (
            AsyncReliableHttp(tmp_path, settings=SETTINGS) as http,
            httpx2.AsyncClient(trust_env=False) as client,
        ):
            local = f"http://127.0.0.1:{free_port()}/results"
            job = await http._store(
                http._sending.submit, Draft(Kind.JOB, "http://127.0.0.1:9/j", {}, b"", "known", local, listens=True)
            )
            await http.results.listen(local, insecure=False)
            sent = {"idempotency-key": '"r"', **headers}
            response = await client.request(method, f"{local}/known", content=b"forged", headers=sent)
            assert response.status_code == 403
            found = await http._store(http._sending.find, job.id)
            assert found is not None
            assert not found.over

    asyncio.run(main())


def test_a_listener_reachable_by_others_accepts_only_the_hosts_of_its_urls(tmp_path: Path) -> None:
    async def main() -> None:
        async with (
            AsyncReliableHttp(tmp_path, settings=SETTINGS) as http,
            httpx2.AsyncClient(trust_env=False) as client,
        ):
            port = free_port()
            await http.results.listen(f"http://0.0.0.0:{port}/results", insecure=True)
            for host, status in (("0.0.0.0", 404), ("127.0.0.1", 404), ("localhost", 404), ("evil.example", 403)):
                sent = {"idempotency-key": '"r"', "host": f"{host}:{port}"}
                response = await client.post(f"http://127.0.0.1:{port}/results/x", headers=sent)
                assert (host, response.status_code) == (host, status)

    asyncio.run(main())


def test_the_host_of_the_local_url_is_accepted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    found = socket.getaddrinfo

    def named(host: Any, *facts: Any, **named: Any) -> Any:
        return found("127.0.0.1" if host in ("worker.example", b"worker.example") else host, *facts, **named)

    monkeypatch.setattr(socket, "getaddrinfo", named)

    async def main() -> None:
        receiver = counting(Receiver(tmp_path / "receiver", response_urls=("http://worker.example",)))
        async with asyncio.timeout(60.0), both(tmp_path, receiver, insecure=True) as (http, url):
            done = await http.perform_job(f"{url}/job", f"http://worker.example:{free_port()}/results", b"j")
            assert done.json() == {"count": 1}

    asyncio.run(main())


def test_results_in_a_server_of_the_callers_own_have_any_name_and_no_foreign_page(tmp_path: Path) -> None:
    async def main() -> None:
        async with (
            AsyncReliableHttp(tmp_path, settings=SETTINGS) as http,
            serving(http.results) as url,
            httpx2.AsyncClient(trust_env=False) as client,
        ):
            for headers, status in [({"host": "worker.example"}, 404), *((page, 403) for page in FOREIGN_PAGES)]:
                sent = {"idempotency-key": '"r"', **headers}
                assert (await client.post(f"{url}/results/x", headers=sent)).status_code == status

    asyncio.run(main())
