"""The rule is docs/explanation/gateway.md, H13."""

from __future__ import annotations

import pytest

from pubsub.gateway.problems import Problem
from pubsub.gateway.routing import Routes


def routes() -> Routes[str]:
    made: Routes[str] = Routes()
    made.add("GET", "/topics", "list")
    made.add("GET", "/topics/{topic}", "one")
    made.add("PUT", "/topics/{topic}/subscribers/{subscriber}", "put")
    made.add("DELETE", "/topics/{topic}/subscribers/{subscriber}", "delete")
    return made


def test_names_are_taken_from_the_raw_path() -> None:
    assert routes().find("PUT", b"/topics/a%2Fb/subscribers/s") == ("put", {"topic": "a/b", "subscriber": "s"})
    assert routes().find("GET", b"/topics") == ("list", {})


@pytest.mark.parametrize("path", [b"/", b"/topics/", b"/topics/a/", b"/topic", b"/topics/a/subscribers/"])
def test_an_unknown_path_is_not_found(path: bytes) -> None:
    with pytest.raises(Problem) as raised:
        routes().find("GET", path)
    assert raised.value.status == 404


def test_an_unknown_method_gets_the_list_of_allowed_ones() -> None:
    with pytest.raises(Problem) as raised:
        routes().find("POST", b"/topics/a/subscribers/s")
    assert (raised.value.status, raised.value.headers) == (405, {"allow": "DELETE, PUT"})


@pytest.mark.parametrize(
    "path", [b"/topics/\xff", b"/topics/%FF", b"/topics/%C3%A4", b"/topics/%", b"/topics/a%2", b"/topics/%zz"]
)
def test_a_name_that_is_no_ascii_or_escaped_wrongly_is_refused(path: bytes) -> None:
    with pytest.raises(Problem) as raised:
        routes().find("GET", path)
    assert raised.value.status == 400
