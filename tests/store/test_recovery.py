"""What a store makes of what was left behind: clean, killed, torn, damaged, half deleted."""

import random
import struct
import threading
from contextlib import suppress
from pathlib import Path

import pytest

from rockstrata.errors import ConfigError, CorruptionError, ForeignFileError, StoreLockedError
from rockstrata.store.checkpoint import CHECKPOINT
from rockstrata.store.results import GetStatus
from rockstrata.testing.forgetful_disk import ForgetfulDisk, PowerCut
from rockstrata.testing.manual_clock import ManualClock
from store.store_kit import (
    ASYNC,
    NOW,
    ROOT,
    bodies,
    flip,
    letter,
    letters,
    log_path,
    open_store,
    put_all,
    queue_path,
    read_queue_of,
    records_of,
    settle,
)
from store.world import World

SIZE_AT, MAGIC_AT, QUEUE_OFFSET_AT, PHYSICAL_AT, BODY_LENGTH_AT, BODY_AT = 0, 4, 20, 28, 84, 88


def body_list(first: int, end: int) -> list[bytes]:
    return [letter(n).body for n in range(first, end)]


def written(count: int, *, end: str, vouched: str = "all", **changes) -> tuple[ForgetfulDisk, list]:
    """A disk with so many letters, one a millisecond, left clean, killed or cut off."""
    clock = ManualClock(NOW)
    disk = ForgetfulDisk(clock)
    store = open_store(disk, clock, **changes)
    results = []
    for n in range(count):
        clock.advance(1)
        results.append(store.put(letter(n)))
    settle(store)
    if vouched == "all":
        store._queue_flusher.flush_all()
    else:
        store.checkpoint.flush()
    if end == "clean":
        store.close()
        return disk.power_cut(), results
    return disk.kill() if end == "kill" else disk.power_cut(), results


def content(disk: ForgetfulDisk) -> dict[Path, bytes]:
    """Every file but those every start touches."""
    return {
        path: bytes(inode.volatile)
        for path, inode in disk._names.files()
        if path.name not in ("abort", "lock", "checkpoint")
    }


ENDS = ["clean", "kill", "cut"]


@pytest.mark.parametrize("end", ENDS)
@pytest.mark.parametrize("count", [0, 1, 22, 23, 24, 100])
def test_everything_is_back_after_each_kind_of_end(end, count):
    disk, _results = written(count, end=end)
    store = open_store(disk)

    assert store.recovery.clean is (end == "clean")
    assert bodies(store) == body_list(0, count)
    assert store.commit_log.flushed_where == store.dispatcher.position == store.commit_log.max_offset
    for n in range(0, count, 7):
        assert [m.body for m in store.query("orders", f"key{n}")] == [letter(n).body]
    put_all(store, letters(30, first=count))
    assert bodies(store) == body_list(0, count + 30)
    store.close()
    with open_store(disk) as again:
        assert bodies(again) == body_list(0, count + 30)


def test_a_clean_start_reads_only_the_last_record():
    disk, results = written(100, end="clean")
    store = open_store(disk)
    assert store.recovery.scanned_from == results[-1].physical_offset
    assert store.recovery.records == 1
    assert store.recovery.cut_bytes == 0


def test_an_unclean_start_reads_only_what_the_checkpoint_does_not_vouch_for():
    disk, _results = written(100, end="kill", message_index_enable=False)
    store = open_store(disk, message_index_enable=False)
    assert store.recovery.scanned_from == store.commit_log.queue.files[-1].start
    assert bodies(store) == body_list(0, 100)


@pytest.mark.parametrize("end", ENDS)
def test_times_do_not_go_back_over_a_start(end):
    disk, results = written(10, end=end)
    clock = ManualClock(NOW - 1_000_000)
    with open_store(disk, clock) as store:
        assert store.put(letter(10)).store_timestamp == results[-1].store_timestamp


# The tail.


