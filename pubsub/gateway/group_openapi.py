"""The paths of consumer groups in the OpenAPI document."""

from __future__ import annotations

from typing import Any

from pubsub.base.limits import ATTEMPTS_MAX, LOST_SECONDS_MIN, PARTS_MAX
from pubsub.client.starts import FORM
from pubsub.gateway.describing import JSON, TEXT, content, gives, operation, problems, query
from pubsub.gateway.limits import CONFIRM_SECONDS, CONFIRM_SECONDS_MAX, GROUP_RECORDS, POLL_RECORDS, WAIT_SECONDS_MAX
from pubsub.gateway.shapes import ref

GROUP = "/topics/{topic}/groups/{group}"
MEMBER = f"{GROUP}/members/{{member}}"


def groups() -> dict[str, Any]:
    """Return the paths of groups and their members."""
    return {
        "/topics/{topic}/groups": {
            "get": operation("listGroups", "List the consumer groups of a topic.", _found("The groups.", "Groups")),
        },
        GROUP: _group(),
        f"{GROUP}/release": _action("releaseMember", "Give up what a silent member holds.", "ReleaseWanted"),
        f"{GROUP}/redrive": _action("redriveGroup", "Hand dead letters out again.", "LettersWanted", required=False),
        f"{GROUP}/drop": _action("dropGroupLetters", "Delete dead letters.", "LettersWanted", required=False),
        f"{GROUP}/resume": _action("resumeGroup", "Resume a group after a restore.", "ResumeWanted"),
        **_members(),
    }


def _found(text: str, name: str) -> dict[str, Any]:
    return {"200": gives(text, name), **problems(422)}


def _body(name: str, *, required: bool = True) -> dict[str, Any]:
    return {"required": required, **content(JSON, ref(name))}


def _action(name: str, summary: str, body: str, *, required: bool = True) -> dict[str, Any]:
    answers = {"200": gives("Done.", "GroupActed"), **problems(408, 409, 413, 415, 422)}
    return {"post": operation(name, summary, answers, requestBody=_body(body, required=required))}


def _decision(name: str, summary: str, body: str) -> dict[str, Any]:
    answers = {"200": gives("Done.", "GroupDecided"), **problems(408, 409, 413, 415, 422)}
    return {"post": operation(name, summary, answers, requestBody=_body(body))}


def _group() -> dict[str, Any]:
    changed = {"200": gives("Changed.", "GroupActed"), **problems(408, 409, 413, 415, 422)}
    ended = {"204": {"description": "Ended."}, **problems(408, 409, 422)}
    force = query("force", "End it although messages are in doubt [false].", {"type": "boolean"})
    return {
        "get": operation(
            "getGroup", "Show a group with its members and dead letters.", _found("The group.", "GroupDetails")
        ),
        "patch": operation("changeGroup", "Change values of a group.", changed, requestBody=_body("GroupWanted")),
        "delete": operation("endGroup", "End a group for all its members.", ended, force),
    }


def _members() -> dict[str, Any]:
    def number(least: float, most: float, kind: str = "integer") -> dict[str, Any]:
        return {"type": kind, "minimum": least, "maximum": most}

    made = {"201": gives("Joined.", "GroupMember"), "200": gives("Joined before.", "GroupMember")}
    values = (
        query("mode", "Of a new group: shared or keyed [shared].", {"enum": ["shared", "keyed"]}),
        query("parts", "Of a new keyed group: its parts [256].", number(1, PARTS_MAX)),
        query("start", f"Where a new group begins: {FORM} [latest].", TEXT),
        query("on_lost", "Of a new group: wait or redeliver [wait].", {"enum": ["wait", "redeliver"]}),
        query(
            "lost_seconds",
            "Of a new group: silence before redeliver [600].",
            {"type": "number", "minimum": LOST_SECONDS_MIN},
        ),
        query("attempts", "Of a new group: failures before a dead letter [5].", number(1, ATTEMPTS_MAX)),
    )  # fmt: skip
    batch = {
        **gives("The next batch; without a confirmation in time its messages come again.", "GroupBatch"),
        "headers": {"Link": {"description": "Path that confirms the batch, as rel=confirm.", "schema": TEXT}},
    }
    polled = {"200": batch, "204": {"description": "No message arrived."}, **problems(409, 422)}
    seconds = f"Seconds for the confirmation [{CONFIRM_SECONDS:g}]."
    done = {"204": {"description": "Done."}, **problems(409, 422)}
    shown = {"200": gives("The member.", "OpenGroupMember"), **problems(409)}
    return {
        MEMBER: {
            "put": operation("joinGroup", "Join a group, or make it.", {**made, **problems(409, 410, 422)}, *values),
            "get": operation("getGroupMember", "Show a member.", shown),
            "delete": operation("leaveGroup", "Leave the group, and give an open batch back.", done),
        },
        f"{MEMBER}/messages": {
            "get": operation(
                "pollGroup", "Wait for the next batch of a member.", polled,
                query("max", f"Largest number of messages [{POLL_RECORDS}].", number(1, GROUP_RECORDS)),
                query("wait", "Seconds to wait for a message [0].", {"type": "number", "maximum": WAIT_SECONDS_MAX}),
                query("confirm", seconds, number(1, CONFIRM_SECONDS_MAX, "number")),
            ),
        },
        f"{MEMBER}/batches/{{batch}}": {
            "delete": operation("confirmGroup", "Confirm a batch; may be repeated.", done),
        },
        f"{MEMBER}/batches/{{batch}}/later": _decision("putOffGroup", "Put messages of a batch off.", "LaterWanted"),
        f"{MEMBER}/batches/{{batch}}/reject": _decision("rejectGroup", "Reject messages of a batch.", "RejectWanted"),
    }  # fmt: skip
