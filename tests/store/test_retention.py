"""Retention at work on a store: RocketMQ's CleanFiles tests, keepers, readers, crashes, restarts."""

import contextlib
import itertools
import logging
import threading
import time
from pathlib import Path

import msgspec
import pytest

from rockstrata.clock import SystemClock, local_hour
from rockstrata.errors import DiskError
from rockstrata.message.model import Message
from rockstrata.store.consume_queue import CONSUME_QUEUE_UNIT, ConsumeQueue
from rockstrata.store.handles import FileHandles
from rockstrata.store.keepers import NOTHING_NEEDED, undelivered, unfinished
from rockstrata.store.local_store import LocalMessageStore
from rockstrata.store.posix_disk import PosixDisk
from rockstrata.store.results import BoundaryType, GetStatus, PutStatus
from rockstrata.store.retention_rules import Readings
from rockstrata.store.running_flags import Flag
from rockstrata.store.store_config import StoreConfig
from rockstrata.store.topics import TopicConfig
from rockstrata.testing.forgetful_disk import ForgetfulDisk, PowerCut
from rockstrata.testing.manual_clock import ManualClock

ROOT = Path("/store")
LOG = ROOT / "commitlog"
HOUR_MS = 3_600_000
FILE_BYTES = 65536
NOW_HOUR = local_hour(ManualClock().now_ms())
OTHER_HOUR = f"{(NOW_HOUR + 12) % 24:02d}"
BODY = b"x" * 900


def config(**changes):
    settings = {
        "store_path_root_dir": str(ROOT),
        "commit_log_file_bytes": FILE_BYTES,
        "consume_queue_file_bytes": 2000,
        "max_hash_slot_num": 100,
        "max_index_num": 1000,
        "delete_when": OTHER_HOUR,
        "broker_ip": "10.0.0.1",
    }
    return StoreConfig(**(settings | changes))


def open_store(disk, **changes):
    return LocalMessageStore.open(config(**changes), disk=disk, clock=disk.clock, start_services=False)


def settle(store):
    """What the services would do within a minute."""
    store.commit_log.sync()
    store.dispatcher.catch_up()
    store._queue_flusher.flush_all()


def fill(store, files, topic="orders", queues=1):
    """Put until the log has so many files; the queue offsets of every put, by queue."""
    queue_ids = itertools.cycle(range(queues))
    for n in itertools.count():
        if len(store.commit_log.queue.files) >= files:
            break
        assert store.put(Message.of(topic, BODY, queue_id=next(queue_ids), keys=f"key{n}")).ok
    settle(store)
    return store


def age(store, disk, count, hours=100):
    for file in store.commit_log.queue.files[:count]:
        disk.set_modified_ms(file.path, disk.clock.now_ms() - hours * HOUR_MS)


