from __future__ import annotations

import json

import pytest

import pubsub.errors
from pubsub.errors import InDoubt, InvalidName, NotAllowed, PubsubError, StoreFull, TooLarge, Unavailable
from pubsub.gateway.problems import OF_STATUS, TITLES, Problem, problem_of, response
from pubsub.web.problems import MEDIA_TYPE, Refused


@pytest.mark.parametrize("name", TITLES)
def test_every_problem_is_an_answer_of_rfc_9457(name: str) -> None:
    answer = response(Problem(name, "What happened."))
    facts = json.loads(bytes(answer.body))
    assert answer.media_type == MEDIA_TYPE
    assert facts == {
        "type": f"urn:pubsub:problem:{name}",
        "title": TITLES[name][1],
        "status": answer.status_code,
        "detail": "What happened.",
    }
    assert ("retry-after" in answer.headers) == (answer.status_code == 503)


@pytest.mark.parametrize("status", OF_STATUS)
def test_a_refusal_by_the_http_server_is_one_of_the_problems(status: int) -> None:
    answer = response(Refused(status, "What happened.", {"connection": "close"}))
    facts = json.loads(bytes(answer.body))
    assert (answer.status_code, answer.headers["connection"]) == (status, "close")
    assert (facts["type"], facts["status"]) == (f"urn:pubsub:problem:{OF_STATUS[status]}", status)


@pytest.mark.parametrize(
    ("error", "status"),
    [
        (InvalidName("topic", "_x", "no _ in front"), 400),
        (TooLarge("body", 2, 1, "MAX"), 413),
        (InDoubt("c", "t", 3.0, "", 1), 503),
        (Unavailable("get", "t", 3.0), 503),
        (NotAllowed("put", "t", "client c may not put to t", "run this"), 403),
        (StoreFull("/secret/place", "the disk is full"), 507),
        (PubsubError("other"), 500),
    ],
)
def test_an_error_of_the_client_has_its_status_and_is_one_sentence(error: PubsubError, status: int) -> None:
    problem = problem_of(error)
    assert problem.status == status
    assert problem.detail.endswith(".")
    assert "pubsub client" not in problem.detail
    assert "/secret/place" not in problem.detail


def test_every_error_has_an_answer() -> None:
    for value in vars(pubsub.errors).values():
        if isinstance(value, type) and issubclass(value, PubsubError) and value.__init__ is PubsubError.__init__:
            assert problem_of(value("why")).status >= 400


@pytest.mark.parametrize(("operation", "kept"), [("put", True), ("configure", False), ("operate", False)])
def test_only_a_put_that_the_cluster_refuses_is_said_to_be_kept(operation: str, kept: bool) -> None:
    said = problem_of(NotAllowed(operation, "t", f"client c may not {operation}", "run this")).detail
    assert said.startswith(f"client c may not {operation} (by the cluster's access list)")
    assert ("the put is kept" in said) == kept
