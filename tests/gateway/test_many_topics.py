"""Ten thousand topics: answers stay small, pages and orders are whole, and the page in a browser shows them."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import pytest

from tests.faults.cluster import Process, until
from tests.gateway.browser import DRIVER, REQUIRED, Browser
from tests.gateway.many_topics import CROWD, TOPICS, names
from tests.gateway.serving import CLIENT, check, parsed
from tests.ports import free_port

pytestmark = pytest.mark.slow
KIB = 1024


@pytest.fixture(scope="module")
def url(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    directory = tmp_path_factory.mktemp("many")
    port = free_port()
    command = ["-m", "tests.gateway.many_topics", f"127.0.0.1:{port}", str(directory / "data")]
    process = Process("many", directory, command).start()
    try:
        process.wait_line("gateway ready")
        yield f"http://127.0.0.1:{port}"
    finally:
        process.end()


def ask(url: str, path: str) -> tuple[dict[str, Any], int]:
    """An answer that the document knows, and its bytes."""
    answer = check(CLIENT.get(url + path))
    assert answer.status_code == 200, answer.text
    return dict(answer.json()), len(answer.content)


def test_a_page_of_topics_is_small_in_any_cluster(url: str) -> None:
    found, size = ask(url, "/topics?max=50&subscribers=0")
    assert (found["total"], len(found["topics"]), found["next"]) == (TOPICS, 50, names()[49])
    assert size < 30 * KIB
    assert sum(topic["subscribers_total"] == CROWD for topic in found["topics"]) == 1
    found, size = ask(url, "/topics/area0%2Ftopic-00000?subscribers=100")
    assert (len(found["subscribers"]), found["subscribers_total"]) == (100, CROWD)
    assert size < 30 * KIB


@pytest.mark.parametrize("sort", ["topic", "backlog", "oldest"])
def test_the_pages_together_are_all_topics_once_in_every_order(url: str, sort: str) -> None:
    seen: list[str] = []
    after = ""
    while after is not None:
        # The document is compared with a page above: to compare each of ten thousand topics takes half a minute.
        answer = CLIENT.get(f"{url}/topics?max=999&subscribers=0&sort={sort}&after={after.replace('/', '%2F')}")
        assert answer.status_code == 200, answer.text
        found = answer.json()
        seen += [topic["topic"] for topic in found["topics"]]
        after = found["next"]
    assert sorted(seen) == names()
    assert (seen == names()) == (sort == "topic")


def test_a_part_of_a_name_finds_topics_and_no_order_leaves_one_out(url: str) -> None:
    found, _ = ask(url, "/topics?max=10000&subscribers=0&search=area3%2F&sort=backlog")
    backlogs = [topic["backlog"] for topic in found["topics"]]
    assert found["total"] == len(backlogs) == sum(name.startswith("area3/") for name in names())
    assert backlogs == sorted(backlogs, reverse=True)


def test_the_live_facts_stay_small_after_an_hour(url: str) -> None:
    with CLIENT.stream("GET", f"{url}/live") as answer:
        events = parsed(answer.iter_lines())
        sizes = [len(next(events)["data"]) for _ in range(2)]
        facts = json.loads(next(events)["data"])
    assert max(sizes) < 16 * KIB
    assert facts["topics"] == TOPICS
    assert facts["warnings"][-1] == "and 50 more warnings; see pubsub status"
    assert any("topic area" in text and "has not acknowledged" in text for text in facts["alarms"])


@pytest.mark.skipif(DRIVER is None and not REQUIRED, reason="no chromedriver is here: the page was not tried")
def test_the_page_shows_searches_sorts_and_pages_topics_by_the_keyboard(url: str, browser: Browser) -> None:
    browser.go(f"{url}/")
    until(lambda: browser.text("#total") == "10,000", "they are counted")
    assert browser.run("return document.querySelectorAll('#topics tbody tr').length") == 50

    def first() -> str:
        return browser.text("#topics tbody a")

    browser.run("document.activeElement.blur()")
    browser.press("n")
    until(lambda: first() == names()[50], "the next page is shown")
    browser.press("p")
    until(lambda: first() == names()[0], "the one before is shown")
    browser.press("/")
    until(lambda: browser.run("return document.activeElement.name") == "search", "the search has the focus")
    browser.press(*"area6/topic-00")
    # A slow browser shows the topics found for the first letters before those for all.
    until(lambda: first().startswith("area6/topic-00"), "it is searched for")
    assert "found" in browser.text("#total")
    browser.run("const s = document.querySelector('#sort'); s.value = 'records'; s.onchange()")
    until(lambda: first() == max(name for name in names() if "area6/topic-00" in name), "the largest is first")
    browser.type("#search input", "\ue007")  # Enter opens the first.
    until(lambda: browser.text("#name") == first(), "it is opened")
    browser.press("\ue00c")  # Escape
    until(lambda: browser.run("return location.hash") == "#/", "and left")
    browser.go(f"{url}/#/topics/area0%2Ftopic-00000")
    shown = "1,000; shown: the 100 with the largest backlogs"
    until(lambda: browser.text("#named") == shown, "the slowest are shown")
    assert browser.complaints() == []