def log_files(store):
    return [file.start // FILE_BYTES for file in store.commit_log.queue.files]


def readable(store, topic="orders", queue_id=0):
    """Every queue offset a consumer that begins at the minimum gets."""
    found, offset = [], store.min_offset(topic, queue_id)
    while True:
        result = store.get(topic, queue_id, offset)
        if result.status is not GetStatus.FOUND:
            assert result.status is GetStatus.OFFSET_OVERFLOW_ONE, result
            return found
        assert [message.queue_offset for message in result.messages()] == result.queue_offsets
        found += result.queue_offsets
        offset = result.next_begin_offset


def first_offset_from(store, physical_offset):
    """The first queue offset whose record lies there or later."""
    return next(n for n in itertools.count() if store.physical_offset("orders", 0, n) >= physical_offset)


@pytest.fixture
def disk():
    return ForgetfulDisk()


# RocketMQ's DefaultMessageStoreCleanFilesTest


def test_expired_files_go_at_the_hour_of_delete_when(disk):
    with fill(open_store(disk, delete_when=f"{NOW_HOUR:02d}"), files=6) as store:
        age(store, disk, 3)
        assert store.retention.clean() == 3
        assert log_files(store) == [3, 4, 5]
        assert disk.list_files(LOG) == [f"{n * FILE_BYTES:020d}" for n in (3, 4, 5)]
        assert store.retention.clean() == 0


def test_expired_files_stay_at_any_other_hour(disk):
    with fill(open_store(disk), files=4) as store:
        age(store, disk, 3)
        assert store.retention.clean() == 0
        assert store.retention.status.startswith(f"{0:020d} stays: nothing is deleted at this hour")


def test_a_file_expires_with_the_reserved_hours_after_its_last_change(disk):
    with fill(open_store(disk, delete_when=f"{NOW_HOUR:02d}", file_reserved_time_hours=2), files=3) as store:
        age(store, disk, 2, hours=2)
        disk.set_modified_ms(store.commit_log.queue.files[1].path, disk.clock.now_ms() - 2 * HOUR_MS + 1000)
        assert store.retention.clean() == 1
        disk.clock.advance(999)
        assert store.retention.clean() == 0
        disk.clock.advance(1)
        assert store.retention.clean() == 1


def test_expired_files_go_when_the_disk_fills_up_and_fresh_ones_stay(disk):
    with fill(open_store(disk), files=6) as store:
        age(store, disk, 2)
        disk.set_usage(ROOT, 76)
        assert store.retention.clean() == 2
        assert log_files(store) == [2, 3, 4, 5]
        assert store.put(Message.of("orders", b"still taken")).ok


def test_a_nearly_full_disk_costs_files_that_have_not_expired(disk):
    with fill(open_store(disk), files=6) as store:
        disk.set_usage(ROOT, 86)
        assert store.retention.clean() == 5
        assert log_files(store) == [5]
        assert store.retention.clean() == 0
        assert store.retention.status == f"{5 * FILE_BYTES:020d} stays: the newest file always stays"


def test_fresh_files_stay_if_forced_deletion_is_forbidden(disk):
    with fill(open_store(disk, clean_file_forcibly_enable=False), files=6) as store:
        age(store, disk, 1)
        disk.set_usage(ROOT, 95)
        assert store.retention.clean() == 1
        assert store.retention.clean() == 0
        assert "it has not expired" in store.put(Message.of("orders", b"x")).reason


def test_a_manual_request_holds_for_twenty_rounds(disk):
    with fill(open_store(disk), files=4) as store:
        store.retention.request_delete()
        for _ in range(19):
            assert store.retention.clean() == 0
        age(store, disk, 1)
        assert store.retention.clean() == 1
        age(store, disk, 1)
        assert store.retention.clean() == 0


def test_ten_files_go_in_one_round_with_a_pause_between_them(disk):
    with fill(open_store(disk), files=25) as store:
        age(store, disk, 24)
        store.retention.request_delete()
        began_s = disk.clock.monotonic_s()
        assert store.retention.clean() == 10
        assert disk.clock.monotonic_s() - began_s >= 0.9
        assert store.retention.clean() == 10
        assert store.retention.clean() == 4


def test_queue_and_index_files_follow_the_log(disk):
    with fill(open_store(disk), files=40, queues=2) as store:
        queue = store.queues.get("orders", 0)
        first_kept = next(
            n for n in itertools.count() if store.physical_offset("orders", 0, n) >= 20 * FILE_BYTES
        )
        before = len(queue.queue.files), len(store.index.files)
        age(store, disk, 20)
        store.retention.request_delete()
        store.retention.clean()
        store.retention.clean()
        minimum = store.commit_log.min_offset
        assert minimum == 20 * FILE_BYTES
        assert queue.min_offset == first_kept
        assert len(queue.queue.files) == before[0] - queue.min_offset // 100
        assert queue.queue.files[0].end // 20 > queue.min_offset
        assert len(store.index.files) < before[1]
        assert all(file.end_physical >= minimum for file in store.index.files)
        assert disk.list_files(queue.directory) == [file.path.name for file in queue.queue.files]
        assert disk.list_files(ROOT / "index") == [file.path.name for file in store.index.files]
        assert readable(store) == list(range(queue.min_offset, queue.max_offset))
        assert not store.query("orders", "key0")
        assert len(store.query("orders", f"key{2 * queue.max_offset - 3}")) == 1


def test_queues_are_looked_at_only_when_the_minimum_has_moved(disk):
    with fill(open_store(disk), files=4) as store:
        store.retention.clean()
        reads = disk.calls["pread"]
        store.retention.clean()
        assert disk.calls["pread"] == reads


def test_the_disk_full_flag_refuses_puts_while_dispatch_goes_on_and_is_cleared_later(disk):
    with open_store(disk) as store:
        put = store.put(Message.of("orders", b"before"))
        disk.set_usage(ROOT, 91)
        store.retention.clean()
        assert store.flags.bits == Flag.DISK_FULL
        refused = store.put(Message.of("orders", b"refused"))
        assert refused.status is PutStatus.SERVICE_NOT_AVAILABLE
        assert "/store/commitlog is 91% full, puts are refused above 90%" in refused.reason
        store.dispatcher.catch_up()
        assert store.get("orders", 0, 0).messages()[0].physical_offset == put.physical_offset
        disk.set_usage(ROOT, 86)
        store.retention.clean()
        assert store.flags.bits == Flag.DISK_FULL, "between the levels it stays as it is"
        disk.set_usage(ROOT, 85)
        store.retention.clean()
        assert store.flags.bits == 0
        assert store.put(Message.of("orders", b"after")).ok


@pytest.mark.parametrize(
    ("fills", "is_full"), [((91, 95, 99), True), ((90, 95, 99), False), ((10, 95, 99), False)]
)
def test_of_several_log_paths_the_least_used_one_counts(disk, fills, is_full):
    paths = [Path(f"/disk{n}/commitlog") for n in range(3)]
    with open_store(disk, store_path_commit_log=",".join(map(str, paths))) as store:
        for path, percent in zip(paths, fills, strict=True):
            disk.set_usage(path, percent)
        store.retention.clean()
        assert bool(store.flags.bits & Flag.DISK_FULL) is is_full


def test_a_full_disk_of_the_queues_counts_like_one_of_the_log(disk):
    with fill(open_store(disk, store_path_commit_log="/big/commitlog"), files=4) as store:
        disk.set_usage(Path("/big"), 10)
        disk.set_usage(ROOT, 92)
        store.retention.clean()
        assert store.flags.bits == Flag.DISK_FULL, "the flag that lets dispatch go on"
        assert store.flags.dispatchable
        assert "/store/consumequeue is 92% full" in store.flags.describe()
        assert log_files(store) == [3]


def test_on_a_shared_disk_the_store_keeps_to_its_share(disk):
    disk.quota_bytes = 40 * FILE_BYTES
    with fill(open_store(disk, replicas_per_disk_partition=4), files=9) as store:
        assert disk.usage(LOG).ratio < 0.75
        assert store.retention.clean() == 8


def test_nothing_goes_in_the_first_minute_but_the_disk_is_watched(disk):
    with fill(open_store(disk), files=4) as store:
        disk.set_usage(ROOT, 95)
        store.retention.run_once()
        assert log_files(store) == [0, 1, 2, 3]
        assert store.flags.bits == Flag.DISK_FULL
        disk.clock.advance(60_000)
        store.retention.run_once()
        assert log_files(store) == [3]


def test_batch_queues_are_corrected_every_five_minutes_even_if_the_log_stays(disk):
    with open_store(disk, batch_consume_queue_file_bytes=460) as store:
        store.topics.ensure(TopicConfig(topic_name="batches", attributes={"queue.type": "BatchCQ"}))
        inner = msgspec.structs.replace(
            Message.of("batches", BODY, properties={"INNER_NUM": "10"}), sys_flag=0xC0
        )
        while len(store.commit_log.queue.files) < 4:
            assert store.put(inner).ok
        settle(store)
        store.retention.clean()
        queue = store.queues.get("batches", 0)
        files = len(queue.queue.files)
        # As if an earlier round had been cut short after the log.
        store.commit_log.queue.delete_first(store.commit_log.queue.files[0])
        store.retention._followed_to = store.commit_log.min_offset
        store.retention.clean()
        assert queue.min_offset == 0
        disk.clock.advance(300_000)
        store.retention.clean()
        assert queue.min_offset > 0
        assert queue.min_offset % 10 == 0
        assert len(queue.queue.files) < files
        first = store.get("batches", 0, queue.min_offset)
        assert first.status is GetStatus.FOUND
        assert first.messages()[0].physical_offset >= FILE_BYTES


# Keepers (promise P4)


def test_a_keeper_holds_files_back_even_from_a_full_disk_and_the_refusal_says_so(disk):
    with fill(open_store(disk), files=6) as store:
        store.retention.keep("the tier", lambda: 2 * FILE_BYTES + 5)
        disk.set_usage(ROOT, 95)
        assert store.retention.clean() == 2
        assert log_files(store) == [2, 3, 4, 5]
        reason = store.put(Message.of("orders", b"x")).reason
        assert "95% full" in reason
        assert (
            f"{2 * FILE_BYTES:020d} stays: it is still needed, kept for the tier from {2 * FILE_BYTES + 5}"
            in reason
        )
        store.retention.release("the tier")
        assert store.retention.clean() == 3


def test_the_lowest_of_several_keepers_counts(disk):
    with fill(open_store(disk), files=6) as store:
        store.retention.keep("far", lambda: 4 * FILE_BYTES)
        store.retention.keep("idle", lambda: NOTHING_NEEDED)
        store.retention.keep("near", lambda: FILE_BYTES)
        disk.set_usage(ROOT, 86)
        assert store.retention.clean() == 1
        assert "kept for near" in store.retention.status


def test_a_keeper_that_fails_keeps_everything(disk):
    def broken():
        raise ConnectionError("no answer from the bucket")

    with fill(open_store(disk), files=4) as store:
        store.retention.keep("the tier", broken)
        disk.set_usage(ROOT, 95)
        assert store.retention.clean() == 0
        assert "kept for the tier, which failed: ConnectionError('no answer" in store.flags.describe()


def test_a_keeper_that_comes_during_a_round_is_heard(disk):
    with fill(open_store(disk), files=6) as store:
        answers = itertools.chain([NOTHING_NEEDED] * 3, itertools.repeat(0))
        store.retention.keep("a late reader", lambda: next(answers))
        disk.set_usage(ROOT, 86)
        assert store.retention.clean() == 2
        assert log_files(store) == [2, 3, 4, 5]


def test_an_operator_may_override_keepers_and_the_log_names_every_file_first(disk, caplog):
    with fill(open_store(disk), files=4) as store:
        age(store, disk, 2)
        store.retention.keep("the tier", lambda: FILE_BYTES)
        store.retention.request_delete(ignore_keepers=True)
        with caplog.at_level(logging.INFO, "rockstrata.store.retention"):
            assert store.retention.clean() == 2
        lines = [record.getMessage() for record in caplog.records]
        assert lines.pop(0) == "an operator asked to delete expired files, needed or not"
        assert lines[0].startswith(f"operator override: deleting {LOG}/{0:020d}, physical offsets [0, 65536)")
        assert lines[1].endswith(f"[65536, 131072), although kept for the tier from {FILE_BYTES} on")
        assert lines[2].startswith("deleted")
        # It ends with the request.
        for _ in range(19):
            store.retention.clean()
        age(store, disk, 1)
        disk.set_usage(ROOT, 86)
        assert store.retention.clean() == 0


def test_what_is_not_dispatched_or_not_durable_stays_whatever_the_operator_says(disk):
    with open_store(disk) as store:
        for _ in range(200):
            store.put(Message.of("orders", BODY))
        disk.set_usage(ROOT, 95)
        store.retention.request_delete(ignore_keepers=True)
        assert store.retention.clean() == 0
        store.commit_log.sync()
        assert store.retention.clean() == 0
        store.dispatcher.catch_up()
        assert store.retention.clean() == 0
        assert "its queue units are not durable" in store.retention.status
        store._queue_flusher.flush_all()
        assert store.retention.clean() > 0


def test_delayed_messages_are_kept_until_they_are_delivered(disk):
    # rmq#9006: RocketMQ deletes a delayed message with its file before it is delivered.
    with open_store(disk) as store:
        offsets = {}
        store.retention.keep(
            "delayed messages", undelivered(store.queues, lambda level: offsets.get(level, 0))
        )
        fill(store, files=3)
        for level in (3, 5, 5):
            delayed = store.put(Message.of("orders", b"later", delay_level=level))
        fill(store, files=8)
        disk.set_usage(ROOT, 95)
        assert store.retention.clean() == 2
        assert store.message_at(delayed.physical_offset).body == b"later"
        offsets[3] = 1
        assert store.retention.clean() == 0, "level 5 waits in the same file"
        offsets[5] = 2
        assert store.retention.clean() == 5
        assert store.retention.status.endswith("the newest file always stays")


def test_a_delayed_message_goes_only_when_its_delivery_is_durable(disk):
    store = open_store(disk)
    store.put(Message.of("later", b"delayed", delay_level=1))
    fill(store, files=4)
    disk.set_usage(ROOT, 86)
    assert store.retention.clean() == 0
    assert "kept for delayed messages" in store.retention.status
    disk.clock.advance(1000)
    store.schedule.run_once()
    store.dispatcher.catch_up()
    assert store.retention.clean() == 3
    with open_store(disk.power_cut()) as store:
        assert store.get("later", 0, 0).messages()[0].body == b"delayed"


def test_a_full_disk_does_not_stop_the_deliveries_that_would_free_it(disk):
    with open_store(disk) as store:
        store.put(Message.of("later", b"delayed", delay_level=1))
        fill(store, files=4)
        disk.set_usage(ROOT, 95)
        store.retention.clean()
        assert "kept for delayed messages" in store.put(Message.of("orders", b"x")).reason
        disk.clock.advance(1000)
        store.schedule.run_once()
        settle(store)
        assert store.get("later", 0, 0).status is GetStatus.FOUND
        assert store.retention.clean() == 3


def test_delayed_messages_of_a_level_that_is_no_more_keep_nothing(disk):
    with open_store(disk, message_delay_level="1s 5s") as store:
        store.put(Message.of("later", b"x", delay_level=2))
        fill(store, files=3)
    with open_store(disk, message_delay_level="1s") as store:
        disk.set_usage(ROOT, 86)
        assert store.retention.clean() == 2


def test_halves_are_kept_while_somebody_asks_about_them(disk):
    with open_store(disk) as store:
        store.transactions.start_checking(lambda half: None)
        store.put(Message.of("RMQ_SYS_TRANS_HALF_TOPIC", b"half"))
        fill(store, files=3)
        disk.set_usage(ROOT, 86)
        assert store.retention.clean() == 0
        assert "kept for half messages" in store.retention.status
        store.transactions.stop_checking()
        assert store.retention.clean() == 2


def test_half_messages_are_kept_until_the_check_has_passed_them(disk):
    with open_store(disk) as store:
        store.retention.keep("half messages", unfinished(store.queues, store.consumer_offsets))
        fill(store, files=2)
        store.put(Message.of("RMQ_SYS_TRANS_HALF_TOPIC", b"half"))
        fill(store, files=4)
        store.put(Message.of("RMQ_SYS_TRANS_OP_HALF_TOPIC", b"0,"))
        fill(store, files=6)
        disk.set_usage(ROOT, 95)
        assert store.retention.clean() == 1
        store.consumer_offsets.commit("CID_RMQ_SYS_TRANS", "RMQ_SYS_TRANS_HALF_TOPIC", 0, 1)
        assert store.retention.clean() == 2
        store.consumer_offsets.commit("CID_RMQ_SYS_TRANS", "RMQ_SYS_TRANS_OP_HALF_TOPIC", 0, 1)
        assert store.retention.clean() == 2


# Readers


@pytest.mark.parametrize("real", [False, True])
def test_a_record_that_is_held_outlives_its_file(disk, tmp_path, real):
    place = PosixDisk() if real else disk
    store = LocalMessageStore.open(
        config(store_path_root_dir=str(tmp_path / "store"), disk_space_clean_forcibly_ratio=30),
        disk=place, clock=disk.clock, start_services=False,
    )  # fmt: skip
    with fill(store, files=3):
        held = store.get("orders", 0, 0)
        before = [bytes(record) for record in held.records]
        for file in store.commit_log.queue.files[:-1]:
            store.commit_log.queue.delete_first(file)
        store.handles.clear()
        assert [bytes(record) for record in held.records] == before
        assert held.messages()[0].queue_offset == 0


def test_a_reader_that_fell_behind_is_told_where_to_go_on(disk):
    with fill(open_store(disk), files=4) as store:
        disk.set_usage(ROOT, 86)
        store.retention.clean()
        minimum = store.min_offset("orders", 0)
        assert minimum > 0
        result = store.get("orders", 0, 0)
        assert (result.status, result.next_begin_offset) == (GetStatus.OFFSET_TOO_SMALL, minimum)
        assert store.get("orders", 0, minimum - 1).status is GetStatus.OFFSET_TOO_SMALL
        assert store.get("orders", 0, minimum).status is GetStatus.FOUND
        assert store.offset_by_time("orders", 0, 0) == minimum
        assert store.earliest_time("orders", 0) > 0
        assert store.message_at(0) is None


def test_between_the_log_and_its_queues_a_reader_skips_the_removed_file(disk):
    with fill(open_store(disk), files=3) as store:
        first_kept = first_offset_from(store, FILE_BYTES)
        store.commit_log.queue.delete_first(store.commit_log.queue.files[0])
        result = store.get("orders", 0, 0, max_count=10)
        assert result.status is GetStatus.MESSAGE_WAS_REMOVING
        assert 0 < result.next_begin_offset <= first_kept
        offset = result.next_begin_offset
        while (result := store.get("orders", 0, offset)).status is GetStatus.MESSAGE_WAS_REMOVING:
            offset = result.next_begin_offset
        assert result.queue_offsets[0] == first_kept


def test_a_reader_that_found_a_file_just_before_it_was_deleted_gets_nothing(disk, monkeypatch):
    with fill(open_store(disk), files=4) as store:
        late = store.commit_log.queue.files[0]
        queue = store.queues.get("orders", 0)
        late_units = queue.queue.files[0]
        disk.set_usage(ROOT, 86)
        store.retention.clean()
        store.handles.clear()
        assert not queue.queue.holds(late_units)
        monkeypatch.setattr(store.commit_log.queue, "find", lambda offset: late)
        monkeypatch.setattr(queue.queue, "find", lambda offset: late_units)
        assert store.commit_log.read(100, 50) is None
        assert store.commit_log.window(100) is None
        assert store.commit_log.store_timestamp(100, 500) == -1
        assert queue.units(3, 1) == b""
        assert queue.unit(3)[0] == 0


def test_a_search_by_time_survives_the_deletion_of_the_units_it_looks_at(disk, monkeypatch):
    with fill(open_store(disk), files=8) as store:
        now = disk.clock.now_ms()
        queue = store.queues.get("orders", 0)
        disk.set_usage(ROOT, 86)
        store.retention.clean()
        minimum = queue.min_offset
        monkeypatch.setattr(queue, "_min", 0)
        assert store.offset_by_time("orders", 0, now, BoundaryType.LOWER) == minimum


def test_a_deleted_file_leaves_no_open_descriptor_behind(disk):
    with fill(open_store(disk), files=3) as store:
        file = store.commit_log.queue.files[0]
        unlink = disk.unlink

        def read_before_unlink(path):
            if path == file.path:
                store.handles.get(path)
            unlink(path)

        disk.unlink = read_before_unlink
        store.commit_log.queue.delete_first(file)
        del disk.unlink
        assert file.path not in store.handles._files


def test_a_flush_passes_over_files_deleted_meanwhile(disk, monkeypatch):
    with open_store(disk) as store:
        for _ in range(250):
            store.put(Message.of("orders", b"x"))
        store.dispatcher.catch_up()
        queue = store.queues.get("orders", 0)
        files = queue.queue.files
        assert files[0].flushed == 0
        queue.queue.delete_first(files[0])
        store.handles.clear()
        monkeypatch.setattr(queue.queue, "files", files)
        queue.flush()
        assert files[-1].flushed == files[-1].wrote


def test_an_index_file_may_be_deleted_while_it_is_sealed(disk, monkeypatch):
    with open_store(disk) as store:
        index = store.index
        monkeypatch.setattr(index, "_on_full", lambda: None)
        fill(store, files=20)
        assert len(index.files) > 1
        monkeypatch.setattr(store.checkpoint, "flush", lambda: index.delete_expired(2**62))
        index.seal()
        monkeypatch.undo()
        assert len(index.files) == 1


def test_writers_readers_and_retention_do_not_meet(tmp_path):
    """Real threads on a real disk: nobody sees an error, nobody sees a gap."""
    store = LocalMessageStore.open(
        config(
            store_path_root_dir=str(tmp_path),
            consume_queue_file_bytes=20_000,
            delete_commit_log_files_interval_ms=0,
            delete_consume_queue_files_interval_ms=0,
            disk_space_clean_forcibly_ratio=30,
            flush_consume_queue_thorough_interval_ms=10,
            flush_interval_consume_queue_ms=5,
            flush_interval_commit_log_ms=5,
        ),
        clock=SystemClock(),
    )
    failures, seen, done = [], [], threading.Event()

    def guarded(work):
        def run():
            try:
                while not done.is_set():
                    work()
            except BaseException as error:
                failures.append(error)

        return threading.Thread(target=run)

    def write():
        for _ in range(20):
            assert store.put(Message.of("orders", BODY)).ok
        time.sleep(0.001)

    def read():
        offset = seen[-1] if seen else 0
        result = store.get("orders", 0, offset)
        if result.status is GetStatus.FOUND:
            assert result.queue_offsets[0] == offset
        elif result.status is GetStatus.OFFSET_OVERFLOW_ONE:
            time.sleep(0.001)
        seen.append(result.next_begin_offset)
        store.offset_by_time("orders", 0, 1)

    def delete():
        files = store.commit_log.queue.files
        if len(files) > 3:
            store.retention.clean()
        time.sleep(0.001)

    store.retention._read_disks = lambda hour: (Readings(hour, 0.5, 0.1), "nearly full")
    threads = [guarded(work) for work in (write, read, delete)]
    for thread in threads:
        thread.start()
    deadline = time.monotonic() + 8
    while store.commit_log.min_offset < 40 * FILE_BYTES and not failures and time.monotonic() < deadline:
        time.sleep(0.01)
    done.set()
    for thread in threads:
        thread.join(10)
    assert not failures
    assert store.flags.bits == 0
    assert store.commit_log.min_offset > 0
    starts = [file.start for file in store.commit_log.queue.files]
    assert starts == list(range(starts[0], starts[0] + len(starts) * FILE_BYTES, FILE_BYTES))
    store.close()
    reopened = config(store_path_root_dir=str(tmp_path), consume_queue_file_bytes=20_000)
    with LocalMessageStore.open(reopened, start_services=False) as store:
        assert readable(store) == list(range(store.min_offset("orders", 0), store.max_offset("orders", 0)))


def test_a_file_asked_for_too_late_is_neither_made_nor_removed(disk):
    # The dispatcher asks for the file after its own; the writer may have gone past it, and retention too.
    with fill(open_store(disk), files=4) as store:
        preallocator = store.commit_log.preallocator
        store.commit_log.queue.delete_first(store.commit_log.queue.files[0])
        preallocator.start()
        for start in (0, FILE_BYTES):
            preallocator.request(start)
            time.sleep(0.02)
        preallocator.stop()
    with open_store(disk) as store:
        assert log_files(store) == [1, 2, 3]


# Failures, crashes and restarts


def test_a_file_that_cannot_be_deleted_is_tried_again_and_leaves_no_hole(disk):
    with fill(open_store(disk), files=5) as store:
        disk.set_usage(ROOT, 86)
        disk.fail("unlink", nth=2)
        with pytest.raises(DiskError):
            store.retention.clean()
        assert log_files(store) == [1, 2, 3, 4]
        assert store.commit_log.read_record(FILE_BYTES) is not None
        assert store.retention.clean() == 3


def test_a_stop_ends_the_pause_between_two_files(disk):
    with fill(open_store(disk, delete_commit_log_files_interval_ms=60_000), files=4) as store:
        disk.set_usage(ROOT, 86)
        disk.clock.advance(60_000)
        store.retention.start()
        deadline = time.monotonic() + 5
        while len(log_files(store)) == 4 and time.monotonic() < deadline:
            time.sleep(0.001)
        began = time.monotonic()
        store.retention.stop()
        assert time.monotonic() - began < 1
        assert log_files(store) == [1, 2, 3]


@pytest.mark.parametrize("how", ["clean", "kill", "power_cut"])
def test_minimums_are_the_same_after_a_restart(disk, how):
    store = fill(open_store(disk), files=6, queues=2)
    disk.set_usage(ROOT, 76)
    age(store, disk, 3)
    assert store.retention.clean() == 3
    expected = {n: (store.min_offset("orders", n), store.max_offset("orders", n), readable(store, queue_id=n))
                for n in range(2)}  # fmt: skip
    assert expected[0][0] > 0
    if how == "clean":
        store.close()
    else:
        disk = getattr(disk, how)()
    with open_store(disk) as store:
        assert log_files(store) == [3, 4, 5]
        for n in range(2):
            found = store.min_offset("orders", n), store.max_offset("orders", n), readable(store, queue_id=n)
            assert found == expected[n]
        assert store.put(Message.of("orders", b"next")).queue_offset == expected[0][1]


@pytest.mark.parametrize("how", ["clean", "kill", "power_cut"])
def test_a_queue_whose_messages_are_all_gone_remembers_its_position(disk, how):
    store = open_store(disk)
    for _ in range(105):
        store.put(Message.of("quiet", b"x"))
    fill(store, files=4)
    disk.set_usage(ROOT, 86)
    store.retention.clean()
    for _ in range(2):
        assert (store.min_offset("quiet", 0), store.max_offset("quiet", 0)) == (105, 105)
        assert store.get("quiet", 0, 0).next_begin_offset == 105
        if how == "clean":
            store.close()
        else:
            disk = getattr(disk, how)()
        store = open_store(disk)
    with store:
        assert store.put(Message.of("quiet", b"y")).queue_offset == 105
        store.dispatcher.catch_up()
        assert store.get("quiet", 0, 105).messages()[0].body == b"y"


def test_queues_rebuilt_after_cleaning_begin_where_the_log_does(disk):
    # The units before a rebuilt queue's first one are pre-blanks; RocketMQ gives them out as messages.
    store = fill(open_store(disk), files=6)
    disk.set_usage(ROOT, 76)
    age(store, disk, 2)
    store.retention.clean()
    expected = readable(store)
    assert expected[0] % 100, "a queue file must begin with pre-blanks for this test"
    store.close()
    folder = ROOT / "consumequeue" / "orders" / "0"
    for name in disk.list_files(folder):
        disk.unlink(folder / name)
    for _ in range(2):
        with open_store(disk) as store:
            assert readable(store) == expected
            assert store.get("orders", 0, expected[0] - 1).status is GetStatus.OFFSET_TOO_SMALL
            store.retention.clean()
            assert readable(store) == expected


def test_pre_blank_units_stay_unreadable_even_if_the_log_begins_at_zero(disk):
    handles = FileHandles(disk)

    def queue():
        return ConsumeQueue(handles, ROOT / "consumequeue" / "t" / "0", "t", 0, 2000)

    first = queue()
    first.append(150, CONSUME_QUEUE_UNIT.struct.pack(0, 80, 7), 80)
    assert (first.min_offset, first.max_offset) == (150, 151)
    for clean in (True, False):
        again = queue()
        again.load()
        again.recover(clean=clean)
        again.correct_min(0)
        assert (again.min_offset, again.max_offset, again.max_physical) == (150, 151, 80)
        again.correct_min(1)
        assert (again.min_offset, again.max_offset) == (151, 151)


def test_a_queue_that_starts_over_below_its_first_file_is_readable_from_there(disk):
    queue = ConsumeQueue(FileHandles(disk), ROOT / "consumequeue" / "t" / "0", "t", 0, 2000)
    queue.append(150, CONSUME_QUEUE_UNIT.struct.pack(1000, 80, 7), 1080)
    queue.append(0, CONSUME_QUEUE_UNIT.struct.pack(2000, 80, 7), 2080)
    assert (queue.min_offset, queue.max_offset) == (0, 1)
    queue.correct_min(500)
    assert (queue.min_offset, queue.max_offset) == (0, 1)


@pytest.mark.parametrize("paths", [1, 3])
def test_a_power_cut_at_any_call_of_a_round_leaves_a_log_without_a_hole(paths):
    logs = ",".join(f"/disk{n}/commitlog" for n in range(paths))

    def begin():
        disk = ForgetfulDisk()
        store = fill(open_store(disk, store_path_commit_log=logs), files=6)
        for path in (ROOT, *(Path(f"/disk{n}") for n in range(paths))):
            disk.set_usage(path, 86)
        return disk, store

    disk, store = begin()
    end = store.max_offset("orders", 0)
    calls = disk.calls.total()
    store.retention.clean()
    for n in range(disk.calls.total() - calls + 1):
        disk, store = begin()
        disk.stop_after(n)
        with contextlib.suppress(PowerCut):
            store.retention.clean()
        # Of the removals some are lost: those of one directory, or of all but one.
        for keeps in (None, lambda change: True, lambda change: "disk0" in str(change.path)):
            survivor = open_store(disk.power_cut(keeps), store_path_commit_log=logs)
            assert store.commit_log.min_offset >= survivor.commit_log.min_offset
            assert survivor.max_offset("orders", 0) == end
            assert readable(survivor) == list(range(survivor.min_offset("orders", 0), end))
