"""The walk through a log: the kernel and Python agree, and both tell the truth."""

import subprocess
import sys

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from message.letters import array_of, assert_same_scan, damaged_logs, encode, log_of, logs, messages
from rockstrata.errors import CorruptionError
from rockstrata.message import Message, decode_record
from rockstrata.message import properties as props
from rockstrata.message.record import encode_blank
from rockstrata.message.scan import Scan, ScanStop, kernel_buffer, scan
from rockstrata.message.tags import index_hash, tags_code
from rockstrata.message.topic_table import TopicTable

BOTH = pytest.mark.parametrize("use_kernel", [False, True], ids=["python", "kernel"])
options = st.fixed_dictionaries(
    {
        "check_crc": st.booleans(),
        "keys": st.booleans(),
        "tags_entry": st.booleans(),
        "verify_record_crc": st.booleans(),
        "stop_on_bad_crc": st.booleans(),
        "delay_levels": st.sampled_from([(), (1000,), (1000, 5000, 10_000)]),
        "max_records": st.one_of(st.none(), st.integers(0, 4)),
    }
)


def scan_both(data: bytes, start: int = 0, limit: int | None = None, **kwargs) -> Scan:
    """Scan with the kernel and in Python; they must agree to the last item."""
    limit = len(data) if limit is None else limit
    fast_topics, plain_topics = TopicTable(), TopicTable()
    fast = scan(array_of(data), start, limit, fast_topics, use_kernel=True, **kwargs)
    plain = scan(array_of(data), start, limit, plain_topics, use_kernel=False, **kwargs)
    assert fast_topics.names == plain_topics.names
    assert_same_scan(fast, plain)
    return fast


@settings(max_examples=200)
@given(logs(), options)
def test_kernel_and_python_agree_on_logs(data, chosen):
    found = scan_both(data, **chosen)
    if chosen["max_records"] is None and not chosen["stop_on_bad_crc"]:
        assert found.end + 91 > len(data) or found.stop is not ScanStop.LIMIT or found.end == len(data)


@settings(max_examples=500)
@given(damaged_logs(), options)
def test_kernel_and_python_agree_on_damaged_logs(data, chosen):
    scan_both(data, **chosen)


@given(st.binary(max_size=300), st.data())
def test_random_bytes_never_scan_to_a_record(data, draw):
    start = draw.draw(st.integers(0, len(data)))
    limit = draw.draw(st.integers(start, len(data)))
    found = scan_both(data, start, limit)
    assert len(found) == 0
    assert found.end == start


@settings(max_examples=60)
@given(st.one_of(logs(), damaged_logs()))
def test_every_row_is_a_record_that_decodes_and_every_stop_is_one_that_does_not(data):
    topics = TopicTable()
    found = scan(array_of(data), 0, len(data), topics, check_crc=True, use_kernel=True)
    at = 0
    for row in range(len(found)):
        assert found.position[row] == at
        at += int(found.size[row])
        try:
            stored = decode_record(data, int(found.position[row]))
        except CorruptionError as error:
            named = error.what == "topic is not UTF-8" or found.crc_verdict[row] == 0
            assert named
            continue
        assert found.crc_verdict[row] == 1
        assert found.size[row] == stored.record_bytes
        assert found.queue_id[row] == stored.queue_id
        assert found.queue_offset[row] == stored.queue_offset
        assert found.physical_offset[row] == stored.physical_offset
        assert found.store_timestamp[row] == stored.store_timestamp
        assert found.sys_flag[row] == stored.sys_flag
        assert topics.names[found.topic_id[row]] == stored.topic
        if stored.topic != "SCHEDULE_TOPIC_XXXX":
            assert found.tags_code[row] == tags_code(stored.tags)
    assert found.end == at
    if found.stop is not ScanStop.LIMIT:
        with pytest.raises(CorruptionError):
            decode_record(data, found.end)


@given(st.lists(messages, min_size=1, max_size=5), st.data())
def test_a_truncated_log_keeps_its_whole_records(letters, draw):
    whole = log_of(letters)
    cut = draw.draw(st.integers(0, len(whole)))
    found = scan_both(whole[:cut])
    ends = np.cumsum([len(encode(letter)) for letter in letters])
    assert len(found) == int((ends <= cut).sum())
    assert found.stop is (ScanStop.LIMIT if cut in {0, *ends} else ScanStop.INCOMPLETE)


