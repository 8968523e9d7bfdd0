"""forceVerifyPropCRC: recovery demands the checksum of the whole record, as RocketMQ does."""

from __future__ import annotations

from pathlib import Path

import pytest

from rockstrata.message.model import Message
from rockstrata.store.local_store import LocalMessageStore
from rockstrata.store.store_config import StoreConfig


def config(root: Path, **settings: object) -> StoreConfig:
    small = {"mappedFileSizeCommitLog": 65536, "maxHashSlotNum": 50, "maxIndexNum": 200}
    return StoreConfig.load(overrides={"storePathRootDir": str(root), **small, **settings})


@pytest.mark.parametrize(("force", "kept"), [(True, 2), (False, 5)])
def test_a_changed_property_is_noticed_only_if_the_record_crc_is_demanded(
    tmp_path: Path, force: bool, kept: int
) -> None:
    settings = {"enabledAppendPropCRC": True, "forceVerifyPropCRC": force}
    with LocalMessageStore.open(config(tmp_path, **settings), start_services=False) as store:
        for number in range(5):
            assert store.put(Message.of("Orders", f"body {number}", keys=f"key{number}")).ok
    # As after a crash of which no checkpoint tells anything.
    (tmp_path / "abort").touch()
    (tmp_path / "checkpoint").unlink()
    log = tmp_path / "commitlog" / f"{0:020d}"
    log.write_bytes(log.read_bytes().replace(b"key2", b"kex2"))

    with LocalMessageStore.open(config(tmp_path, **settings), start_services=False) as store:
        assert store.max_offset("Orders", 0) == kept


def test_a_record_without_its_crc_fails_where_it_is_demanded(tmp_path: Path) -> None:
    with LocalMessageStore.open(config(tmp_path), start_services=False) as store:
        assert store.put(Message.of("Orders", "plain")).ok
    (tmp_path / "abort").touch()
    (tmp_path / "checkpoint").unlink()

    with LocalMessageStore.open(config(tmp_path, forceVerifyPropCRC=True), start_services=False) as store:
        assert store.max_offset("Orders", 0) == 0
