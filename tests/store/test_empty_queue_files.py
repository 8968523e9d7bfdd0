"""A power cut may leave names of new files without their sizes; the store opens all the same."""

import pytest

from rockstrata.errors import ForeignFileError
from rockstrata.message.model import Message
from store.small_store import ROOT, bodies_of, dispatch, new_disk, open_small

EXPECTED = [b"%d" % number for number in range(350)]


@pytest.mark.parametrize(
    "sized",
    [
        (),
        ("00000000000000000000",),
        ("00000000000000000000", "00000000000000004000"),
        ("00000000000000006000",),
    ],
    ids=["none", "first", "first and third", "last"],
)
def test_a_store_opens_whichever_queue_files_a_power_cut_left_empty(sized):
    disk = new_disk()
    store = open_small(disk)
    for body in EXPECTED:
        store.put(Message.of("Orders", body))
    dispatch(store)

    survivor = disk.power_cut(
        lambda change: (
            change.kind == "entry" or "consumequeue" not in change.path.parts or change.path.name in sized
        )
    )

    with open_small(survivor) as reopened:
        assert bodies_of(reopened, "Orders") == EXPECTED


def log_file(number):
    return ROOT / "commitlog" / f"{number * 65_536:020d}"


@pytest.mark.parametrize("lengths", [(0,), (0, 0), (0, 65_536)])
def test_log_files_made_ahead_and_left_empty_are_made_anew(lengths):
    disk = new_disk()
    store = open_small(disk)
    for body in EXPECTED[:50]:
        store.put(Message.of("Orders", body))
    dispatch(store)
    survivor = disk.power_cut()
    for number, length in enumerate(lengths, 1):
        survivor.write_file(log_file(number), bytes(length))

    with open_small(survivor) as reopened:
        assert bodies_of(reopened, "Orders") == EXPECTED[:50]
        assert not survivor.exists(log_file(1))


@pytest.mark.parametrize("clean", [True, False])
def test_an_empty_file_before_durable_data_is_damage(clean):
    disk = new_disk()
    store = open_small(disk)
    while store.commit_log.max_offset < 150_000:
        store.put(Message.of("Orders", bytes(5_000)))
        store.clock.advance(1)
    if clean:
        store.close()
    else:
        store.checkpoint.flush()
    disk = disk.kill()
    disk.write_file(log_file(1), b"")

    with pytest.raises(ForeignFileError, match="wrong file size"):
        open_small(disk)
