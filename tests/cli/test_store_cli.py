"""The commands on a store: what was put is found, what is wrong is said in one line."""

import json
import os
import signal
import subprocess
import sys

import pytest

from cli.cli_kit import SMALL, fill, log_file, run, run_json, set_bytes, small_config, spawn
from rockstrata import __version__
from rockstrata.message.model import Message, parse_host
from rockstrata.store.local_store import LocalMessageStore
from rockstrata.store.reader import StoreReader

BORN_MS = 1_700_000_000_000


@pytest.fixture(scope="module")
def filled(tmp_path_factory):
    return fill(tmp_path_factory.mktemp("filled"))


@pytest.fixture
def root(tmp_path):
    return tmp_path / "store"


# The whole program


def test_the_version_is_printed():
    assert run("--version").stdout == f"rockstrata {__version__}\n"


def test_help_documents_the_exit_codes_and_loads_nothing_heavy():
    code = (
        "import sys\nfrom rockstrata.cli.main import app\n"
        "try: app(['--help'])\nexcept SystemExit: pass\n"
        "print([m for m in ('numpy', 'numba', 'msgspec') if m in sys.modules], file=sys.stderr)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert "3 damaged" in " ".join(done.stdout.split())
    assert done.stderr.strip() == "[]"


def test_putting_and_getting_one_message_loads_no_numba(root):
    code = (
        "import sys\nfrom rockstrata.cli.main import app\n"
        "try: app(sys.argv[1:])\nexcept SystemExit as e: assert not e.code\n"
        "print([m for m in ('numpy', 'numba') if m in sys.modules], file=sys.stderr)"
    )
    for command, loaded in (
        (("put", "orders", "hello", "--keys", "k"), "['numpy']"),
        (("get", "orders", "0", "0"), "[]"),
        (("query", "orders", "k"), "[]"),
    ):
        arguments = [sys.executable, "-c", code, "store", *command, "-d", str(root)]
        done = subprocess.run(arguments, capture_output=True, text=True, check=True)
        assert done.stderr.splitlines()[-1] == loaded, (command, done.stderr)


def test_an_error_is_one_line_and_debug_shows_where_it_arose(tmp_path):
    plain = spawn("store", "stat", tmp_path / "nowhere")
    assert plain.returncode == 2
    assert plain.stderr.decode().startswith("error: no store here at ")
    assert plain.stderr.count(b"\n") == 1
    for command, env in ((("--debug", "store", "stat"), {}), (("store", "stat"), {"ROCKSTRATA_DEBUG": "1"})):
        shown = spawn(*command, tmp_path / "nowhere", env=env)
        assert shown.returncode == 2
        assert b"Traceback" in shown.stderr


def test_a_reader_that_leaves_early_causes_no_noise(filled):
    dump = subprocess.Popen(
        [sys.executable, "-m", "rockstrata.cli.main", "store", "dump", "-d", str(filled), "--bodies"],
        stdout=subprocess.PIPE, stderr=subprocess.PIPE,
    )  # fmt: skip
    dump.stdout.close()
    assert dump.wait(30) == 141
    assert dump.stderr.read() == b""
    dump.stderr.close()


def test_the_directory_comes_from_an_option_the_environment_or_a_config_file(filled, tmp_path):
    conf = tmp_path / "broker.conf"
    conf.write_text(f"storePathRootDir={filled}\nbrokerName=x\n")
    by_option = run_json("store", "get", "orders", 1, 0, "-d", filled)
    assert run_json("store", "get", "orders", 1, 0, "-c", conf) == by_option
    assert run_json("store", "get", "orders", 1, 0, "--set", f"storePathRootDir={filled}") == by_option
    result = run(
        "store", "get", "orders", 1, 0, "--json", env={"ROCKSTRATA_STORE_PATH_ROOT_DIR": str(filled)}
    )
    assert [json.loads(result.stdout)] == by_option


@pytest.mark.parametrize(
    "command", [("get", "t", 0, 0), ("query", "t", "k"), ("stat",), ("check",), ("dump",)]
)
def test_reading_needs_a_store(command, tmp_path):
    assert "no store here" in run("store", *command, "-d", tmp_path / "none", code=2).stderr
    (tmp_path / "letter.txt").write_text("dear")
    assert "not a store" in run("store", *command, "-d", tmp_path, code=2).stderr


def test_sizes_of_files_are_seen_where_nobody_names_them(filled, monkeypatch):
    for name in SMALL:
        monkeypatch.delenv(f"ROCKSTRATA_{name.upper()}")
    assert run_json("store", "query", "orders", "k17", "-d", filled)[0]["keys"] == "k17 all"
    assert run("store", "check", filled).exit_code == 0
    told = run("store", "check", filled, "--set", "mappedFileSizeCommitLog=131072", code=3).stdout
    assert "wrong file size" in told


def test_a_setting_nobody_knows_is_refused_with_a_suggestion(root):
    told = run("store", "put", "t", "b", "-d", root, "--set", "flushDiskTyp=SYNC_FLUSH", code=2).stderr
    assert "did you mean flushDiskType?" in told
    assert "KEY=VALUE" in run("store", "put", "t", "b", "-d", root, "--set", "flushDiskType", code=2).stderr


# put


def test_a_message_put_is_found_by_offset_id_and_physical_offset(root):
    answer = run(
        "store", "put", "orders", "hello", "-d", root, "--queue", 3, "--tags", "A", "--keys", "k1 k2",
        "--flag", 7, "--property", "region=north", "--sync", "--json",
    )  # fmt: skip
    put = json.loads(answer.stdout)
    assert (put["status"], put["queue_offset"], put["physical_offset"]) == ("PUT_OK", 0, 0)
    (found,) = run_json("store", "get", "orders", 3, 0, "-d", root)
    assert (found["body"], found["tags"], found["keys"], found["flag"]) == ("aGVsbG8=", "A", "k1 k2", 7)
    assert found["properties"]["region"] == "north"
    assert run_json("store", "get", "--id", put["message_id"], "-d", root) == [found]
    assert run_json("store", "get", "--physical", 0, "-d", root) == [found]


def test_put_says_where_the_message_went(root):
    told = run("store", "put", "orders", "hello", "-d", root).stdout
    assert "PUT_OK" in told
    assert "message id" in told
    assert (
        "waits in SCHEDULE_TOPIC_XXXX" in run("store", "put", "t", "b", "--delay-level", 3, "-d", root).stderr
    )


def test_a_body_from_stdin_is_stored_byte_by_byte(root):
    body = bytes(range(256))
    assert spawn("store", "put", "orders", "-", "-d", root, input=body).returncode == 0
    shown = run("store", "get", "orders", 0, 0, "-d", root).stdout
    assert "0x000102" in shown
    assert StoreReader.open(root).get("orders", 0, 0).messages()[0].body == body


def test_a_store_is_not_made_among_other_files(tmp_path):
    (tmp_path / "letter.txt").write_text("dear")
    assert "not empty" in run("store", "put", "t", "b", "-d", tmp_path, code=2).stderr
    assert [path.name for path in tmp_path.iterdir()] == ["letter.txt"]
    assert "not a directory" in run("store", "put", "t", "b", "-d", tmp_path / "letter.txt", code=2).stderr


def test_put_needs_a_body_or_a_file(root):
    assert "TOPIC and BODY" in run("store", "put", "t", "-d", root, code=2).stderr
    assert "not both" in run("store", "put", "t", "b", "--from", "x", "-d", root, code=2).stderr
    assert "cannot read the file" in run("store", "put", "--from", root / "no", "-d", root, code=2).stderr


def test_a_message_that_cannot_be_stored_says_why(root):
    told = run("store", "put", "t", "b" * 99, "-d", root, "--set", "maxMessageSize=50", code=2).stderr
    assert "MESSAGE_ILLEGAL" in told
    assert " 50" in told
    assert (
        "expected KEY=VALUE" in run("store", "put", "t", "b", "-d", root, "--property", "no", code=2).stderr
    )


def test_a_locked_store_is_not_written_but_read(root):
    fill(root, 3)
    with LocalMessageStore.open(small_config(root)):
        told = spawn("store", "put", "orders", "hello", "-d", root)
        assert told.returncode == 1
        assert b"another process owns this store" in told.stderr
        assert spawn("store", "get", "orders", 1, 0, "-d", root).returncode == 0
        shown = spawn("store", "stat", root).stdout.decode()
        assert f"owned by process {os.getpid()}" in shown
    assert "closed in order" in run("store", "stat", root).stdout


# put --from and dump


LETTERS = [
    Message.of("orders", "plain", queue_id=2, tags="A", keys=["k1", "k2"], unique_key="U1", flag=-5),
    Message("orders", bytes(range(256)), 2, b"a\x01b\x02a\x01c\x02odd", born_timestamp=BORN_MS),
    Message("pay", b"", 0, b"", born_host=parse_host("[2001:db8::1]:99"), reconsume_times=3),
    Message("pay", b"half", 0, b"TRAN_MSG\x01true\x02", sys_flag=0x4),
    Message("pay", b"whole", 0, b"TRAN_MSG\x01true\x02", sys_flag=0x8, prepared_transaction_offset=77),
    Message("pay", b"undone", 1, sys_flag=0xC),
    Message("pay", "größe 😀".encode(), 1, "n\x01ö😀\x02".encode(), sys_flag=0x301),
    Message("pay", b"far", 1, store_host=parse_host("[2001:db8::2]:10911")),
    Message.of("later", "delayed", queue_id=4, delay_level=3, tags="T"),
    Message("later", b"delivered", 4, b"DELAY\x013\x02REAL_TOPIC\x01later\x02REAL_QID\x014\x02"),
]


def without(line, *names):
    return {name: value for name, value in line.items() if name not in names}


@pytest.mark.parametrize("repeats", [1, 300], ids=["a few", "batches"])
def test_dump_and_put_from_are_inverse(root, tmp_path, repeats):
    with LocalMessageStore.open(small_config(root), start_services=False) as store:
        for letter in LETTERS * repeats:
            result = store.put_without_hooks(letter) if letter.body == b"delivered" else store.put(letter)
            assert result.ok
    dumped = spawn("store", "dump", "-d", root, "--bodies")
    assert dumped.returncode == 0
    lines = tmp_path / "lines.jsonl"
    lines.write_bytes(dumped.stdout)

    told = run("store", "put", "--from", lines, "-d", tmp_path / "copy").stdout
    assert f"{repeats * len(LETTERS):,} messages stored" in told

    copied = run("store", "dump", "-d", tmp_path / "copy", "--bodies").stdout.splitlines()
    original = dumped.stdout.decode().splitlines()
    assert len(copied) == repeats * len(LETTERS)
    for old, new in zip(map(json.loads, original), map(json.loads, copied), strict=True):
        assert without(old, "store_timestamp") == without(new, "store_timestamp")
    assert run("store", "check", tmp_path / "copy").exit_code == 0


def test_a_dump_has_exactly_the_promised_fields(filled):
    names = [
        "topic", "queue_id", "queue_offset", "physical_offset", "tags", "keys", "unique_key", "properties",
        "flag", "born_timestamp", "store_timestamp", "born_host", "store_host", "body_bytes", "body_crc",
        "sys_flag", "reconsume_times", "prepared_transaction_offset",
    ]  # fmt: skip
    first, *rest = run_json("store", "dump", "-d", filled)
    assert list(first) == names
    assert len(rest) == 299
    assert list(run_json("store", "dump", "-d", filled, "--bodies")[0]) == [*names, "body"]


def test_a_dump_can_be_narrowed_by_queue_offset_and_time(filled):
    whole = run_json("store", "dump", "-d", filled)
    pay = [line for line in whole if line["topic"] == "pay"]
    assert run_json("store", "dump", "pay", "-d", filled) == pay
    part = run_json("store", "dump", "orders", "-d", filled, "-q", 1, "--from-offset", 10, "--to-offset", 13)
    assert [(line["queue_id"], line["queue_offset"]) for line in part] == [(1, 10), (1, 11), (1, 12)]
    middle = whole[150]["store_timestamp"]
    late = [line for line in whole if line["store_timestamp"] >= middle]
    assert run_json("store", "dump", "-d", filled, "--begin", middle) == late
    assert run_json("store", "dump", "pay", "-d", filled, "--begin", middle) == [
        line for line in late if line["topic"] == "pay"
    ]
    early = [line for line in whole if line["store_timestamp"] <= middle]
    assert run_json("store", "dump", "-d", filled, "--end", middle) == early


def test_a_dump_of_what_is_not_there_is_refused(filled):
    assert "no topic nosuch" in run("store", "dump", "nosuch", "-d", filled, code=2).stderr
    assert "no queue 9" in run("store", "dump", "pay", "-q", 9, "-d", filled, code=2).stderr
    assert "need a TOPIC" in run("store", "dump", "-q", 1, "-d", filled, code=2).stderr
    assert "2026-05-01T12:00:00" in run("store", "dump", "-d", filled, "--begin", "yesterday", code=2).stderr


def test_lines_written_by_hand_need_only_topic_and_body(root, tmp_path):
    lines = tmp_path / "lines.jsonl"
    lines.write_text(
        '{"topic": "t", "body_text": "h\\u00e9llo"}\n\n'
        '{"topic": "t", "body": "AP8=", "tags": "A", "keys": ["a", "b"], "queue_id": 1}\n'
        '{"topic": "t", "body_text": "later", "delay_level": 2}\n'
    )
    assert json.loads(run("store", "put", "--from", lines, "-d", root, "--json").stdout) == {
        "stored": 3,
        "lines": 4,
    }
    reader = StoreReader.open(root)
    assert reader.get("t", 0, 0).messages()[0].body == "héllo".encode()
    second = reader.get("t", 1, 0).messages()[0]
    assert (second.body, second.tags, second.keys) == (b"\x00\xff", "A", "a b")
    assert reader.max_offset("SCHEDULE_TOPIC_XXXX", 1) == 1


@pytest.mark.parametrize(
    ("line", "told"),
    [
        ("{", "bad line"),
        ('{"topic": "t"}', "expected body (base64) or body_text"),
        ('{"topic": "t", "body_crc": 3}', "dump with --bodies"),
        ('{"topic": "t", "body": "AA==", "body_text": "a"}', "expected one of them"),
        ('{"topic": "t", "body": "not base64!"}', "$.body"),
        ('{"topic": "t", "body_text": "a", "tag": "A"}', "unknown field `tag`"),
        ('{"topic": "t", "body_text": "a", "tags": "A", "properties": {"TAGS": "B"}}', "contradicts"),
        ('{"topic": "t", "body": "AA==", "body_crc": 12}', "does not match body_crc"),
        ('{"topic": "t", "body_text": "a", "born_host": "here"}', "bad host"),
        ('{"topic": "t", "body_text": "a", "queue_id": 99999999999}', "does not fit"),
        ('{"topic": "t", "body_text": "%s"}' % ("x" * 600), " 500"),
    ],
)  # fmt: skip
@pytest.mark.parametrize("before", [2, 700])
def test_a_bad_line_is_named_and_the_lines_before_it_are_stored(root, tmp_path, line, told, before):
    lines = tmp_path / "lines.jsonl"
    good = '{"topic": "t", "body_text": "good"}\n'
    lines.write_text(good * before + line + "\n" + good)
    error = run("store", "put", "--from", lines, "-d", root, "--set", "maxMessageSize=500", code=2).stderr
    assert told in error
    assert f"lines.jsonl:{before + 1}" in error
    assert f"{before} messages stored before line {before + 1}" in error
    assert StoreReader.open(root).max_offset("t", 0) == before


def test_an_interrupted_put_leaves_a_store_in_order(root):
    process = subprocess.Popen(
        [sys.executable, "-m", "rockstrata.cli.main", "store", "put", "--from", "-", "-d", str(root)],
        stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
    )  # fmt: skip
    process.stdin.write(b'{"topic": "t", "body_text": "good"}\n' * 2_500)
    process.stdin.flush()
    waited = StoreWait(root)
    waited.until_put()
    process.send_signal(signal.SIGINT)
    _, told = process.communicate(timeout=30)
    assert process.returncode == 130
    stored = int(told.decode().split(" messages stored")[0].split()[-1].replace(",", ""))
    assert stored >= 2_000
    assert StoreReader.open(root).max_offset("t", 0) == stored
    assert "closed in order" in run("store", "stat", root).stdout


class StoreWait:
    """Waits for another process to have put something."""

    def __init__(self, root):
        self._root = root

    def until_put(self, seconds=20.0):
        import time

        deadline = time.monotonic() + seconds
        while time.monotonic() < deadline:
            if (self._root / "consumequeue" / "t" / "0").exists():
                time.sleep(0.3)
                return
            time.sleep(0.05)
        raise AssertionError("nothing was put")


# get and query


def test_several_messages_are_a_table_and_say_where_to_go_on(filled):
    result = run("store", "get", "orders", 1, 5, "-n", 3, "-d", filled)
    assert "3 messages of orders" in result.stdout
    assert "next offset 8; the queue holds [0, 100)" in result.stderr


def test_get_starts_at_a_time(filled):
    line = run_json("store", "get", "orders", 1, 40, "-d", filled)[0]
    (found,) = run_json("store", "get", "orders", 1, "--time", line["store_timestamp"], "-d", filled)
    assert found["store_timestamp"] == line["store_timestamp"]
    assert found["queue_offset"] <= 40
    assert "OFFSET_OVERFLOW_ONE" in run(
        "store", "get", "orders", 1, "--time", "2100-01-01T00:00:00", "-d", filled, code=1
    ).stderr  # fmt: skip


def test_get_filters_by_tag_and_sql(filled):
    everything = run_json("store", "get", "orders", 1, 0, "-n", 500, "-d", filled)
    assert len(everything) == 100
    assert run_json("store", "get", "orders", 1, 0, "-n", 500, "--tags", "X || B", "-d", filled) == everything
    some = run_json("store", "get", "orders", 1, 0, "-n", 500, "--sql", "KEYS CONTAINS 'k1'", "-d", filled)
    assert [line["keys"] for line in some] == [line["keys"] for line in everything if "k1" in line["keys"]]
    told = run("store", "get", "orders", 1, 0, "--tags", "Z", "-d", filled, code=1).stderr
    assert "NO_MATCHED_MESSAGE" in told
    assert "next offset 100" in told
    assert (
        "not both"
        in run("store", "get", "orders", 1, 0, "--tags", "Z", "--sql", "a=1", "-d", filled, code=2).stderr
    )
    assert run("store", "get", "orders", 1, 0, "--sql", "a = = 1", "-d", filled, code=2).stderr.startswith(
        "error: "
    )


@pytest.mark.parametrize(
    ("arguments", "code", "told"),
    [
        (("orders", 1, 100), 1, "OFFSET_OVERFLOW_ONE: queue 1 of orders holds [0, 100); next offset 100"),
        (("orders", 1, 999), 1, "OFFSET_OVERFLOW_BADLY"),
        (("orders", 9, 0), 1, "is empty or unknown"),
        (("orders", 1, "five"), 2, "OFFSET"),
        (("orders", 1, "--", -1), 2, "OFFSET"),
        (("orders", 1), 2, "TOPIC QUEUE OFFSET"),
        (("orders", 1, 0, "--physical", 0), 2, "TOPIC QUEUE OFFSET"),
        (("--id", "C0FFEE"), 2, "bad message id"),
        (("--id", "7F00000100002A9F00000000FFFFFFFF"), 1, "no message with id"),
        (("--physical", 1 << 40), 1, "no message with physical offset"),
        (("--physical", 5), 3, "no record starts here"),
    ],
)  # fmt: skip
def test_what_is_not_found_is_said(filled, arguments, code, told):
    assert told in run("store", "get", "-d", filled, *arguments, code=code).stderr


def test_a_damaged_record_is_an_error_with_its_place(root):
    fill(root, 9)
    second = run_json("store", "get", "orders", 2, 0, "-d", root)[0]["physical_offset"]
    set_bytes(log_file(root), second + 90, b"\xff")
    told = run("store", "get", "orders", 2, 0, "-d", root, code=3).stderr
    assert "body does not match its CRC" in told
    told = run("store", "dump", "-d", root, code=3)
    assert f"00000000000000000000:{second}" in told.stderr
    assert len(told.stdout.splitlines()) == 2
    going_on = run("store", "dump", "-d", root, "--keep-going", code=3)
    assert len(going_on.stdout.splitlines()) == 8
    assert len(run("store", "dump", "orders", "-d", root, "--keep-going", code=3).stdout.splitlines()) == 5


def test_query_finds_by_key_and_tag_and_says_what_it_searched(filled):
    (line,) = run_json("store", "query", "orders", "k17", "-d", filled)
    assert line["keys"] == "k17 all"
    found = run("store", "query", "orders", "all", "--max", 7, "-d", filled)
    assert "7 messages with key 'all' in topic orders (the newest; --max 7)" in found.stderr
    assert "searched from the beginning to now" in found.stderr
    assert len(run_json("store", "query", "pay", "A", "--by-tag", "--max", 500, "-d", filled)) == 100
    stored = line["store_timestamp"]
    assert run_json("store", "query", "orders", "k17", "--begin", stored, "--end", stored, "-d", filled) == [
        line
    ]
    told = run("store", "query", "orders", "k17", "--end", stored - 1, "-d", filled, code=1).stderr
    assert "no message with key 'k17'" in told
    assert "index file" in told
    assert "expected epoch" in run("store", "query", "t", "k", "--begin", "soon", "-d", filled, code=2).stderr


# stat


def test_stat_counts_messages_bytes_and_files(filled):
    (found,) = run_json("store", "stat", filled)
    lines = run_json("store", "dump", "-d", filled)
    assert sum(queue["messages"] for queue in found["queues"]) == 300
    assert {q["topic"]: q["max_offset"] for q in found["queues"]} == {"orders": 100, "pay": 100}
    assert sum(queue["record_bytes"] for queue in found["queues"]) <= found["log"]["end_offset"]
    assert found["queues"][0]["newest"] >= found["queues"][0]["oldest"] == lines[1]["store_timestamp"]
    assert found["state"] == "closed"
    assert found["log"]["files"] == len(list((filled / "commitlog").iterdir()))
    assert found["checkpoint"]["logics_physical_offset"] == found["log"]["end_offset"]
    shown = run("store", "stat", filled).stdout
    assert "300 in " in shown
    assert "orders" not in run("store", "stat", filled, "--topic", "pay").stdout.replace(str(filled), "")


def test_stat_tells_a_store_that_was_not_closed(root):
    fill(root, 3)
    (root / "abort").write_text("4242")
    assert "not closed by process 4242" in run("store", "stat", root).stdout
    told = run("store", "put", "orders", "hello", "-d", root)
    assert "the last owner did not close this store" in told.stderr
    assert "closed in order" in run("store", "stat", root).stdout


def test_names_in_messages_cannot_paint_the_terminal(root):
    run("store", "put", "orders", "\x1b[31mred\x07", "-d", root, "--keys", "\x1b]0;title\x07")
    for command in (("get", "orders", 0, 0), ("dump",)):
        assert "\x1b" not in run("store", *command, "-d", root).stdout
