"""Index files: RocketMQ's bytes, the same from Python and kernel, and answers from any bytes."""

import hashlib
from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rockstrata.errors import CorruptionError, ForeignFileError
from rockstrata.message.tags import index_hash
from rockstrata.store.index_file import INDEX_HEADER, INDEX_ITEM, IndexFile, index_file_bytes
from rockstrata.testing.forgetful_disk import ForgetfulDisk

PATH = Path("/store/index/20231114221320123")
NOW = 1_700_000_000_123
FOREVER = 2**63 - 1

Key = tuple[int, int, int]
KEYS = st.lists(
    st.tuples(
        st.one_of(st.integers(0, 5), st.integers(0, 2**31 - 1)),
        st.integers(-10, 2**62),
        st.one_of(st.integers(NOW - 5_000, NOW + 100_000), st.integers(-5, 2**62)),
    ),
    max_size=80,
)


def new_file(disk: ForgetfulDisk, slots: int = 10, items: int = 16, path: Path = PATH) -> IndexFile:
    return IndexFile.create(disk, path, slots, items)


def put_arrays(file: IndexFile, keys: list[Key]) -> int:
    columns = zip(*keys, strict=True) if keys else ((), (), ())
    hashes, physical, timestamps = columns
    return file.put_keys(
        np.array(hashes, np.int32), np.array(physical, np.int64), np.array(timestamps, np.int64)
    )


