"""The stream: synced entries are found again for any end of the file, and damaged ones are never handed on."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from pubsub.errors import StorageError, StoreDamaged
from pubsub.protocol.standby import ROOT, EntryId
from pubsub.server.standby.disk import stream as streams
from pubsub.server.standby.disk.stream import Stream
from pubsub.server.standby.replication.entries import Entry, make_entry
from pubsub.server.topic import changes as c

ALL = 1 << 40


def entry(number: int, previous: EntryId, size: int = 10, term: int = 1) -> Entry:
    changes = [c.BatchAppended(1, number, 1, 1, number, 9, 5, 0, bytes([number % 256]) * (size + 144))]
    made = make_entry(EntryId(term, number), previous, changes)
    return made._replace(parts=(b"".join(made.parts),))


def tiny(number: int) -> Entry:
    return make_entry(EntryId(1, number), EntryId(1, number - 1) if number > 1 else ROOT, [c.LogUsedUp(number)])


def chain(count: int, size: int = 10, base: EntryId = ROOT, term: int = 1) -> list[Entry]:
    out: list[Entry] = []
    for number in range(1, count + 1):
        out.append(entry(number, out[-1].id if out else base, size, term))
    return out


def files(directory: Path) -> list[Path]:
    return sorted(directory.iterdir())


@contextmanager
def opened(directory: Path, end: EntryId = ROOT, **more: int) -> Iterator[Stream]:
    stream = Stream(directory, end, **more)
    try:
        yield stream
    finally:
        stream.close()


def test_appended_entries_are_read_from_any_entry_on(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(streams, "RECENT_BYTES_MAX", 2000)
    entries = chain(300, 400)
    with opened(tmp_path) as stream:
        for one in entries:
            stream.append([one], own=False)
        for after in (ROOT, *(one.id for one in entries)):
            assert stream.holds(after)
            rest = entries[after.number :]
            assert stream.read(after, ALL, 1000) == rest if after.number >= 298 else True
            assert stream.read(after, 1, 1000) == rest[:1]
            found = stream.read(after, 2000, 3)
            assert found == rest[: len(found)]
            assert len(found) <= 3
        for absent in (EntryId(1, 301), EntryId(0, 5), EntryId(2, 1)):
            assert not stream.holds(absent)
            assert stream.read(absent, ALL, 1000) == []


@pytest.mark.slow
@pytest.mark.parametrize("store_end", [0, 2, 3])
def test_a_file_truncated_at_any_byte_gives_the_entries_before_it(tmp_path: Path, store_end: int) -> None:
    entries = [tiny(n) for n in range(1, 4)]
    with opened(tmp_path / "whole") as stream:
        stream.append(entries, own=False)
    (path,) = files(tmp_path / "whole")
    data = path.read_bytes()
    end = entries[store_end - 1].id if store_end else ROOT
    size = (len(data) - 36) // 3
    for length in range(len(data) + 1):
        directory = tmp_path / f"{length}"
        directory.mkdir()
        (directory / path.name).write_bytes(data[:length])
        with opened(directory, end) as stream:
            sound = max(0, length - 36) // size
            assert stream.staged == entries[store_end:sound]
            assert stream.end == max(end, entries[sound - 1].id if sound else ROOT)
            assert [one.stat().st_size for one in files(directory)] == [stream.position]
            stream.append([entry(9, stream.end)], own=False)
            assert stream.read(end, ALL, 9)[-1].id == (1, 9)
        with opened(directory, end) as stream:
            assert stream.end == (1, 9)


@pytest.mark.slow
def test_an_entry_with_a_flipped_bit_is_never_read_and_a_lost_confirmed_entry_is_noticed(tmp_path: Path) -> None:
    entries = chain(4)
    with opened(tmp_path / "whole") as stream:
        for one in entries:
            stream.append([one], own=False)
            stream.sync()
    (path,) = files(tmp_path / "whole")
    data = path.read_bytes()
    last = len(data) - (len(data) - 36) // 4
    heads = [place for place in range(len(data)) if (place - 36) % ((len(data) - 36) // 4) < 64 or place < 36]
    for place in sorted({*heads, *range(0, len(data), 11)}):
        for store_end in (ROOT, entries[1].id):
            directory = tmp_path / f"{place} {store_end.number}"
            directory.mkdir()
            (directory / path.name).write_bytes(data[:place] + bytes([data[place] ^ 4]) + data[place + 1 :])
            missing = entries[store_end.number :]
            try:
                with opened(directory, store_end) as stream:
                    staged = stream.staged
            except StoreDamaged:
                with opened(directory, store_end, forget=True) as stream:
                    assert stream.staged == missing[: len(stream.staged)]
                    assert stream.end == (stream.staged[-1].id if stream.staged else store_end)
                continue
            # A flipped bit of the last entry looks like a power cut.
            assert staged == (missing[:-1] if place >= last else missing), place
            assert place >= 36, "without its head nothing of a file can be read"


def damaged(directory: Path, place: int) -> None:
    """Flip a bit of the only file."""
    (path,) = files(directory)
    data = bytearray(path.read_bytes())
    data[place] ^= 1
    path.write_bytes(data)


@pytest.mark.parametrize("place", [60, 110])  # In the head of the first entry, and behind that.
def test_damage_to_entries_that_the_store_has_does_not_stop_a_member(tmp_path: Path, place: int) -> None:
    entries = [tiny(n) for n in range(1, 5)]
    for own in (False, True):
        directory = tmp_path / f"{own}"
        with opened(directory) as stream:
            stream.append(entries[:1], own=False)
            stream.sync()
            for one in entries[1:]:
                stream.append([one], own=own)
                if not own:
                    stream.sync()
        damaged(directory, place)
        store_end = entries[2 if own else 3].id  # A primary's last entry was not committed yet.
        with opened(directory, store_end) as stream:
            assert (stream.end, stream.staged) == (store_end, [])


def test_an_entry_with_another_predecessor_is_not_read(tmp_path: Path) -> None:
    """The entries behind it may be from before a drop."""
    one, two, three = (tiny(n) for n in range(1, 4))
    instead = make_entry(EntryId(1, 7), one.id, [c.LogUsedUp(7)])
    assert instead.size == two.size
    data = []
    for name, entries in (("before", [one, two, three]), ("after", [one, instead])):
        with opened(tmp_path / name) as stream:
            stream.append(entries, own=False)
        data.append(files(tmp_path / name)[0].read_bytes())
    before, after = data
    files(tmp_path / "after")[0].write_bytes(after + before[len(after) :])
    with opened(tmp_path / "after") as stream:
        assert stream.staged == [one, instead]
        assert files(tmp_path / "after")[0].stat().st_size == len(after)


def test_a_primary_may_lack_its_last_entries_after_a_power_cut(tmp_path: Path) -> None:
    entries = chain(3)
    with opened(tmp_path) as stream:
        stream.append(entries, own=True)
        (path,) = files(tmp_path)
        os.truncate(path, stream.position - 1)
    with opened(tmp_path, entries[-1].id) as stream:
        assert stream.end == entries[-1].id
        assert not stream.holds(entries[1].id)


def test_every_appended_entry_is_synced_in_whichever_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    synced: set[str] = set()
    real = os.fdatasync

    def sync(file: int) -> None:
        synced.add(Path(os.readlink(f"/proc/self/fd/{file}")).name)
        real(file)

    with opened(tmp_path, bytes_max=20_000) as stream:
        monkeypatch.setattr(os, "fdatasync", sync)
        stream.append(chain(20, 300), own=True)
        assert synced == set()  # A primary waits for no disk but the store's.
        stream.sync()
        assert synced == {path.name for path in files(tmp_path)}
        assert len(synced) > 3
        synced.clear()
        stream.append([entry(21, stream.end)], own=False)
        stream.sync()
        assert len(synced) == 1


def test_uncommitted_entries_of_a_primary_never_return(tmp_path: Path) -> None:
    entries = chain(6)
    with opened(tmp_path) as stream:
        stream.append(entries[:3], own=False)
        stream.append(entries[3:], own=True)
    with opened(tmp_path, entries[3].id) as stream:
        assert (stream.staged, stream.end) == ([], entries[3].id)
        assert stream.read(ROOT, ALL, 9) == entries[:4]
    with opened(tmp_path, entries[0].id) as stream:
        assert stream.staged == entries[1:3]


def test_a_stream_that_does_not_reach_the_store_begins_anew_there(tmp_path: Path) -> None:
    with opened(tmp_path) as stream:
        stream.append(chain(5), own=True)
    for end in (EntryId(1, 6), EntryId(2, 1), EntryId(1, 6)):
        with opened(tmp_path, end) as stream:
            assert (stream.end, stream.staged) == (end, [])
            assert not stream.holds(EntryId(1, 5))
        assert len(files(tmp_path)) == 1


def test_dropped_entries_are_gone_and_others_follow(tmp_path: Path) -> None:
    entries = chain(40, 300)
    with opened(tmp_path, bytes_max=20_000) as stream:
        stream.append(entries, own=False)
        assert len(files(tmp_path)) > 3
        stream.cut(entries[25].id)
        assert not stream.holds(entries[26].id)
        other = entry(50, entries[25].id)
        stream.append([other], own=False)
        assert stream.read(entries[25].id, ALL, 9) == [other]
        with pytest.raises(StorageError, match="is not in the stream"):
            stream.cut(EntryId(1, 45))
        with pytest.raises(StorageError, match="does not follow"):
            stream.append([entries[27]], own=False)
    with opened(tmp_path, entries[20].id, bytes_max=20_000) as stream:
        assert stream.staged == [*entries[21:26], other]


def test_a_stream_stays_within_its_limit_except_for_pinned_entries(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(streams, "RECENT_BYTES_MAX", 1)
    entries = chain(300, 300)
    with opened(tmp_path, bytes_max=20_000) as stream:
        for one in entries[:100]:
            stream.append([one], own=True)
            assert stream.size <= 20_000
        assert not stream.holds(ROOT)
        stream.pin(entries[80].id)
        for one in entries[100:140]:
            stream.append([one], own=True)
        assert stream.holds(entries[80].id)
        assert 20_000 < stream.size <= 40_000
        for one in entries[140:]:
            stream.append([one], own=True)
            assert stream.size <= 42_000
        assert not stream.holds(entries[80].id)
        assert sum(path.stat().st_size for path in files(tmp_path)) <= 45_000
        stream.pin(entries[-1].id)  # The entries after a late one are kept by far less.
        stream.append([entry(400, entries[-1].id)], own=True)
        assert stream.size <= 20_000


def test_a_copied_store_begins_its_own_stream_even_if_the_process_ends_midway(tmp_path: Path) -> None:
    old, base = chain(30, 300), EntryId(2, 7)
    with opened(tmp_path, bytes_max=100_000) as stream:
        stream.append(old, own=False)
        kept = [(path, path.read_bytes()) for path in files(tmp_path)]
        stream.reset(base)
        assert (stream.end, len(files(tmp_path))) == (base, 1)
        assert not stream.holds(old[5].id)
    for path, data in kept:  # As if it ended before the old files were removed.
        path.write_bytes(data)
    with opened(tmp_path, base, bytes_max=100_000) as stream:
        assert (stream.end, stream.staged) == (base, [])
        assert not stream.holds(old[5].id)
        for path, data in kept:
            path.write_bytes(data)
    with opened(tmp_path, old[3].id, bytes_max=100_000) as stream:
        assert stream.staged == old[4:]


def test_a_damaged_old_file_is_abandoned_and_none_of_it_is_sent(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(streams, "RECENT_BYTES_MAX", 1)
    entries = chain(40, 300)
    for place in (500, 20):
        directory = tmp_path / f"{place}"
        with opened(directory, bytes_max=80_000) as stream:
            stream.append(entries, own=True)
        path = files(directory)[1]
        data = bytearray(path.read_bytes())
        data[place] ^= 1
        path.write_bytes(data)
        with opened(directory, entries[-1].id, bytes_max=80_000) as stream:
            for after in (ROOT, *(one.id for one in entries)):
                for found, expected in zip(stream.read(after, ALL, 100), entries[after.number :], strict=False):
                    assert found == expected
            assert not stream.holds(ROOT)
            assert stream.holds(entries[-2].id)


@pytest.mark.parametrize(("number", "applied"), [(0, 0), (1, 1), (-1, 30)])
def test_a_file_without_its_head_reveals_the_confirmed_entries_behind_it(
    tmp_path: Path, number: int, applied: int
) -> None:
    entries = chain(40, 300)
    with opened(tmp_path, bytes_max=80_000) as stream:
        for one in entries:
            stream.append([one], own=False)
            stream.sync()
    end = entries[applied - 1].id if applied else ROOT
    path = files(tmp_path)[number]
    path.write_bytes(bytes(36) + path.read_bytes()[36:])
    for _ in range(2):  # A process that ended before this was written finds it again.
        with pytest.raises(StoreDamaged), opened(tmp_path, end, bytes_max=80_000):
            pass
    with opened(tmp_path, end, bytes_max=80_000, forget=True) as stream:
        assert stream.staged == entries[applied : applied + len(stream.staged)]
        assert path not in files(tmp_path)


def test_an_unfinished_file_is_no_loss(tmp_path: Path) -> None:
    entries = chain(40, 300)
    with opened(tmp_path, bytes_max=80_000) as stream:
        stream.append(entries[:5], own=False)
        stream.sync()
        stream.append(entries[5:], own=False)
        begun = files(tmp_path)[1:]
    for path in begun:  # The power was cut before the sync that followed.
        path.write_bytes(bytes(36) + path.read_bytes()[36:])
    with opened(tmp_path, bytes_max=80_000) as stream:
        assert stream.staged[:5] == entries[:5]
        assert len(files(tmp_path)) == 1


def test_entries_that_the_store_lacks_stay_above_the_streams_size_limit(tmp_path: Path) -> None:
    entries = chain(100, 300)
    with opened(tmp_path, bytes_max=4_000) as stream:
        for one in entries:
            stream.append([one], own=False)
        stream.sync()
    with opened(tmp_path, bytes_max=4_000) as stream:
        assert stream.staged == entries
        stream.applied(entries[-2].id)
        stream.append([entry(101, entries[-1].id)], own=False)
        assert stream.size <= 4_000