@BOTH
@pytest.mark.parametrize(
    ("tail", "stop"),
    [
        (b"", ScanStop.LIMIT),
        (bytes(7), ScanStop.INCOMPLETE),
        (bytes(8), ScanStop.ZERO),
        (bytes(200), ScanStop.ZERO),
        (encode_blank(300) + b"old data", ScanStop.BLANK),
        (b"\0\0\0\x64" + bytes(96), ScanStop.BAD_MAGIC),
        (b"\0\0\0\x5a\xda\xa3\x20\xa7" + bytes(96), ScanStop.BAD_SIZE),
        (b"\xff\xff\xff\xff\xda\xa3\x20\xa7" + bytes(96), ScanStop.BAD_SIZE),
        (b"\0\0\0\x64\xda\xa3\x20\xa7" + bytes(28) + b"\0\0\0\x30" + bytes(60), ScanStop.BAD_SIZE),
        (b"\x7f\xff\xff\xff\xda\xa3\x20\xab" + bytes(96), ScanStop.INCOMPLETE),
        (b"\0\0\0\x64\xda\xa3\x20\xa7" + bytes(92), ScanStop.BAD_LENGTHS),
        (b"\0\0\0\x64\xda\xa3\x20\xa7" + bytes(76) + b"\x80\0\0\0" + bytes(12), ScanStop.BAD_LENGTHS),
    ],
)
def test_each_end_has_its_name(tail, stop, use_kernel):
    log = log_of([Message("t", b"body")] * 3)
    found = scan(array_of(log + tail), 0, len(log + tail), TopicTable(), use_kernel=use_kernel)
    assert (len(found), found.end, found.stop) == (3, len(log), stop)


@BOTH
def test_max_records_stops_a_scan_that_can_go_on(use_kernel):
    log = array_of(log_of([Message("t", b"body")] * 5))
    topics = TopicTable()
    first = scan(log, 0, len(log), topics, max_records=2, use_kernel=use_kernel)
    rest = scan(log, first.end, len(log), topics, use_kernel=use_kernel)
    assert (len(first), first.stop) == (2, ScanStop.LIMIT)
    assert rest.queue_offset.tolist() == [2, 3, 4]


@BOTH
def test_keys_come_in_the_order_of_the_index(use_kernel):
    letter = Message.of("Orders", b"", tags="TagA", keys=" k1  k2 ", unique_key="U1")
    log = array_of(log_of([letter, Message("Orders", b"")]))
    with_tags = scan(log, 0, len(log), TopicTable(), tags_entry=True, use_kernel=use_kernel)
    without = scan(log, 0, len(log), TopicTable(), use_kernel=use_kernel)
    none = scan(log, 0, len(log), TopicTable(), keys=False, tags_entry=True, use_kernel=use_kernel)
    expected = [index_hash(key) for key in ("Orders#U1", "Orders#k1", "Orders#k2", "Orders#T#TagA")]
    assert with_tags.key_hash.tolist() == expected
    assert with_tags.key_first.tolist() == [0, 4, 4]
    assert without.key_hash.tolist() == expected[:3]
    assert none.key_first.tolist() == [0, 0, 0]


@BOTH
def test_a_rollback_record_has_no_keys(use_kernel):
    letter = Message("t", b"", properties=b"KEYS\1k\2", sys_flag=0xC)
    log = array_of(log_of([letter]))
    assert len(scan(log, 0, len(log), TopicTable(), use_kernel=use_kernel).key_hash) == 0


@BOTH
def test_a_delayed_record_has_its_delivery_time_as_tag_code(use_kernel):
    levels = (1000, 5000)
    letters = [
        Message.of("SCHEDULE_TOPIC_XXXX", b"", tags="TagA", delay_level=2),
        Message.of("SCHEDULE_TOPIC_XXXX", b"", tags="TagA", delay_level=9),
        Message.of("SCHEDULE_TOPIC_XXXX", b"", tags="TagA"),
        Message.of("SCHEDULE_TOPIC_XXXX", b"", tags="TagA", properties={"DELAY": "soon"}),
        Message.of("Other", b"", tags="TagA", delay_level=2),
    ]
    log = array_of(log_of(letters))
    found = scan(log, 0, len(log), TopicTable(), delay_levels=levels, use_kernel=use_kernel)
    stored = 1700000000123
    assert found.tags_code.tolist() == [stored + 5000, stored + 5000, 2598919, 2598919, 2598919]


