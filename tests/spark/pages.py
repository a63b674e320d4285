"""Everything that the web interface of a running Spark shows: its pages, and what its REST API answers."""

from __future__ import annotations

import html
import json
import re
import urllib.error
import urllib.request

PAGES = ("jobs", "stages", "storage", "environment", "executors", "SQL", "StreamingQuery", "connect")
ANSWERS = ("jobs", "stages?details=true", "environment", "allexecutors", "storage/rdd")
STATEMENTS = "sql?details=true&planDescription=true&length=1000"
LINK = re.compile(r"""/((?:StreamingQuery/statistics|connect/session)/\?id=[^"'\s<>]+)""")


def shown(base: str) -> dict[str, str]:
    """The texts by path; a page that this Spark does not have is left out.

    Args:
        base: address of the interface, such as `http://127.0.0.1:4040`.
    """
    opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
    found: dict[str, str] = {}

    def get(path: str) -> str:
        try:
            with opener.open(f"{base}/{path}", timeout=60) as answer:
                found[path] = answer.read().decode()
        except urllib.error.HTTPError as error:
            if error.code not in {400, 404}:
                raise
            return ""
        return found[path]

    (one,) = json.loads(get("api/v1/applications"))
    below = f"api/v1/applications/{one['id']}"
    for page in PAGES:
        get(f"{page}/")
    for answer in ANSWERS:
        get(f"{below}/{answer}")
    for statement in json.loads(get(f"{below}/{STATEMENTS}")):
        get(f"SQL/execution/?id={statement['id']}")
    for page in ("StreamingQuery/", "connect/"):
        for link in sorted(set(LINK.findall(html.unescape(found.get(page, ""))))):
            get(link)
    return found