@pytest.mark.parametrize(
    "garbage", ["noise", "ones", "half a record", "a record of another place", "a blank"]
)
def test_what_lies_behind_the_last_record_after_a_crash_is_cut_and_wiped(garbage):
    disk, results = written(30, end="kill", flush_disk_type=ASYNC)
    end = results[-1].physical_offset + results[-1].record_bytes
    file = disk.open(log_path(end - end % 4096))
    position = end % 4096
    record = disk.read_bytes(log_path())[: results[0].record_bytes]
    data = {
        "noise": random.Random(1).randbytes(300),
        "ones": b"\xff" * 300,
        "half a record": record[: len(record) // 2],
        "a record of another place": record * 3,
        "a blank": struct.pack(">iI", 4096 - position, 0xCBD43194) + b"old bytes",
    }[garbage]
    file.pwrite(position, data)

    with open_store(disk, flush_disk_type=ASYNC) as store:
        assert bodies(store) == body_list(0, 30)
        assert store.commit_log.max_offset == end
        assert disk.read_bytes(file.path)[position:] == bytes(4096 - position)
        put_all(store, letters(30, first=30))
        assert bodies(store) == body_list(0, 60)


@pytest.mark.parametrize("keep_bytes", [0, 3, 8, 12, 50, 88, 100, 150, 160, 175])
@pytest.mark.parametrize("properties", [{}, {"filler": "x" * 100}], ids=["bare", "with properties"])
def test_a_torn_last_record_is_cut_wherever_it_was_torn(keep_bytes, properties):
    disk = ForgetfulDisk()
    store = open_store(disk, flush_disk_type=ASYNC)
    put_all(store, letters(5))
    last = store.put(letter(5, properties=properties))
    disk = disk.kill()
    file = disk.open(log_path())
    file.pwrite(last.physical_offset + keep_bytes, bytes(last.record_bytes - keep_bytes))

    with open_store(disk, flush_disk_type=ASYNC) as after:
        assert bodies(after) == body_list(0, 5)
        assert after.put(letter(6)).queue_offset == 5
        assert disk.read_bytes(log_path())[after.commit_log.max_offset :].count(0) > 0


@pytest.mark.parametrize("lost_sector", range(1, 9))
def test_properties_that_lost_a_sector_in_their_middle_are_cut(lost_sector):
    """The body's checksum is right, the end is there: only the hole tells."""
    disk = ForgetfulDisk()
    store = open_store(disk, flush_disk_type=ASYNC, commit_log_file_bytes=1 << 14)
    store.put(letter(0, properties={"filler": "x" * 4200}))
    disk = disk.kill()
    disk.open(log_path()).pwrite(lost_sector * 512, bytes(512))
    after = open_store(disk, flush_disk_type=ASYNC, commit_log_file_bytes=1 << 14)
    assert bodies(after) == []


def test_properties_with_zeros_of_their_own_are_not_taken_for_torn_ones():
    disk = ForgetfulDisk()
    store = open_store(disk, flush_disk_type=ASYNC)
    put_all(store, [letter(n, properties={"zeros": "a\0\0b" * 100}) for n in range(8)])
    assert len(bodies(open_store(disk.kill(), flush_disk_type=ASYNC))) == 8


def test_old_bytes_never_come_back():
    """Write much, lose the tail, write less, crash again: nothing of the first life may be read."""
    dice = random.Random(5)
    disk = ForgetfulDisk()
    kept: list[bytes] = []
    number = 0
    for life in range(12):
        store = open_store(disk, flush_disk_type=ASYNC)
        assert bodies(store) == kept
        sent = letters(dice.randrange(40), first=number, body_bytes=dice.choice([30, 60, 400]))
        number += len(sent)
        for message in sent:
            store.put(message)
        store.dispatcher.catch_up()
        if dice.random() < 0.3:
            store.commit_log.sync()
            if dice.random() < 0.5:
                store._queue_flusher.flush_all()
        survivors = random.Random(life)
        disk = disk.power_cut(survivors)
        after = open_store(disk, flush_disk_type=ASYNC)
        found = bodies(after)
        assert found == (kept + [m.body for m in sent])[: len(found)]
        kept = found
        disk = disk.power_cut(survivors)


def test_a_file_made_ahead_and_left_by_a_kill_is_no_obstacle():
    for made in (bytes(4096), b""):
        disk, _ = written(50, end="kill")
        ahead = int(disk.list_files(ROOT / "commitlog")[-1]) + 4096
        disk.create(log_path(ahead), len(made), reserve=False)
        store = open_store(disk)
        assert bodies(store) == body_list(0, 50)
        put_all(store, letters(60, first=50))
        assert bodies(store) == body_list(0, 110)


def test_a_log_that_ends_in_a_blank_goes_on_in_its_place():
    disk = ForgetfulDisk()
    store = open_store(disk)
    results = put_all(store, letters(23))
    disk.fail("create")
    assert not store.put(letter(23)).ok
    store.close()
    with open_store(disk) as again:
        assert bodies(again) == body_list(0, 23)
        end = results[-1].physical_offset + results[-1].record_bytes
        assert again.put(letter(23, body_bytes=1, tags=None, keys=None)).physical_offset in (end, 4096)
        put_all(again, letters(30, first=24))


@pytest.mark.parametrize("lost", ["everything", "the first record"])
def test_a_log_whose_last_file_holds_nothing_ends_at_the_blank_before_it(lost):
    disk = ForgetfulDisk()
    store = open_store(disk, flush_disk_type=ASYNC)
    first = put_all(store, letters(22))
    store.put(letter(22, body_bytes=900))
    store.commit_log.sync()
    disk = disk.kill()
    file = disk.open(log_path(4096))
    if lost == "everything":
        file.pwrite(0, bytes(4096))
    else:
        file.pwrite(200, bytes(600))
    disk.unlink(ROOT / "checkpoint")
    after = open_store(disk, flush_disk_type=ASYNC)
    assert after.commit_log.max_offset == first[-1].physical_offset + first[-1].record_bytes
    after.close()
    assert after.checkpoint.logics_physical_offset <= after.commit_log.max_offset
    with open_store(disk) as again:
        assert again.recovery.clean
        put_all(again, letters(20, first=100))
        assert bodies(again) == body_list(0, 22) + body_list(100, 120)


def test_the_checkpoint_does_not_vouch_for_index_files_of_records_that_were_lost():
    clock = ManualClock(NOW)
    disk = ForgetfulDisk(clock)
    store = open_store(disk, clock, flush_disk_type=ASYNC, max_index_num=20)
    for n in range(100):
        clock.advance(10)
        store.put(letter(n))
    store.dispatcher.catch_up()
    store.index.seal()
    store.checkpoint.flush()
    assert store.checkpoint.index_msg_timestamp > NOW
    after = open_store(disk.power_cut(), clock, flush_disk_type=ASYNC, max_index_num=20)
    assert after.checkpoint.index_msg_timestamp == 0


# Damage to what was durable.


@pytest.mark.parametrize("end", ENDS)
@pytest.mark.parametrize("victim", [0, 10, 24, 60, 98])
def test_a_flipped_bit_in_a_body_costs_that_message_and_no_other(end, victim):
    disk, results = written(100, end=end)
    where = results[victim].physical_offset
    flip(disk, log_path(where - where % 4096), where % 4096 + BODY_AT + 20)

    store = open_store(disk)

    assert store.max_offset("orders", 0) == 100
    with pytest.raises(CorruptionError) as caught:
        store.message_at(where)
    assert caught.value.position == where
    with pytest.raises(CorruptionError):
        store.get("orders", 0, victim, 1).messages()
    for n in set(range(0, 100, 9)) - {victim}:
        assert store.get("orders", 0, n, 1).messages()[0].body == letter(n).body
    put_all(store, letters(1, first=100))


@pytest.mark.parametrize("end", ENDS)
@pytest.mark.parametrize("victim", [1, 30, 97])
@pytest.mark.parametrize("field", [SIZE_AT + 3, SIZE_AT + 1, SIZE_AT, MAGIC_AT, BODY_LENGTH_AT + 3])
def test_a_flipped_bit_in_a_header_keeps_the_store_shut_until_it_is_repaired(end, victim, field):
    # Without its queues a store that was left clean must walk the whole log, too.
    disk, results = written(100, end=end, message_index_enable=False, vouched="the log")
    where = results[victim].physical_offset
    path, position = log_path(where - where % 4096), where % 4096
    flip(disk, path, position + field, 0x10)
    if end == "clean":
        for name in disk.list_files(queue_path().parent):
            disk.unlink(queue_path().parent / name)
    before = content(disk)

    with pytest.raises(CorruptionError) as caught:
        open_store(disk, message_index_enable=False)

    assert caught.value.path == str(path)
    assert caught.value.position == position
    assert {p: d for p, d in content(disk).items() if "commitlog" in str(p)} == {
        p: d for p, d in before.items() if "commitlog" in str(p)
    }
    with pytest.raises(CorruptionError):
        open_store(disk, message_index_enable=False)
    repaired = open_store(disk, message_index_enable=False, repair=True)
    assert bodies(repaired) == body_list(0, victim)
    put_all(repaired, letters(5, first=victim))
    repaired.close()
    assert bodies(open_store(disk, message_index_enable=False)) == body_list(0, victim + 5)


@pytest.mark.parametrize("field", [SIZE_AT + 3, SIZE_AT, MAGIC_AT, BODY_LENGTH_AT + 3])
def test_a_damaged_header_of_the_last_record_of_a_clean_store_is_an_error(field):
    disk, results = written(100, end="clean")
    where = results[-1].physical_offset
    flip(disk, log_path(where - where % 4096), where % 4096 + field, 0x10)
    with pytest.raises(CorruptionError):
        open_store(disk)
    with open_store(disk, repair=True) as store:
        assert bodies(store) == body_list(0, 99)


@pytest.mark.parametrize("end", ["clean", "kill"])
def test_a_size_that_reaches_past_the_file_does_not_hang_the_start(end):
    size = 1 << 18
    disk, results = written(40, end=end, commit_log_file_bytes=size)
    file = disk.open(log_path())
    file.pwrite(results[-1].physical_offset, (size * 4).to_bytes(4, "big"))
    if end == "clean":
        with pytest.raises(CorruptionError):
            open_store(disk, commit_log_file_bytes=size)
    store = open_store(disk, commit_log_file_bytes=size, repair=True)
    assert bodies(store) == body_list(0, 39)


def test_a_hole_in_the_durable_log_is_not_taken_for_its_end():
    disk, _ = written(100, end="kill")
    disk.open(log_path(8192)).pwrite(0, bytes(4096))
    store = open_store(disk, message_index_enable=False)
    # The checkpoint vouches for that file's queues, so it was not walked; nothing was cut.
    assert store.commit_log.max_offset > 12288
    with pytest.raises(CorruptionError) as caught:
        store.message_at(8192)
    assert caught.value.path == str(log_path(8192))
    assert log_path(12288).name in disk.list_files(ROOT / "commitlog")


# Queues and index.


def queue_files(disk: ForgetfulDisk) -> list[Path]:
    return [path for path in content(disk) if "consumequeue" in path.parts]


@pytest.mark.parametrize("end", ENDS)
def test_deleted_queues_are_rebuilt_from_the_log(end):
    disk, _ = written(100, end=end)
    for path in queue_files(disk):
        disk.unlink(path)
    with open_store(disk) as store:
        assert bodies(store) == body_list(0, 100)
        put_all(store, letters(5, first=100))
    assert bodies(open_store(disk.power_cut())) == body_list(0, 105)


@pytest.mark.parametrize("end", ["kill", "cut"])
def test_a_deleted_index_is_rebuilt_after_an_unclean_end(end):
    disk, _ = written(100, end=end)
    for name in disk.list_files(ROOT / "index"):
        disk.unlink(ROOT / "index" / name)
    store = open_store(disk)
    for n in range(100):
        assert [m.body for m in store.query("orders", f"key{n}")] == [letter(n).body]


@pytest.mark.parametrize("end", ["kill", "cut"])
@pytest.mark.parametrize("damage", ["zeros", "missing", "empty", "short queue", "one queue gone"])
def test_queues_that_lost_units_they_should_have_are_all_rebuilt(end, damage):
    clock = ManualClock(NOW)
    disk = ForgetfulDisk(clock)
    store = open_store(disk, clock)
    for n in range(200):
        clock.advance(1)
        store.put(letter(n, queue_id=n % 2))
    settle(store)
    store._queue_flusher.flush_all()
    disk = disk.kill() if end == "kill" else disk.power_cut()
    paths = [queue_path(start=start) for start in (0, 400, 800, 1200, 1600)]
    if damage == "zeros":
        disk.open(paths[3]).pwrite(0, bytes(400))
    elif damage == "missing":
        disk.unlink(paths[2])
    elif damage == "empty":
        disk.unlink(paths[2])
        disk.create(paths[2], 0, reserve=False)
    elif damage == "short queue":
        for path in paths[2:]:
            disk.unlink(path)
    else:
        for path in paths:
            disk.unlink(path)
    if damage == "one queue gone":
        # Nothing but a rebuild of everything would find these again; RocketMQ would not, either.
        for path in queue_files(disk):
            disk.unlink(path)

    after = open_store(disk)

    for q in (0, 1):
        assert bodies(after, queue_id=q) == [letter(n).body for n in range(200) if n % 2 == q]
    for n in range(0, 200, 17):
        assert [m.body for m in after.query("orders", f"key{n}")] == [letter(n).body]


def test_holes_in_queue_files_older_than_the_last_three_are_found():
    clock = ManualClock(NOW)
    disk = ForgetfulDisk(clock)
    store = open_store(disk, clock, consume_queue_file_bytes=40, message_index_enable=False)
    for n in range(60):
        clock.advance(1)
        store.put(letter(n))
    settle(store)
    third = queue_path(start=40 * 5)
    disk = disk.power_cut(lambda change: change.path != third)
    after = open_store(disk, consume_queue_file_bytes=40, message_index_enable=False)
    assert bodies(after) == body_list(0, 60)


def test_queues_ahead_of_the_log_are_cut_to_it():
    """The log lost its tail, the queues did not: an asynchronous store after a power cut."""
    clock = ManualClock(NOW)
    disk = ForgetfulDisk(clock)
    store = open_store(disk, clock, flush_disk_type=ASYNC)
    put_all(store, letters(30))
    for n in range(30, 100):
        store.put(letter(n))
    store.dispatcher.catch_up()
    store.queues.flush()
    disk = disk.power_cut(lambda change: "consumequeue" in change.path.parts)
    after = open_store(disk, flush_disk_type=ASYNC)
    assert bodies(after) == body_list(0, 30)
    put_all(after, letters(70, first=200))
    assert bodies(after) == body_list(0, 30) + body_list(200, 270)


def test_units_cut_from_an_emptied_queue_never_come_back():
    """A queue that lost all its messages is empty on the platter, too, before anyone vouches for it."""
    clock = ManualClock(NOW)
    disk = ForgetfulDisk(clock)
    store = open_store(disk, clock, flush_disk_type=ASYNC)
    put_all(store, letters(3))
    store.put(letter(3, topic="lost"))
    store.dispatcher.catch_up()
    store.queues.flush()
    disk = disk.power_cut(lambda change: "consumequeue" in change.path.parts)
    store = open_store(disk, clock, flush_disk_type=ASYNC)
    assert bodies(store, "lost") == []
    for n in range(4, 100):
        clock.advance(1)
        store.put(letter(n))
    settle(store)
    store._queue_flusher.flush_all()
    after = open_store(disk.power_cut(), flush_disk_type=ASYNC)
    assert after.get("lost", 0, 0).status is GetStatus.NO_MESSAGE_IN_QUEUE
    assert len(bodies(after)) == 99


def test_no_empty_queue_file_is_left_for_a_broker_to_misread():
    disk = ForgetfulDisk()
    store = open_store(disk, flush_disk_type=ASYNC)
    store.put(letter(0))
    store.dispatcher.catch_up()
    store.queues.flush()
    disk = disk.power_cut(lambda change: "consumequeue" in change.path.parts)
    store = open_store(disk, flush_disk_type=ASYNC)
    assert disk.list_files(queue_path().parent) == []
    assert store.put(letter(0)).queue_offset == 0


def test_a_checkpoint_ahead_of_the_log_does_no_harm():
    """RocketMQ's asynchronous store notes queue positions that its log may lose."""
    disk, results = written(100, end="kill", flush_disk_type=ASYNC)
    file = disk.open(ROOT / "checkpoint")
    numbers = list(CHECKPOINT.struct.unpack(file.pread(0, 48)))
    numbers[0] = NOW + 90
    numbers[5] = 1 << 40
    file.pwrite(0, CHECKPOINT.struct.pack(*numbers))
    last = results[-1]
    file = disk.open(log_path(last.physical_offset - last.physical_offset % 4096))
    file.pwrite(last.physical_offset % 4096 + 100, bytes(last.record_bytes - 100))
    with open_store(disk, flush_disk_type=ASYNC) as store:
        assert bodies(store) == body_list(0, 99)
    assert CHECKPOINT.struct.unpack(disk.read_bytes(ROOT / "checkpoint")[:48])[5] == last.physical_offset


@pytest.mark.parametrize("end", ["kill", "cut"])
@pytest.mark.parametrize("file", [None, b"", bytes(4096)])
def test_without_a_checkpoint_everything_is_scanned_and_nothing_lost(end, file):
    disk, _ = written(100, end=end)
    disk.unlink(ROOT / "checkpoint")
    if file is not None:
        disk.write_file(ROOT / "checkpoint", file)
    store = open_store(disk)
    assert store.recovery.scanned_from == 0
    assert bodies(store) == body_list(0, 100)


def test_a_checkpoint_in_the_style_of_5_3_works_by_its_times():
    disk, _ = written(100, end="kill", message_index_enable=False)
    file = disk.open(ROOT / "checkpoint")
    numbers = list(CHECKPOINT.struct.unpack(file.pread(0, 48)))
    numbers[0] = numbers[1] = NOW + 60 + 3000
    numbers[5] = 0
    file.pwrite(0, CHECKPOINT.struct.pack(*numbers))
    store = open_store(disk, message_index_enable=False)
    assert 0 < store.recovery.scanned_from < store.commit_log.queue.last.start
    assert bodies(store) == body_list(0, 100)


# Nothing there, or the wrong things.


def test_queues_without_a_log_are_not_thrown_away_after_a_clean_end():
    disk, _ = written(30, end="clean")
    for name in disk.list_files(ROOT / "commitlog"):
        disk.unlink(ROOT / "commitlog" / name)
    before = content(disk)
    with pytest.raises(CorruptionError, match="without a commit log"):
        open_store(disk)
    assert content(disk) == before
    assert not disk.exists(ROOT / "abort")


def test_missing_last_log_files_are_told_after_a_clean_end():
    disk, _ = written(100, end="clean")
    disk.unlink(ROOT / "commitlog" / disk.list_files(ROOT / "commitlog")[-1])
    before = content(disk)
    with pytest.raises(CorruptionError, match="past the end"):
        open_store(disk)
    assert content(disk) == before


def test_a_log_that_starts_anew_is_not_measured_by_the_old_checkpoint():
    disk, _ = written(100, end="kill")
    for path in content(disk):
        disk.unlink(path)
    store = open_store(disk, flush_disk_type=ASYNC)
    first = put_all(store, letters(2))
    torn = store.put(letter(2))
    disk = disk.kill()
    file = disk.open(log_path())
    file.pwrite(torn.physical_offset + 100, b"\xff" * 20)
    after = open_store(disk, flush_disk_type=ASYNC)
    assert bodies(after) == body_list(0, 2)
    assert after.commit_log.max_offset == first[1].physical_offset + first[1].record_bytes


BROKEN = {
    "a foreign log file": (ForeignFileError, ROOT / "commitlog" / "readme.txt", b"hello"),
    "a short log file": (ForeignFileError, ROOT / "commitlog" / f"{4096 * 50:020d}", b"x" * 100),
    "a gap in the log": (CorruptionError, ROOT / "commitlog" / f"{4096 * 50:020d}", b"x" * 4096),
    "a foreign queue file": (ForeignFileError, queue_path().parent / "readme.txt", b"hello"),
    "a queue file of another size": (ForeignFileError, queue_path(start=4000), b"x" * 100),
    "a cut-off checkpoint": (CorruptionError, ROOT / "checkpoint", b"x" * 20),
    "broken topics": (ConfigError, ROOT / "config" / "topics.json", b"{oops"),
    "broken consumer offsets": (ConfigError, ROOT / "config" / "consumerOffset.json", b"\xff\xfe"),
    "a queue of the wrong kind": (
        ConfigError,
        ROOT / "config" / "topics.json",
        b'{"topicConfigTable":{"orders":{"topicName":"orders","attributes":{"queue.type":"BatchCQ"}}}}',
    ),
}


@pytest.mark.parametrize("end", ["clean", "kill"])
@pytest.mark.parametrize("broken", BROKEN)
def test_a_store_that_cannot_be_opened_says_why_and_is_left_as_it_was(broken, end):
    error, path, data = BROKEN[broken]
    disk, _ = written(30, end=end)
    for backup in (path.with_name(path.name + ".bak"), path):
        if "config" in path.parts or path.name == "checkpoint":
            disk.unlink(backup)
    disk.write_file(path, data)
    before = content(disk)
    threads = threading.active_count()

    with pytest.raises(error) as caught:
        open_store(disk, services=True)

    assert caught.value.path == str(path) or path.name in str(caught.value) or "orders" in str(caught.value)
    assert content(disk) == before
    assert threading.active_count() == threads
    assert disk.exists(ROOT / "abort") is (end == "kill")
    disk.unlink(path)
    with open_store(disk) as store:
        assert store.recovery.clean is (end == "clean")
        assert bodies(store) == body_list(0, 30)


def test_a_second_store_in_the_same_process_is_refused_and_the_first_unharmed():
    disk = ForgetfulDisk()
    with open_store(disk) as store:
        with pytest.raises(StoreLockedError):
            open_store(disk)
        put_all(store, letters(3))
    with open_store(disk) as store:
        assert store.recovery.clean


# Ends.


def test_bytes_that_were_not_dispatched_keep_the_abort_mark():
    from rockstrata.store.running_flags import Flag

    disk = ForgetfulDisk()
    store = open_store(disk)
    put_all(store, letters(3))
    store.appender.put(letter(3))
    store.flags.set(Flag.LOGICS_QUEUE_ERROR, "test")
    store.close()

    assert disk.exists(ROOT / "abort")
    with open_store(disk) as again:
        assert not again.recovery.clean
        assert bodies(again) == body_list(0, 4)


def test_nothing_that_fails_in_a_close_makes_a_store_look_clean():
    for calls in range(200):
        disk = ForgetfulDisk()
        store = open_store(disk, flush_disk_type=ASYNC)
        for n in range(30):
            store.put(letter(n))
        disk.fail("any", nth=calls + 1)
        failed = True
        with suppress(Exception):
            store.close()
            failed = False
        if not failed:
            break
        for after in (disk.power_cut(), disk.kill()):
            again = open_store(after, flush_disk_type=ASYNC)
            found = bodies(again)
            assert found == body_list(0, len(found))
            if again.recovery.clean:
                assert len(found) == 30
    assert 5 < calls < 199


# A crash in recovery itself.


@pytest.mark.parametrize("keeps", ["nothing", "all", "some"])
@pytest.mark.parametrize("mode", ["tail", "queues deleted", "queues ahead", "clean"])
def test_a_crash_at_any_call_of_a_recovery_only_costs_another_recovery(mode, keeps):
    dice = random.Random(11)
    world = World(flush_disk_type=ASYNC, consume_queue_file_bytes=100)
    for n in range(40):
        world.clock.advance(1)
        world.put(queue=n % 3)
        if n == 25:
            world.sync()
            world.dispatch()
            world.flush_queues()
    world.dispatch()
    if mode == "clean":
        world.close()
        world.power_cut()
        broken = world.disk
        for path in [p for p in content(broken) if "consumequeue" in p.parts]:
            broken.unlink(path)
    else:
        if mode == "queues ahead":
            world.store.queues.flush()
        world.power_cut(random.Random(3))
        broken = world.disk
        if mode == "queues deleted":
            for path in [p for p in content(broken) if "consumequeue" in p.parts]:
                broken.unlink(path)
    broken = broken.power_cut(lambda change: True)
    reference = broken.kill()
    world.disk = reference
    world.reopen()
    expected = world.everything()
    calls = 0
    while True:
        disk = broken.kill()
        disk.stop_after(calls)
        try:
            open_store(disk, world.clock, **world.changes)
        except PowerCut:
            pass
        else:
            break
        disk = disk.power_cut({"nothing": None, "all": lambda change: True, "some": dice}[keeps])
        world.disk = disk
        world.store = world.open()
        assert world.everything() == expected
        calls += 1 if calls < 60 else 7
    assert calls > 20


def test_records_scanned_in_recovery_are_those_of_the_files():
    disk, _ = written(100, end="kill")
    store = open_store(disk, message_index_enable=False)
    count = sum(
        len(list(records_of(disk.read_bytes(ROOT / "commitlog" / name))))
        for name in disk.list_files(ROOT / "commitlog")
        if int(name) >= store.recovery.scanned_from
    )
    assert store.recovery.records == count
    assert len(read_queue_of(store)) == 100


def test_what_a_recovery_removed_stays_removed_although_its_process_was_killed():
    """The removal is in the page cache only; the next owner does not see what it must make durable."""
    clock = ManualClock(NOW)
    disk = ForgetfulDisk(clock)
    store = open_store(disk, clock, flush_disk_type=ASYNC)
    put_all(store, letters(3))
    for n in range(3, 60):
        store.put(letter(n, topic=f"lost{n % 3}"))
    store.dispatcher.catch_up()
    store.queues.flush()
    disk = disk.power_cut(lambda change: "consumequeue" in change.path.parts)
    open_store(disk, clock, flush_disk_type=ASYNC)
    disk = disk.kill()
    with open_store(disk, clock, flush_disk_type=ASYNC) as again:
        assert bodies(again) == body_list(0, 3)
    with open_store(disk.power_cut(), clock, flush_disk_type=ASYNC) as after:
        assert after.recovery.clean
        assert bodies(after) == body_list(0, 3)
        for topic in ("lost0", "lost1", "lost2"):
            assert after.get(topic, 0, 0).status is GetStatus.NO_MESSAGE_IN_QUEUE


def test_log_files_cut_from_a_path_stay_cut_although_their_remover_was_killed():
    paths = "/a/log,/b/log"
    disk = ForgetfulDisk()
    store = open_store(disk, store_path_commit_log=paths, flush_disk_type=ASYNC)
    put_all(store, letters(3))
    store.put_batch(letters(30, first=3))
    disk = disk.power_cut(lambda change: True)
    file = disk.open(Path("/a/log") / f"{0:020d}")
    end = store.message_at(0).record_bytes * 3
    file.pwrite(end, bytes(4096 - end))
    file.sync()
    disk.unlink(ROOT / "checkpoint")
    assert disk.list_files(Path("/b/log"))
    open_store(disk, store_path_commit_log=paths, flush_disk_type=ASYNC)
    disk = disk.kill()
    with open_store(disk, store_path_commit_log=paths, flush_disk_type=ASYNC) as again:
        assert bodies(again) == body_list(0, 3)
    with open_store(disk.power_cut(), store_path_commit_log=paths) as after:
        assert bodies(after) == body_list(0, 3)