@BOTH
def test_inner_batches_and_multi_dispatch_are_told(use_kernel):
    letters = [
        Message("t", b"", properties=props.encode({"INNER_BASE": "40", "INNER_NUM": "3"})),
        Message("t", b"", properties=props.encode({"INNER_MULTI_DISPATCH": "%LMQ%a"})),
        Message("t", b"", properties=props.encode({"INNER_NUM": "40000", "INNER_BASE": "x"})),
    ]
    log = array_of(log_of(letters))
    found = scan(log, 0, len(log), TopicTable(), use_kernel=use_kernel)
    assert found.inner_base.tolist() == [40, -1, -1]
    assert found.inner_num.tolist() == [3, 0, 0]
    assert found.multi_dispatch.tolist() == [0, 1, 0]


@BOTH
def test_a_bad_body_is_told_or_stops_the_walk(use_kernel):
    data = bytearray(log_of([Message("t", b"body")] * 3))
    data[len(data) // 3 + 88] ^= 1
    log, topics = array_of(data), TopicTable()
    told = scan(log, 0, len(log), topics, check_crc=True, use_kernel=use_kernel)
    stopped = scan(log, 0, len(log), topics, check_crc=True, stop_on_bad_crc=True, use_kernel=use_kernel)
    assert told.crc_verdict.tolist() == [1, 0, 1]
    assert (len(stopped), stopped.stop) == (1, ScanStop.BAD_CRC)
    assert scan(log, 0, len(log), topics, use_kernel=use_kernel).crc_verdict.tolist() == [2, 2, 2]


@BOTH
def test_the_record_crc_is_checked_when_asked_for(use_kernel):
    with_crc, without = Message("t", b"body"), log_of([Message("t", b"body")])
    log = array_of(log_of([with_crc], append_crc=True) + without)
    found = scan(
        log, 0, len(log), TopicTable(), check_crc=True, verify_record_crc=True, use_kernel=use_kernel
    )
    assert found.crc_verdict.tolist() == [1, 0]


def test_a_record_with_more_keys_than_expected_makes_room():
    many = Message.of("t", b"", keys=["k"] * 16_000)
    found = scan_both(log_of([Message.of("t", b"", keys="k"), many, many]))
    assert np.diff(found.key_first).tolist() == [1, 16_000, 16_000]


def test_a_log_of_the_smallest_records_makes_room():
    log = array_of(log_of([Message("t", b"")]) * 3000)
    found = scan(log, 0, len(log), TopicTable(), use_kernel=True)
    assert (len(found), found.end, found.stop) == (3000, len(log), ScanStop.LIMIT)


@settings(max_examples=20)
@given(st.lists(st.binary(max_size=127), min_size=1, max_size=60, unique=True))
def test_any_number_of_topics_gets_dense_ids(raws):
    record = encode(Message("t", b""))
    data = b""
    for raw in raws:
        size = len(record) - 1 + len(raw)
        data += size.to_bytes(4) + record[4:88] + bytes([len(raw)]) + raw + record[90:]
    found = scan_both(data)
    topics = TopicTable()
    assert found.topic_id.tolist() == [topics.intern(raw) for raw in raws]


def test_some_rows_of_a_scan_keep_their_keys():
    found = scan_both(log_of([Message.of("t", b"", keys=f"k{n} x") for n in range(4)]))
    some = found.rows(1, 3)
    assert some.queue_offset.tolist() == [1, 2]
    keys = [some.key_hash[some.key_first[row] : some.key_first[row + 1]].tolist() for row in range(len(some))]
    assert keys == [[index_hash(f"t#k{n}"), index_hash("t#x")] for n in (1, 2)]


def test_read_only_bytes_scan_without_a_copy():
    log = log_of([Message("t", b"body")])
    found = scan(kernel_buffer(log), 0, len(log), TopicTable(), use_kernel=True)
    assert len(found) == 1
    assert len(scan(np.frombuffer(log, np.uint8), 0, len(log), TopicTable(), use_kernel=True)) == 1
    assert np.shares_memory(kernel_buffer(log), np.frombuffer(log, np.uint8))


def test_a_small_scan_answers_without_numba_and_the_model_without_numpy():
    program = (
        "import sys, rockstrata.message as m\n"
        "import rockstrata.message.delay, rockstrata.message.tags, rockstrata.message.crc\n"
        "assert 'numpy' not in sys.modules\n"
        "import numpy as np\n"
        "from rockstrata.message.scan import scan\n"
        "from rockstrata.message.topic_table import TopicTable\n"
        "r = m.encode_record(m.Message('t', b'x'), queue_offset=0, physical_offset=0,\n"
        "    store_timestamp=1, store_host=m.LOOPBACK)\n"
        "s = scan(np.frombuffer(bytearray(r), np.uint8), 0, len(r), TopicTable())\n"
        "assert len(s) == 1 and 'numba' not in sys.modules\n"
    )
    subprocess.run([sys.executable, "-c", program], check=True, timeout=60)
