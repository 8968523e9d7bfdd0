"""The checkpoint: six numbers that survive, and files that are no checkpoint."""

import random
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rockstrata.errors import CorruptionError, DiskError
from rockstrata.store.checkpoint import CHECKPOINT, CHECKPOINT_BYTES, Checkpoint
from rockstrata.testing.forgetful_disk import ForgetfulDisk

PATH = Path("/store/checkpoint")
NAMES = [field.name for field in CHECKPOINT.fields]


def values(checkpoint: Checkpoint) -> list[int]:
    return [getattr(checkpoint, name) for name in NAMES]


def filled(disk: ForgetfulDisk, numbers: list[int]) -> Checkpoint:
    checkpoint = Checkpoint(disk, PATH)
    for name, number in zip(NAMES, numbers, strict=True):
        setattr(checkpoint, name, number)
    return checkpoint


def test_a_missing_file_is_all_zero_and_stays_missing() -> None:
    disk = ForgetfulDisk()
    assert values(Checkpoint(disk, PATH)) == [0] * 6
    assert not disk.exists(PATH)


def test_bytes_are_those_of_rocketmq() -> None:
    disk = ForgetfulDisk()
    filled(disk, [1, 2, 3, 4, 5, 6]).flush()
    expected = b"".join(n.to_bytes(8, "big") for n in (1, 2, 3, 4, 5, 6))
    assert disk.read_bytes(PATH) == expected.ljust(CHECKPOINT_BYTES, b"\0")


def test_five_numbers_of_5_3_3() -> None:
    disk = ForgetfulDisk()
    data = b"".join(n.to_bytes(8, "big") for n in (1, 2, 3, 4, 5))
    disk.write_file(PATH, data.ljust(CHECKPOINT_BYTES, b"\0"))
    assert values(Checkpoint(disk, PATH)) == [1, 2, 3, 4, 5, 0]


def test_min_timestamp_is_three_seconds_less() -> None:
    checkpoint = filled(ForgetfulDisk(), [9_000, 8_000, 0, 0, 0, 0])
    assert checkpoint.min_timestamp == 5_000
    checkpoint.logics_msg_timestamp = 2_999
    assert checkpoint.min_timestamp == 0


@given(old=st.lists(st.integers(0, 1 << 40), min_size=6, max_size=6), seed=st.integers())
def test_a_power_cut_leaves_the_old_or_the_new_numbers(old: list[int], seed: int) -> None:
    disk = ForgetfulDisk()
    new = [n + 1 for n in old]
    first = filled(disk, old)
    first.flush()
    assert values(Checkpoint(disk.power_cut(), PATH)) == old

    disk.fail("sync")
    for name, number in zip(NAMES, new, strict=True):
        setattr(first, name, number)
    with pytest.raises(DiskError):
        first.flush()
    assert values(Checkpoint(disk.power_cut(random.Random(seed)), PATH)) in (old, new)

    # A failed flush is not remembered as done.
    first.flush()
    assert values(Checkpoint(disk.power_cut(), PATH)) == new


def test_a_flush_without_change_costs_nothing() -> None:
    disk = ForgetfulDisk()
    checkpoint = filled(disk, [1, 2, 3, 4, 5, 6])
    checkpoint.flush()
    checkpoint.flush()
    assert disk.calls["sync"] == 1


@pytest.mark.parametrize("numbers", [[1, 2, 3, 4, 5, 6], [0] * 6])
def test_first_flush_can_be_lost_wholly(numbers: list[int]) -> None:
    disk = ForgetfulDisk()
    for calls in range(8):
        machine = disk.kill()
        checkpoint = filled(machine, numbers)
        machine.stop_after(calls)
        try:
            checkpoint.flush()
        except BaseException:
            assert values(Checkpoint(machine.power_cut(), PATH)) == [0] * 6
            after = Checkpoint(machine.kill(), PATH)
            # Half a write of 48 bytes cannot reach the platter, but the dying process may show it.
            assert all(a in (0, b) for a, b in zip(values(after), numbers, strict=True))


@given(data=st.binary(max_size=200))
def test_any_bytes_are_read_or_refused(data: bytes) -> None:
    disk = ForgetfulDisk()
    disk.write_file(PATH, data)
    if 0 < len(data) < CHECKPOINT.size:
        with pytest.raises(CorruptionError, match="delete it"):
            Checkpoint(disk, PATH)
        return
    checkpoint = Checkpoint(disk, PATH)
    assert 0 <= checkpoint.min_timestamp < 1 << 48
    assert checkpoint.index_msg_timestamp < 1 << 48
    checkpoint.flush()
    assert values(Checkpoint(disk, PATH)) == values(checkpoint)
