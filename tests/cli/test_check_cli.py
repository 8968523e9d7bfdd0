"""A whole store is found whole; every kind of damage is found, with its file and position."""

import json
import shutil
import struct

import pytest

from cli.cli_kit import LOG_BYTES, fill, log_file, run, run_json, set_bytes, small_config, spawn
from rockstrata.message.model import Message
from rockstrata.store.check import FindingKind, StoreCheck
from rockstrata.store.local_store import LocalMessageStore
from rockstrata.store.topics import TopicConfig

KINDS = {kind.name: kind for kind in FindingKind}


@pytest.fixture(scope="module")
def pristine(tmp_path_factory):
    return fill(tmp_path_factory.mktemp("pristine") / "store", 900)


@pytest.fixture
def root(pristine, tmp_path):
    return shutil.copytree(pristine, tmp_path / "store")


def findings(root, *, code=3):
    """What ``check --json`` finds: kind, path below the root, position; notes left out."""
    (answer,) = run_json("store", "check", root, code=code)
    assert answer["ok"] is (code == 0)
    return [
        (KINDS_BY_VALUE[f["kind"]], f["path"].removeprefix(f"{root}/"), f["position"])
        for f in answer["findings"]
        if not f["note"]
    ]


KINDS_BY_VALUE = {kind.value: kind.name for kind in FindingKind}


def line_of(root, topic, queue, offset):
    return run_json("store", "get", topic, queue, offset, "-d", root)[0]


def in_log(physical_offset):
    """Path below the root, and position, of a physical offset."""
    start = physical_offset - physical_offset % LOG_BYTES
    return f"commitlog/{start:020d}", physical_offset - start


def items_at(number):
    return 40 + 4 * 250 + 20 * number


def index_names(root):
    return sorted(path.name for path in (root / "index").iterdir())


def test_a_whole_store_has_nothing_wrong(pristine):
    (answer,) = run_json("store", "check", pristine)
    assert answer["findings"] == []
    summary = answer["summary"]
    assert (summary["records"], summary["units"], summary["keys"]) == (900, 900, 1800)
    assert summary["index_items"] == 2700
    assert "nothing wrong; checked 900 records" in run("store", "check", pristine).stdout


def test_a_flipped_byte_of_a_body_is_found_and_named(root):
    line = line_of(root, "orders", 1, 100)
    path, position = in_log(line["physical_offset"])
    set_bytes(root / path, position + 88, b"B")
    assert findings(root) == [("BAD_BODY", path, position)]
    shown = run("store", "check", root, code=3).stdout
    assert f"{path}:{position}" in shown
    assert "orders queue 1 offset 100" in shown
    assert "1 finding;" in shown


def test_a_record_that_cannot_be_measured_costs_only_itself(root):
    line = line_of(root, "orders", 2, 50)
    path, position = in_log(line["physical_offset"])
    set_bytes(root / path, position + 4, b"\0\0\0\1")
    found = findings(root)
    assert found[0] == ("BAD_RECORD", path, position)
    assert {kind for kind, _, _ in found[1:]} == {"STRAY_UNIT", "STRAY_KEY"}
    assert ("STRAY_UNIT", "consumequeue/orders/2/00000000000000000000", 50 * 20) in found


def test_a_record_of_another_place_is_found(root):
    line = line_of(root, "pay", 0, 7)
    path, position = in_log(line["physical_offset"])
    set_bytes(root / path, position + 28, struct.pack(">q", 3))
    assert ("WRONG_PLACE", path, position) in findings(root)


@pytest.mark.parametrize(
    ("at", "data"),
    [(0, struct.pack(">q", 1)), (8, struct.pack(">i", 91)), (12, struct.pack(">q", 99))],
    ids=["offset", "size", "tags"],
)
def test_a_unit_that_is_not_its_records_is_found(root, at, data):
    set_bytes(root / "consumequeue/orders/1/00000000000000002000", 5 * 20 + at, data)
    assert findings(root) == [("WRONG_UNIT", "consumequeue/orders/1/00000000000000002000", 100)]


