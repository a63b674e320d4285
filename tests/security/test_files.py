"""Key files and the access list, on a real file system: modes, owners, links, two writers."""

from __future__ import annotations

import fcntl
import os
import stat
import threading
from collections.abc import Callable
from pathlib import Path

import pytest

from pubsub.errors import AuthorizedRefused, ConfigurationError, NotKnown
from pubsub.security import files
from pubsub.security.files import AuthorizedFile, edit_authorized, make_key_file, read_authorized, read_key_file
from pubsub.security.keys import format_secret
from pubsub.security.pairs import new_pair
from tests.security.keyring import key, pk


def mode(path: Path) -> int:
    return stat.S_IMODE(path.stat().st_mode)


@pytest.fixture
def made(tmp_path: Path) -> Path:
    path = tmp_path / "alice.key"
    make_key_file(path, new_pair().secret)
    return path


# Key files -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("umask", [0o000, 0o022, 0o077, 0o777])
def test_a_key_file_is_readable_by_its_owner_alone_under_any_umask(tmp_path: Path, umask: int) -> None:
    secret, path = new_pair().secret, tmp_path / "key"
    before = os.umask(umask)
    try:
        make_key_file(path, secret)
    finally:
        os.umask(before)
    assert mode(path) == 0o600
    assert path.read_text() == format_secret(secret) + "\n"
    assert read_key_file(path) == secret


def test_the_directory_of_a_key_file_is_made_for_its_owner_alone(tmp_path: Path) -> None:
    make_key_file(tmp_path / "a" / "b" / "key", new_pair().secret)
    assert mode(tmp_path / "a" / "b") == 0o700


