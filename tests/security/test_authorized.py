"""The access list: its valid and invalid lines, and the differences of two versions."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pubsub.errors import AuthorizedRefused
from pubsub.security import authorized
from pubsub.security.authorized import Authorized, Line, Role, parse, parse_line
from pubsub.security.fingerprints import fingerprint
from pubsub.security.keys import format_secret
from pubsub.security.patterns import Pattern, parse_pattern
from tests.security.keyring import key, pk

EXAMPLE = f"""\
# role   id       key      rights
proxy    p1       {pk("p1")}
server   s1       {pk("s1")}   # the old machine

client   alice    {pk("alice")}     put=orders/*,audit  get=orders/*
client\tspark-*  {pk("spark")}  put=*  get=*  names=nightly,roll-*
client   ops      {pk("ops")}     status  operate
client   guest    {pk("guest")}
"""


def lines(text: str) -> tuple[Line, ...]:
    return parse(text.encode()).lines


def test_the_example_of_the_documentation_is_read() -> None:
    found = parse(EXAMPLE.encode())
    assert [(line.role, str(line.id), line.rights, line.number) for line in found.lines] == [
        ("proxy", "p1", (), 2),
        ("server", "s1", (), 3),
        ("client", "alice", ("put=audit,orders/*", "get=orders/*"), 5),
        ("client", "spark-*", ("put=*", "get=*", "names=nightly,roll-*"), 6),
        ("client", "ops", ("status", "operate"), 7),
        ("client", "guest", (), 8),
    ]
    assert found.by_key[key("ops")].operate
    assert found.by_user[f"client:alice#{fingerprint(key('alice'))}"].key == key("alice")


def test_the_quota_of_a_line_is_read_and_written() -> None:
    (one,) = parse(f"client alice {pk('a')} bytes=5120KiB/s put=a rate=500/s\n".encode()).lines
    assert (one.quota, one.rights) == ((500, 5 << 20), ("put=a", "rate=500/s", "bytes=5MiB/s"))
    (other,) = parse(f"client alice {pk('a')} put=a rate=none\n".encode()).lines
    assert (other.quota, other.rights) == (None, ("put=a",))


def test_an_id_with_two_keys_is_found_by_both_and_patterns_are_not_ids() -> None:
    found = parse(f"server s1 {pk('a')}\nserver s1 {pk('b')}\nclient s* {pk('c')}\n".encode())
    assert found.keys_of(Role.SERVER, "s1") == (key("a"), key("b"))
    assert found.keys_of(Role.CLIENT, "s1") == (key("c"),)
    assert found.keys_of(Role.SERVER, "s2") == ()


def test_comments_and_line_ends_of_any_kind_are_read() -> None:
    text = f"# ünïcode\n\r\n  \t \nclient a {pk('a')} put=x # put=y\u2028client b {pk('b')}\r\n#"
    (line,) = lines(text + "\n")
    assert line.rights == ("put=x",)


SECRET = format_secret(key("secret"))


@pytest.mark.parametrize(
    ("line", "reason"),
    [
        ("client", "a line is: role, ID, key"),
        ("client alice", "a line is: role, ID, key"),
        (f"client alice # {pk('a')}", "a line is: role, ID, key"),
        (f"cleint alice {pk('a')}", "there is no role 'cleint'; roles: proxy, server, client"),
        (f"Client alice {pk('a')}", "there is no role 'Client'"),
        (f"\ufeffclient alice {pk('a')}", "there is no role '\\ufeffclient'"),
        (f"client\xa0alice {pk('a')} put=*", "there is no role"),
        (f"client a/b {pk('a')}", "a pattern of a client ID has a character that no client ID has"),
        (f"client {'x' * 65} {pk('a')}", "a pattern of a client ID has more than 64 characters"),
        (f"client a,b {pk('a')}", "a pattern of a client ID"),
        (f"client .. {pk('a')}", "a client's ID is not '..', which would be a folder"),
        (f"client %2E {pk('a')}", "a client's ID is not '.', which would be a folder"),
        (f"client {SECRET} {pk('a')}", "a secret key (sk_) is in the place of the ID"),
        (f"{SECRET} alice {pk('a')}", "there is no role (a secret key)"),
        (f"server s* {pk('a')}", "a server's ID is one name of 1-64"),
        (f"proxy .. {pk('a')}", "a proxy's ID is one name of 1-64"),
        ("client alice pk_short", "the key is not allowed: it is not pk_ and 43 characters"),
        (f"client alice {SECRET}", "the key is not allowed: it is a secret key (sk_), which is exposed now"),
        (f"client alice {pk('a')},{pk('b')}", "the key is not allowed"),
        (f"client alice {pk('a')} {SECRET}", "there is no right (a secret key)"),
        (
            f"client alice {pk('a')} all",
            "there is no right 'all'; rights: put= get= names= call= serve= status operate",
        ),
        (f"client alice {pk('a')} PUT=x", "there is no right 'PUT'"),
        (f"client alice {pk('a')} put=x get", "a pattern of a topic is empty"),
        (f"client alice {pk('a')} put=", "a pattern of a topic is empty"),
        (f"client alice {pk('a')} put=a,,b", "a pattern of a topic is empty"),
        (f"client alice {pk('a')} put=a put=b", "put occurs twice"),
        (f"client alice {pk('a')} status status", "status occurs twice"),
        (f"client alice {pk('a')} rate=1/s rate=2/s", "rate occurs twice"),
        (f"client alice {pk('a')} bytes=1B/s bytes=2B/s", "bytes occurs twice"),
        (f"client alice {pk('a')} rate=fast", "rate is none, or messages a second such as 1000/s; not 'fast'"),
        (f"client alice {pk('a')} bytes=5", "bytes is none, or bytes a second such as 5MiB/s; not '5'"),
        (f"client alice {pk('a')} rate", "rate is none, or"),
        (f"client alice {pk('a')} operate=*", "operate takes no patterns"),
        (f"client alice {pk('a')} put=a#b", "write * , % and # as %2A %2C %25 %23"),
        (f"client alice {pk('a')} put=ä", "write * , % and # as"),
        (f"client alice {pk('a')} put={'x' * 81}", "a pattern of a topic has more than 80 characters"),
        (f"client alice {pk('a')} names=a/b", "a pattern of a name has a character that no name has"),
        (f"client alice {pk('a')} put=" + ",".join(map(str, range(65))), "65 patterns of put, above PATTERNS_MAX = 64"),
        (f"server s1 {pk('a')} put=x", "a server has no rights, only clients have; 'put=x' follows its key"),
        (f"proxy p1 {pk('a')} status", "a proxy has no rights"),
        (f"client a\x0b{pk('a')} {pk('a')}", "a pattern of a client ID"),
        (f"client alice {pk('a')} " + "#" * 4096, "bytes, above AUTHORIZED_LINE_LENGTH_MAX = 4,096"),
    ],
)
def test_a_wrong_line_is_refused_with_its_number_and_the_reason(line: str, reason: str) -> None:
    with pytest.raises(AuthorizedRefused) as raised:
        parse(f"# first\nclient good {pk('good')}\n{line}\n".encode(), "FILE")
    assert str(raised.value).startswith("FILE, line 3: ")
    assert reason in str(raised.value)
    assert raised.value.line == 3
    assert SECRET[3:20] not in str(raised.value)
    assert str(raised.value).isprintable()


@pytest.mark.parametrize(
    ("content", "line", "reason"),
    [
        (b"", 0, "the file is empty"),
        (f"client a {pk('a')} put=*".encode(), 1, "the last line has no line feed"),
        (f"client a {pk('a')}\nclient b {pk('b')} put=*".encode(), 2, "the last line has no line feed"),
        (b"# a\n# \xff\n", 2, "it is not UTF-8"),
        (b"#\n" * 10_001, 0, "10,001 lines, above AUTHORIZED_LINES_MAX"),
        (b"#" * (4 * 2**20 + 1), 0, "above AUTHORIZED_BYTES_MAX"),
        (
            f"client a {pk('a')}\n\nserver s {pk('a')}\n".encode(),
            3,
            "its key is in line 1 too; a key may occur only once",
        ),
    ],
)
def test_an_impossible_file_is_refused_completely(content: bytes, line: int, reason: str) -> None:
    with pytest.raises(AuthorizedRefused) as raised:
        parse(content)
    assert raised.value.line == line
    assert reason in str(raised.value)


def test_as_many_lines_as_allowed_are_read() -> None:
    text = "".join(f"client c{number} {pk(str(number))} put=*\n" for number in range(authorized.AUTHORIZED_LINES_MAX))
    assert len(lines(text)) == authorized.AUTHORIZED_LINES_MAX


def test_two_keys_of_an_id_with_equal_fingerprints_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(authorized, "fingerprint", lambda key: "00000000")
    assert len(lines(f"client a {pk('a')}\nclient b {pk('b')}\n")) == 2
    with pytest.raises(AuthorizedRefused, match="line 2: another key of this ID, in line 1, has its fingerprint"):
        lines(f"client a {pk('a')}\nclient a {pk('b')}\n")


@given(st.one_of(st.binary(), st.text("clientproxyserv pk_=*#,%\n\r\t").map(str.encode)))
def test_any_bytes_are_a_file_or_are_refused(content: bytes) -> None:
    try:
        found = parse(content)
    except AuthorizedRefused:
        return
    assert parse(written(found.lines)).digest == found.digest


@given(st.integers(0, len(EXAMPLE) - 1), st.integers(0, 255))
def test_a_changed_byte_makes_a_different_file_or_an_invalid_one(place: int, byte: int) -> None:
    content = bytearray(EXAMPLE.encode())
    content[place] = byte
    try:
        found = parse(bytes(content))
    except AuthorizedRefused:
        return
    assert parse(written(found.lines)).digest == found.digest


@given(st.integers(0, len(EXAMPLE) - 1))
def test_a_truncated_file_authorizes_nobody_else(length: int) -> None:
    whole = set(parse(EXAMPLE.encode()).lines)
    try:
        found = parse(EXAMPLE.encode()[:length])
    except AuthorizedRefused:
        return
    assert set(found.lines) <= whole


def parsed(what: str, *texts: str) -> list[Pattern]:
    literal, length_max, kind = authorized._LISTS[what]
    return [parse_pattern(text, literal, length_max, kind) for text in texts]


def some(found: list[Pattern]) -> st.SearchStrategy[tuple[Pattern, ...]]:
    return st.sets(st.sampled_from(found), max_size=3).map(lambda several: tuple(sorted(several)))


TOPICS = parsed("put", "*", "orders/*", "audit", "%2A", "a%2Cb", "100%25", "a%23b", "a*b*c", "=", "put=x", "%7E*")
NAMES = parsed("names", "*", "nightly", "roll-*", "a.b")
IDS = parsed("names", "alice", "spark-*", "*")
KEYS = [key(str(number)) for number in range(8)]


def any_line(raw: bytes) -> st.SearchStrategy[Line]:
    client = st.builds(
        Line, st.just(Role.CLIENT), st.sampled_from(IDS), st.just(raw), some(TOPICS), some(TOPICS), some(NAMES),
        st.booleans(), st.booleans(), some(TOPICS), some(TOPICS),
    )  # fmt: skip
    name = st.sampled_from([Pattern(("p1",)), Pattern(("a.b",))])
    return st.one_of(client, st.builds(Line, st.sampled_from([Role.PROXY, Role.SERVER]), name, st.just(raw)))


files = st.lists(st.sampled_from(KEYS), max_size=4, unique=True).flatmap(lambda raws: st.tuples(*map(any_line, raws)))
"""On a machine that is busy with other things."""


def written(found: tuple[Line, ...]) -> bytes:
    return ("#\n" + "".join(f"{line}\n" for line in found)).encode()


@given(files)
def test_written_lines_are_read_back(found: tuple[Line, ...]) -> None:
    assert parse(written(found)).lines == found
    for line in found:
        assert parse_line(str(line)) == line


@given(files, st.randoms())
def test_the_digest_is_that_of_the_meaning(found: tuple[Line, ...], random: Any) -> None:
    shuffled = list(found)
    random.shuffle(shuffled)
    text = "".join(f"\n  {str(line).replace('  ', chr(9))}   # said {random.random()}\r\n" for line in shuffled)
    assert Authorized(found).digest == parse(b"#\n" + text.encode()).digest
    for index in range(len(found)):
        assert Authorized(found).digest != Authorized(found[:index] + found[index + 1 :]).digest


@given(files, files)
def test_removed_and_added_lines_lead_from_one_file_to_the_other(
    before: tuple[Line, ...], after: tuple[Line, ...]
) -> None:
    came, went = Authorized(after).difference(Authorized(before))
    assert (set(before) - set(went)) | set(came) == set(after)
    assert not set(came) & set(before)
    assert not set(went) & set(after)


@pytest.mark.parametrize(
    ("change", "came", "went"),
    [
        (lambda text: text, 0, 0),
        (lambda text: "# more\n\n" + text.replace("put=orders/*,audit", "put=audit,orders/*"), 0, 0),
        (lambda text: text.replace("names=nightly", "names=daily"), 1, 1),
        (lambda text: text + f"client new {pk('new')}\n", 1, 0),
        (lambda text: "".join(text.splitlines(keepends=True)[:-1]), 0, 1),
        (lambda text: text.replace(pk("alice"), pk("alice2")), 1, 1),
    ],
)
def test_lines_with_the_same_meaning_count_as_unchanged(change: Callable[[str], str], came: int, went: int) -> None:
    difference = parse(change(EXAMPLE).encode()).difference(parse(EXAMPLE.encode()))
    assert (len(difference.came), len(difference.went)) == (came, went)