def test_lost_units_at_the_end_of_a_queue_are_found(root):
    set_bytes(root / "consumequeue/orders/1/00000000000000004000", 90 * 20, bytes(10 * 20))
    (finding,) = run_json("store", "check", root, code=3)[0]["findings"]
    assert (finding["kind"], finding["count"], finding["position"]) == ("record without unit", 10, 90 * 20)


def test_lost_queues_and_index_are_rebuilt_from_the_log(root):
    (root / "index" / index_names(root)[1]).unlink()
    set_bytes(root / "consumequeue/orders/1/00000000000000004000", 0, bytes(20))
    told = run("store", "check", root, code=3).stderr
    assert "its next start rebuilds them" in told
    shutil.rmtree(root / "index")
    shutil.rmtree(root / "consumequeue")
    run("store", "put", "orders", "one more", "-d", root, "--queue", 1)
    assert findings(root, code=0) == []
    assert line_of(root, "orders", 1, 300)["body"] == "b25lIG1vcmU="


def test_units_without_records_are_found(root):
    end = struct.pack(">qiq", 5, 100, 0)
    run("store", "put", "extra", "one", "-d", root)
    set_bytes(root / "consumequeue/extra/0/00000000000000000000", 20, end)
    assert ("STRAY_UNIT", "consumequeue/extra/0/00000000000000000000", 20) in findings(root)


def test_a_lost_queue_is_found_and_a_deleted_topic_is_only_noted(root):
    shutil.rmtree(root / "consumequeue" / "pay")
    (finding,) = run_json("store", "check", root, code=3)[0]["findings"]
    assert (finding["kind"], finding["count"], finding["note"]) == ("no queue", 300, False)
    (root / "config").mkdir(exist_ok=True)
    (root / "config" / "topics.json").write_text('{"topicConfigTable":{"orders":{"topicName":"orders"}}}')
    (finding,) = run_json("store", "check", root)[0]["findings"]
    assert finding["note"]
    assert "deleted" in finding["what"]


def test_a_topic_made_again_after_its_deletion_is_in_order(root):
    with LocalMessageStore.open(small_config(root), start_services=False) as store:
        store.topics.create_or_update(TopicConfig(topic_name="pay"))
        store.delete_topics(["pay"])
        for n in range(20):
            assert store.put(Message.of("pay", f"again {n}")).ok
    assert findings(root, code=0) == []


@pytest.mark.parametrize(
    ("position", "data", "where"),
    [
        (items_at(40) + 16, struct.pack(">i", 39), items_at(40)),
        (items_at(40), struct.pack(">i", 12345), None),
        (items_at(40) + 4, struct.pack(">q", 12345), None),
        (items_at(40) + 12, struct.pack(">i", 86_400), items_at(40)),
        (16, struct.pack(">q", 4), 16),
        (24, struct.pack(">q", 4), 24),
        (32, struct.pack(">i", 4), 32),
        (36, struct.pack(">i", -4), 36),
    ],
    ids=["chain", "hash", "offset", "time", "begin", "end", "used slots", "count"],
)  # fmt: skip
def test_every_damage_of_an_index_file_is_found(root, position, data, where):
    name = index_names(root)[0]
    set_bytes(root / "index" / name, position, data)
    found = findings(root)
    assert found
    assert all(kind in {"BAD_INDEX", "MISSING_KEY", "STRAY_KEY"} for kind, _, _ in found)
    if where is not None:
        assert ("BAD_INDEX", f"index/{name}", where) in found


def test_a_slot_that_leads_nowhere_is_found(root):
    path = root / "index" / index_names(root)[1]
    slots = struct.unpack(">250i", path.read_bytes()[40:1040])
    slot = next(n for n, item in enumerate(slots) if item)
    set_bytes(path, 40 + 4 * slot, bytes(4))
    assert findings(root) == [("BAD_INDEX", f"index/{path.name}", 40 + 4 * slot)]


def test_a_lost_index_file_is_found(root):
    (root / "index" / index_names(root)[1]).unlink()
    (finding,) = run_json("store", "check", root, code=3)[0]["findings"]
    assert finding["kind"] == "key not indexed"
    assert finding["count"] > 600