def test_file_and_directory_are_brought_to_the_disk(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    synced = []
    really = os.fsync

    def fsync(descriptor: int) -> None:
        synced.append(Path(os.readlink(f"/proc/self/fd/{descriptor}")))
        really(descriptor)

    monkeypatch.setattr(os, "fsync", fsync)
    make_key_file(tmp_path / "key", new_pair().secret)
    assert [path.parent for path in synced] == [tmp_path, tmp_path.parent]
    assert synced[0].name.startswith(".key.")
    assert [path.name for path in tmp_path.iterdir()] == ["key"]


@pytest.mark.parametrize("kind", ["file", "link", "dangling", "directory"])
def test_an_existing_file_is_not_overwritten(tmp_path: Path, made: Path, kind: str) -> None:
    path, before = tmp_path / "there", made.read_bytes()
    if kind == "directory":
        path.mkdir()
    elif kind == "file":
        path.write_text("precious")
    else:
        path.symlink_to(made if kind == "link" else tmp_path / "none")
    with pytest.raises(ConfigurationError, match=f"{path} exists already and is not overwritten"):
        make_key_file(path, new_pair().secret)
    assert made.read_bytes() == before
    assert not (tmp_path / "none").exists()
    assert kind != "file" or path.read_text() == "precious"


def test_a_key_file_that_cannot_be_made_in_full_is_not_left_in_part(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(descriptor: int) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(ConfigurationError, match=r"key file .*key: No space left on device"):
        make_key_file(tmp_path / "key", new_pair().secret)
    assert not (tmp_path / "key").exists()


@pytest.mark.parametrize("step", ["fchmod", "fsync"])
def test_a_killed_creation_leaves_no_partial_key_file(tmp_path: Path, step: str) -> None:
    """Else it would be in the way of the next try, which overwrites none, and of the process that looks there."""
    secret, path = new_pair().secret, tmp_path / "key"
    child = os.fork()
    if not child:
        setattr(os, step, lambda *_: os._exit(0))
        make_key_file(path, secret)
        os._exit(1)
    assert os.waitpid(child, 0)[1] == 0
    make_key_file(path, secret)
    assert read_key_file(path) == secret
    assert path.stat().st_nlink == 1


def test_an_impossible_place_for_a_key_file_is_refused(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(ConfigurationError, match=r"key file .*below: (Not a directory|File exists)"):
        make_key_file(tmp_path / "file" / "below", new_pair().secret)


@pytest.mark.parametrize("bits", [0o644, 0o640, 0o604, 0o660, 0o602, 0o601, 0o610])
def test_a_key_file_accessible_by_others_is_refused_with_the_remedy(made: Path, bits: int) -> None:
    made.chmod(bits)
    with pytest.raises(ConfigurationError) as raised:
        read_key_file(made)
    assert str(raised.value) == f"key file {made} can be read by others (mode {bits:04o}): chmod 600 {made}"


@pytest.mark.parametrize("bits", [0o600, 0o400])
def test_a_key_file_readable_only_by_its_owner_is_read(made: Path, bits: int) -> None:
    made.chmod(bits)
    assert len(read_key_file(made)) == 32


def test_a_key_file_of_another_user_is_refused(made: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    if os.geteuid() == 0:
        os.chown(made, 12345, -1)
        owner, this = 12345, 0
    else:
        owner, this = os.geteuid(), os.geteuid() + 1
        monkeypatch.setattr(os, "geteuid", lambda: this)
    with pytest.raises(ConfigurationError) as raised:
        read_key_file(made)
    assert f"{made} belongs to user {owner}, but this process runs as" in str(raised.value)
    assert f"chown {this} {made}" in str(raised.value)


@pytest.mark.parametrize(("bits", "read"), [(0o440, True), (0o400, True), (0o444, False), (0o460, False)])
def test_a_secret_that_a_container_is_handed_is_root_s_and_of_a_group(
    made: Path, monkeypatch: pytest.MonkeyPatch, bits: int, read: bool
) -> None:
    made.chmod(bits)
    seen = os.fstat
    monkeypatch.setattr(os, "fstat", lambda number: os.stat_result((*seen(number)[:4], 0, *seen(number)[5:10])))
    monkeypatch.setattr(os, "geteuid", lambda: 12345)
    if read:
        assert len(read_key_file(made)) == 32
    else:
        with pytest.raises(ConfigurationError, match="chown 12345"):
            read_key_file(made)


def test_a_link_to_a_key_file_is_followed(tmp_path: Path, made: Path) -> None:
    link = tmp_path / "link"
    link.symlink_to(made)
    assert read_key_file(link) == read_key_file(made)
    made.chmod(0o644)
    with pytest.raises(ConfigurationError, match="can be read by others"):
        read_key_file(link)


@pytest.mark.parametrize(
    ("content", "reason"),
    [
        (b"", "does not begin with sk_"),
        (pk("a").encode() + b"\n", "it is a public key"),
        (format_secret(key("a")).encode()[:-2], "it is not sk_ and 43 characters"),
        (format_secret(key("a")).encode() + b"\n\n", "it is not sk_ and 43 characters"),
        (b"# key\n" + format_secret(key("a")).encode(), "does not begin with sk_"),
        (b"sk_\xff", "it is not ASCII"),
        (b"sk_" * 100, "has more than 256 bytes"),
    ],
)
def test_a_file_without_a_key_is_refused_and_none_of_it_is_shown(tmp_path: Path, content: bytes, reason: str) -> None:
    path = tmp_path / "key"
    path.write_bytes(content)
    path.chmod(0o600)
    with pytest.raises(ConfigurationError) as raised:
        read_key_file(path)
    assert reason in str(raised.value)
    assert format_secret(key("a"))[3:20] not in str(raised.value)


def test_a_key_file_may_end_with_any_line_end_or_none(tmp_path: Path) -> None:
    for number, end in enumerate(("", "\n", "\r\n")):
        path = tmp_path / f"key{number}"
        path.write_bytes((format_secret(key("a")) + end).encode())
        path.chmod(0o600)
        assert read_key_file(path) == key("a")


def test_a_key_file_that_is_no_regular_file_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ConfigurationError, match=r"key file .*none: No such file"):
        read_key_file(tmp_path / "none")
    with pytest.raises(ConfigurationError, match=r"key file .* (is not a file|Is a directory)"):
        read_key_file(tmp_path)
    os.mkfifo(tmp_path / "pipe", 0o600)
    with pytest.raises(ConfigurationError, match="is not a file"):
        read_key_file(tmp_path / "pipe")


# The file of who is authorized ----------------------------------------------------------------------------------------

RULES = f"# kept\nclient alice {pk('alice')} put=a\n"


@pytest.fixture
def rules(tmp_path: Path) -> Path:
    path = tmp_path / "authorized"
    path.write_text(RULES)
    return path


def adding(line: str) -> Callable[[str], str]:
    return lambda text: text + line + "\n"


def test_the_lines_of_an_access_list_are_read(rules: Path) -> None:
    assert [line.user.partition("#")[0] for line in read_authorized(rules).lines] == ["client:alice"]


def test_an_error_names_the_file_and_the_line(rules: Path) -> None:
    rules.write_text(RULES + "nonsense\n")
    with pytest.raises(AuthorizedRefused, match=rf"^authorized file {rules}, line 3: "):
        read_authorized(rules)


def test_a_missing_file_is_not_an_empty_one(tmp_path: Path) -> None:
    with pytest.raises(ConfigurationError, match="No such file"):
        read_authorized(tmp_path / "none")


@pytest.mark.parametrize("bits", [0o666, 0o602])
def test_an_access_list_writable_by_everybody_is_refused(rules: Path, bits: int) -> None:
    rules.chmod(bits)
    with pytest.raises(ConfigurationError, match=f"can be written by every user: chmod o-w {rules}"):
        read_authorized(rules)


def test_a_too_large_file_is_not_read_to_its_end(rules: Path) -> None:
    with rules.open("wb") as stream:
        stream.truncate(100 * 2**30)
    with pytest.raises(ConfigurationError, match="has more than 4,194,304 bytes"):
        read_authorized(rules)


def test_a_change_keeps_owner_mode_and_every_other_line(rules: Path) -> None:
    rules.chmod(0o640)
    if os.geteuid() == 0:
        os.chown(rules, 12345, 54321)
    before = rules.stat()
    old, new = edit_authorized(rules, adding(f"client bob {pk('bob')}"))
    after = rules.stat()
    assert rules.read_text() == RULES + f"client bob {pk('bob')}\n"
    assert (after.st_mode, after.st_uid, after.st_gid) == (before.st_mode, before.st_uid, before.st_gid)
    assert after.st_ino != before.st_ino
    assert (len(old.lines), len(new.lines)) == (1, 2)
    assert list(rules.parent.iterdir()) == [rules]


def test_a_change_through_a_link_changes_the_target_of_the_link(rules: Path, tmp_path: Path) -> None:
    link = tmp_path / "link"
    link.symlink_to(rules)
    edit_authorized(link, adding(f"client bob {pk('bob')}"))
    assert link.is_symlink()
    assert "bob" in rules.read_text()


def test_a_file_is_made_by_its_first_line(tmp_path: Path) -> None:
    path = tmp_path / "authorized"
    edit_authorized(path, adding(f"client bob {pk('bob')}"))
    assert len(read_authorized(path).lines) == 1
    assert mode(path) == 0o644


@pytest.mark.parametrize(
    ("content", "line"), [("", "#"), ("nonsense\n", "#"), (RULES, "nonsense"), (RULES, f"client bob {pk('alice')}")]
)
def test_a_file_that_is_invalid_or_would_be_is_unchanged(rules: Path, content: str, line: str) -> None:
    rules.write_text(content)
    before = rules.stat()
    with pytest.raises(AuthorizedRefused):
        edit_authorized(rules, adding(line))
    assert rules.read_text() == content
    assert rules.stat().st_ino == before.st_ino
    assert list(rules.parent.iterdir()) == [rules]


def test_an_empty_change_writes_nothing(rules: Path) -> None:
    before = rules.stat()
    edit_authorized(rules, lambda text: text)
    assert rules.stat().st_ino == before.st_ino


def test_an_exception_in_the_change_leaves_the_file_unchanged(rules: Path) -> None:
    def change(text: str) -> str:
        raise NotKnown("no such line")

    with pytest.raises(NotKnown):
        edit_authorized(rules, change)
    assert rules.read_text() == RULES


def test_a_full_disk_leaves_the_file_and_no_other(rules: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(descriptor: int) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(ConfigurationError, match=r"authorized file .*: No space left on device"):
        edit_authorized(rules, adding("# more"))
    assert rules.read_text() == RULES
    assert list(rules.parent.iterdir()) == [rules]


def test_concurrent_changes_are_all_kept(rules: Path) -> None:
    def work(number: int) -> None:
        for each in range(5):
            edit_authorized(rules, adding(f"client c{number}-{each} {pk(f'{number}-{each}')}"))

    threads = [threading.Thread(target=work, args=(number,)) for number in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(read_authorized(rules).lines) == 21


def test_a_change_that_does_not_end_keeps_another_from_waiting_forever(
    rules: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(files, "EDIT_SECONDS", 0.1)
    held = os.open(rules.parent, os.O_RDONLY)
    try:
        fcntl.flock(held, fcntl.LOCK_EX)
        with pytest.raises(ConfigurationError, match="is being changed by another command; try again"):
            edit_authorized(rules, adding("# more"))
    finally:
        os.close(held)
    edit_authorized(rules, adding("# more"))


# The file is looked at again and again -------------------------------------------------------------------------------


def test_a_change_of_any_kind_is_seen_once(rules: Path, tmp_path: Path) -> None:
    file = AuthorizedFile(rules)
    assert file.changed()
    assert len(file.load().lines) == 1
    assert not file.changed()

    def replace_it() -> None:
        edit_authorized(rules, adding(f"client bob {pk('bob')}"))

    def write_into_it() -> None:
        times = rules.stat()
        rules.write_text(rules.read_text().replace("put=a", "put=b"))
        os.utime(rules, ns=(times.st_atime_ns, times.st_mtime_ns))  # As a copying program would have it.

    for change in (replace_it, write_into_it):
        change()
        assert file.changed()
        assert len(file.load().lines) == 2
        assert not file.changed()


def test_an_unreadable_file_is_reported_once_until_it_changes(rules: Path) -> None:
    file = AuthorizedFile(rules)
    file.load()
    rules.write_text("nonsense\n")
    assert file.changed()
    with pytest.raises(AuthorizedRefused):
        file.load()
    assert not file.changed()
    rules.unlink()
    assert file.changed()
    with pytest.raises(ConfigurationError):
        file.load()
    assert not file.changed()
    rules.write_text(RULES)
    assert file.changed()
    assert len(file.load().lines) == 1