def oracle(keys: list[Key], key_hash: int, begin: int, end: int, max_num: int, slots: int) -> list[int]:
    """RocketMQ's answer, from the list of what was put: newest first, times in whole seconds."""
    found: list[int] = []
    first = keys[0][2] if keys else 0
    for n, (h, physical, timestamp) in reversed(list(enumerate(keys))):
        if h % slots != key_hash % slots:
            continue
        if len(found) >= max_num:
            break
        seconds = 0 if n == 0 or first <= 0 else min(max(0, timestamp - first) // 1000, 2**31 - 1)
        time = first + 1000 * seconds
        if h == key_hash and begin <= time <= end:
            found.append(physical)
        if time < begin:
            break
    return found


def test_golden_bytes() -> None:
    disk = ForgetfulDisk()
    file = new_file(disk)
    k1, k2 = index_hash("TopicTest#k1"), index_hash("TopicTest#k2")
    assert (k1, k2) == (2746024, 2746025)
    for key_hash, physical, timestamp in ((k1, 4096, NOW), (k2, 4096, NOW), (k1, 9000, 1_700_000_005_999)):
        assert file.put_key(key_hash, physical, timestamp)

    data = disk.read_bytes(PATH)
    assert len(data) == 400
    assert data[:40].hex() == (
        "0000018bcfe5687b" "0000018bcfe57f6f" "0000000000001000" "0000000000002328" "00000002" "00000004"
    )  # fmt: skip
    slots = [int.from_bytes(data[40 + 4 * s : 44 + 4 * s], "big") for s in range(10)]
    assert slots == [0, 0, 0, 0, 3, 2, 0, 0, 0, 0]
    items = data[80:]
    assert items[:20] == bytes(20)
    assert items[20:40].hex() == "0029e6a800000000000010000000000000000000"
    assert items[40:60].hex() == "0029e6a900000000000010000000000000000000"
    assert items[60:80].hex() == "0029e6a800000000000023280000000500000001"
    assert file.query(k1, 0, FOREVER, 64) == [9000, 4096]

    following = IndexFile.create(disk, PATH.with_name("20231114221326000"), 10, 16, after=file)
    assert (following.begin_physical, following.end_timestamp) == (9000, 1_700_000_005_999)
    following.put_key(k1, 12_000, 1_700_000_009_000)
    assert following.begin_timestamp == following.end_timestamp == 1_700_000_009_000
    assert INDEX_ITEM.struct.unpack_from(disk.read_bytes(following.path), 80 + 20)[2] == 3


def test_bytes_and_answers_of_the_java_class() -> None:
    """1200 puts into two files and 4960 queries, as IndexFile of 5.5.0 and of 5.3.3 did them."""
    disk = ForgetfulDisk()
    files = [new_file(disk, 101, 700)]
    for n in range(1_200):
        key_hash = index_hash(f"T中#k{n * 7919 % 300}")
        timestamp = NOW + (-2500 if n % 50 == 49 else 731 * n)
        if not files[-1].put_key(key_hash, 37 * n, timestamp):
            files.append(IndexFile.create(disk, PATH.with_name("2"), 101, 700, after=files[-1]))
            files[-1].put_key(key_hash, 37 * n, timestamp)
    assert [hashlib.sha256(disk.read_bytes(file.path)).hexdigest() for file in files] == [
        "34bd28bc96c99cbb9af7f7f347fa8243cc11ad802d2d254d0b9593970b94171e",
        "c6ab43385a4809df68425d83cc6047eafd634f2d6f6c31765ccbcb18129d8789",
    ]
    answers = 0
    for file in files:
        for k in range(310):
            for b in range(8):
                begin, end = NOW + 40_000 * b - 3_000, NOW + 90_000 * b
                found = file.query(index_hash(f"T中#k{k}"), begin, end, 1 + k % 7)
                for number in (*found, len(found)):
                    answers = (31 * answers + number) % 2**64
    assert answers == 1_868_511_025_114_607_602


def test_a_file_takes_one_key_less_than_it_has_items() -> None:
    file = new_file(ForgetfulDisk(), items=4)
    assert [file.put_key(7, n, NOW) for n in range(4)] == [True, True, True, False]
    assert file.is_full
    assert file.query(7, 0, FOREVER, 64) == [2, 1, 0]
    assert put_arrays(file, [(1, 2, 3)]) == 0


@settings(deadline=None)
@given(keys=KEYS, slots=st.integers(1, 12), items=st.integers(2, 90), cut=st.integers(0, 80))
def test_kernel_and_python_write_the_same_bytes(keys: list[Key], slots: int, items: int, cut: int) -> None:
    disk = ForgetfulDisk()
    one, many = new_file(disk, slots, items), new_file(disk, slots, items, PATH.with_name("2"))
    taken = [one.put_key(*key) for key in keys]
    assert put_arrays(many, keys[:cut]) + put_arrays(many, keys[cut:]) == sum(taken)
    assert disk.read_bytes(one.path) == disk.read_bytes(many.path)
    again = IndexFile(disk.open(many.path), slots, items)
    for name in (*INDEX_HEADER.positions, "is_full"):
        assert getattr(one, name) == getattr(many, name) == getattr(again, name)


@settings(deadline=None)
@given(keys=KEYS, slots=st.integers(1, 12), data=st.data())
def test_queries_find_what_was_put(keys: list[Key], slots: int, data: st.DataObject) -> None:
    file = new_file(ForgetfulDisk(), slots, 100)
    put_arrays(file, keys)
    wanted = data.draw(
        st.lists(st.one_of(st.integers(0, 5), st.sampled_from(keys or [(0, 0, 0)]).map(lambda k: k[0])))
    )
    times = st.one_of(st.integers(NOW - 9_000, NOW + 110_000), st.sampled_from([0, -1, FOREVER]))
    begin, end, max_num = data.draw(times), data.draw(times), data.draw(st.integers(0, 5))

    found = [file.query(h, begin, end, max_num) for h in wanted]

    assert found == [oracle(keys, h, begin, end, max_num, slots) for h in wanted]
    first, physical = file.query_many(np.array(wanted, np.int32), begin, end, max_num)
    assert [physical[a:b].tolist() for a, b in pairwise(first)] == found


def test_many_look_ups_in_one_call() -> None:
    file = new_file(ForgetfulDisk(), 997, 5_000)
    put_arrays(file, [(n * 7919 % 4_000, n, NOW + n) for n in range(4_999)])
    hashes = np.arange(20_000, dtype=np.int32) % 4_100
    first, physical = file.query_many(hashes, 0, FOREVER, 3)
    for n in range(0, 20_000, 97):
        assert physical[first[n] : first[n + 1]].tolist() == file.query(int(hashes[n]), 0, FOREVER, 3)


@settings(max_examples=200, deadline=None)
@given(data=st.binary(min_size=1, max_size=400), at=st.integers(0, 399), word=st.integers(-3, 20))
def test_any_bytes_give_an_answer_or_a_typed_error(data: bytes, at: int, word: int) -> None:
    disk = ForgetfulDisk()
    file = new_file(disk)
    put_arrays(file, [(n % 3, n, NOW + n) for n in range(12)])
    content = bytearray(disk.read_bytes(PATH))
    content[at : at + len(data)] = data
    # Small numbers are what chains are made of: they lead into loops.
    content[40 + at % 360 // 4 * 4 :][:4] = word.to_bytes(4, "big", signed=True)
    disk.write_file(PATH, bytes(content[:400]))
    try:
        read = IndexFile(disk.open(PATH), 10, 16)
    except CorruptionError as error:
        assert error.position == 36  # noqa: PT017
        return
    hashes = np.arange(12, dtype=np.int32)
    first, physical = read.query_many(hashes, 0, FOREVER, 64)
    for h in range(12):
        assert physical[first[h] : first[h + 1]].tolist() == read.query(h, 0, FOREVER, 64)
    read.truncate(FOREVER, doubt=True)
    read.put_key(1, 1, 1)
    assert read.index_count <= 16


def test_a_loop_ends() -> None:
    disk = ForgetfulDisk()
    file = new_file(disk)
    for n in range(5):
        file.put_key(3, n, NOW)
    # Items 2 and 5 point to each other.
    file.file.pwrite(80 + 20 * 2 + 16, (5).to_bytes(4, "big"))
    assert file.query(3, 0, FOREVER, 64) == [4, 3, 2, 1]
    assert file.query_many(np.array([3], np.int32), 0, FOREVER, 64)[1].tolist() == [4, 3, 2, 1]


def test_other_sizes_are_foreign() -> None:
    disk = ForgetfulDisk()
    for size in (399, 401, 0):
        disk.write_file(PATH, bytes(size))
        with pytest.raises(ForeignFileError, match="maxHashSlotNum"):
            IndexFile(disk.open(PATH), 10, 16)
    assert index_file_bytes(5_000_000, 20_000_000) == 420_000_040


@pytest.mark.parametrize("count", [17, -1, 2**31 - 1])
def test_an_impossible_count_is_corruption(count: int) -> None:
    disk = ForgetfulDisk()
    disk.write_file(PATH, bytes(36) + count.to_bytes(4, "big", signed=True) + bytes(360))
    with pytest.raises(CorruptionError, match=f"{PATH}:36"):
        IndexFile(disk.open(PATH), 10, 16)


@settings(deadline=None)
@given(keys=st.lists(st.integers(0, 40), min_size=1, max_size=200), end=st.integers(-1, 1_000))
def test_truncation_leaves_what_fewer_puts_would_have_written(keys: list[int], end: int) -> None:
    disk = ForgetfulDisk()
    file, less = new_file(disk, 7, 210), new_file(disk, 7, 210, PATH.with_name("2"))
    put_arrays(file, [(h, 5 * n, NOW + n) for n, h in enumerate(keys)])
    put_arrays(less, [(h, 5 * n, NOW + n) for n, h in enumerate(keys) if 5 * n < end])
    before = disk.read_bytes(file.path)
    assert file.truncate(end, doubt=False) == (end > 0)
    if end > 0:
        a, b = disk.read_bytes(file.path), disk.read_bytes(less.path)
        assert a[16:] == b[16:]  # But for the end time, which items know to the second.
        assert a[:8] == b[:8]
        assert 0 <= file.end_timestamp - less.end_timestamp < 1000
        if 5 * len(keys) <= end:
            assert a == before


@settings(deadline=None)
@given(seed=st.randoms(use_true_random=False), count=st.integers(1, 900), step=st.integers(1, 300))
def test_what_a_power_cut_leaves_is_a_true_prefix(seed: object, count: int, step: int) -> None:
    disk = ForgetfulDisk(names_follow_sync=True)
    file = new_file(disk, 64, 1_000)
    file.flush()
    keys = [(n * n % 53, 10 * n, NOW + n) for n in range(count)]
    for at in range(0, count, step):
        put_arrays(file, keys[at : at + step])
        if at // step % 3 == 1:
            disk.write_back(seed)  # type: ignore[arg-type]

    after = disk.power_cut(seed)  # type: ignore[arg-type]

    left = IndexFile(after.open(PATH), 64, 1_000)
    if not left.truncate(FOREVER, doubt=True):
        return
    kept = left.index_count - 1
    assert 0 < kept <= count
    assert left.end_physical == keys[kept - 1][1]
    expected = new_file(disk, 64, 1_000, PATH.with_name("2"))
    put_arrays(expected, keys[:kept])
    assert after.read_bytes(PATH)[40:] == disk.read_bytes(expected.path)[40:]