def test_a_checkpoint_that_promises_too_much_is_found(root):
    set_bytes(root / "checkpoint", 40, struct.pack(">q", 1 << 40))
    assert findings(root) == [("BAD_CHECKPOINT", "checkpoint", 0)]


@pytest.mark.parametrize("damage", ["foreign", "short", "hole"])
def test_files_that_do_not_belong_are_found(root, damage):
    if damage == "foreign":
        path = root / "commitlog" / "notes.txt"
        path.write_text("hello")
    elif damage == "short":
        path = log_file(root, 1)
        path.write_bytes(path.read_bytes()[:1000])
    else:
        path = log_file(root, 2)
        log_file(root, 1).unlink()
    assert ("BAD_FILE", f"commitlog/{path.name}", 0) in findings(root)


def test_a_store_is_checked_beside_its_owner(root):
    with LocalMessageStore.open(small_config(root)) as store:
        for n in range(50):
            store.put(Message.of("orders", f"more {n}", keys=f"m{n}"))
        (answer,) = map(json.loads, spawn("store", "check", root, "--json").stdout.splitlines())
    assert answer["findings"] == []
    assert answer["summary"]["state"] == "open"
    assert answer["summary"]["records"] >= 900


def test_a_check_that_is_interrupted_says_so(root, monkeypatch):
    def interrupted(self):
        raise KeyboardInterrupt

    monkeypatch.setattr(StoreCheck, "run", interrupted)
    assert "interrupted" in run("store", "check", root, code=130).stderr


# Repair


def torn(root):
    """A crash in the middle of a put: half a record after the last one, and `abort`."""
    end = run_json("store", "stat", root)[0]["log"]["end_offset"]
    path, position = in_log(end)
    record = (root / "commitlog" / f"{0:020d}").read_bytes()[:60]
    set_bytes(root / path, position, record)
    (root / "abort").write_text("4242")
    return path, position, end


def test_what_a_crash_tore_is_noted_and_repaired(root):
    path, position, end = torn(root)
    (note,) = run_json("store", "check", root)[0]["findings"]
    assert (note["kind"], note["path"], note["position"]) == ("torn tail", str(root / path), position)
    assert note["note"]
    told = run("store", "check", root, "--repair", "--yes").stderr
    assert f"will cut 60 bytes from physical offset {end} ({path}:{position})" in told
    assert f"the log ends at {end}" in told
    assert findings(root, code=0) == []
    assert run_json("store", "stat", root)[0]["state"] == "closed"


def test_a_repair_asks_first_and_no_changes_nothing(root):
    torn(root)
    before = {path: path.read_bytes() for path in sorted(root.rglob("*")) if path.is_file()}
    told = run("store", "check", root, "--repair", stdin="n\n", code=1).stderr
    assert "Repair now?" in told
    assert "nothing was changed" in told
    assert {path: path.read_bytes() for path in sorted(root.rglob("*")) if path.is_file()} == before


def test_a_repair_cuts_what_was_durable_and_says_how_much(root):
    line = line_of(root, "orders", 1, 295)
    path, position = in_log(line["physical_offset"])
    end = run_json("store", "stat", root)[0]["log"]["end_offset"]
    set_bytes(root / path, position, b"\xff" * 16)
    (root / "abort").write_text("4242")
    assert "damaged commit log" in run("store", "put", "orders", "new", "-d", root, code=3).stderr
    told = run("store", "check", root, "--repair", stdin="y\n")
    cut = end - line["physical_offset"]
    assert f"will cut {cut:,} bytes from physical offset {line['physical_offset']}" in told.stderr
    assert "nothing wrong" in told.stdout
    assert run("store", "put", "orders", "new", "-d", root).exit_code == 0


def test_a_repair_needs_the_lock(root):
    with LocalMessageStore.open(small_config(root)):
        told = spawn("store", "check", root, "--repair", "--yes")
    assert told.returncode == 1
    assert b"another process owns this store" in told.stderr
