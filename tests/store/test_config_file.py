"""Config files: a save is all or nothing, a load loses nothing."""

import random
from pathlib import Path

import pytest

from rockstrata.errors import ConfigError, DiskFullError
from rockstrata.store.config_file import ConfigFile, DataVersion
from rockstrata.store.posix_disk import PosixDisk
from rockstrata.testing.forgetful_disk import ForgetfulDisk, PowerCut


class FailingDisk(PosixDisk):
    """Refuses the n-th change, after doing half of it where that is possible."""

    def __init__(self, changes_allowed: int) -> None:
        self.changes_left = changes_allowed

    def _spend(self, path: Path) -> None:
        if self.changes_left == 0:
            raise DiskFullError("disk full", path=path)
        self.changes_left -= 1

    def write_file(self, path: Path, data: bytes) -> None:
        if self.changes_left == 0:
            path.write_bytes(data[: len(data) // 2])
        self._spend(path)
        super().write_file(path, data)

    def rename(self, source: Path, target: Path) -> None:
        self._spend(source)
        super().rename(source, target)

    def sync_dir(self, path: Path) -> None:
        self._spend(path)
        super().sync_dir(path)


def parse(data: bytes) -> bytes:
    if data.startswith(b"bad"):
        raise ConfigError("unreadable", position=3)
    return data


@pytest.fixture
def path(tmp_path):
    return tmp_path / "config" / "topics.json"


def config_file(path: Path, disk: PosixDisk | None = None) -> ConfigFile:
    return ConfigFile(path, disk or PosixDisk())


def names(path: Path) -> dict[str, bytes]:
    return {p.name: p.read_bytes() for p in path.parent.iterdir()}


def test_a_file_that_was_never_saved_is_nothing(path):
    assert config_file(path).load(parse) is None


def test_what_was_saved_is_loaded_and_the_former_content_is_the_backup(path):
    file = config_file(path)
    file.save(b"one")
    file.save(b"two")
    assert config_file(path).load(parse) == b"two"
    assert names(path) == {"topics.json": b"two", "topics.json.bak": b"one"}


@pytest.mark.parametrize("changes", range(5))
@pytest.mark.parametrize("before", [[b"one"], [b"zero", b"one"]])
def test_a_save_that_fails_anywhere_leaves_the_old_or_the_new_content(path, before, changes):
    for content in before:
        config_file(path).save(content)

    with pytest.raises(DiskFullError):
        config_file(path, FailingDisk(changes)).save(b"two")

    assert config_file(path).load(parse) in (b"one", b"two")
    config_file(path).save(b"three")
    assert config_file(path).load(parse) == b"three"


@pytest.mark.parametrize("calls", range(1, 12))
@pytest.mark.parametrize("seed", range(4))
def test_a_power_cut_in_any_call_of_a_save_leaves_the_old_or_the_new_content(calls, seed):
    path = Path("/store/config/topics.json")
    disk = ForgetfulDisk()
    for content in (b"zero", b"one"):
        ConfigFile(path, disk).save(content)

    disk.stop_after(calls)
    done = b"one"
    try:
        ConfigFile(path, disk).save(b"two")
        done = b"two"
        ConfigFile(path, disk).save(b"three")
        done = b"three"
    except PowerCut:
        pass
    disk = disk.power_cut(random.Random(seed))

    found = ConfigFile(path, disk).load(parse)
    assert found in {b"one": (b"one", b"two"), b"two": (b"two", b"three"), b"three": (b"three",)}[done]


def test_a_first_save_that_fails_leaves_nothing(path):
    path.parent.mkdir()
    with pytest.raises(DiskFullError):
        config_file(path, FailingDisk(0)).save(b"one")
    assert config_file(path).load(parse) is None


@pytest.mark.parametrize("content", [None, b""])
def test_a_missing_or_empty_file_is_replaced_by_its_backup(path, content, caplog):
    file = config_file(path)
    file.save(b"one")
    file.save(b"two")
    path.unlink()
    if content is not None:
        path.write_bytes(content)

    assert file.load(parse) == b"one"
    assert "missing or empty" in caplog.text

    file.save(b"three")
    assert names(path)["topics.json.bak"] == b"one", "an empty file must not become the backup"


def test_an_unreadable_file_is_set_aside_and_its_backup_loaded(path, caplog):
    file = config_file(path)
    for number in (1, 2):
        file.save(b"one")
        file.save(b"bad%d" % number)

        assert file.load(parse) == b"one"
        assert names(path)[f"topics.json.bad-{number}"] == b"bad%d" % number
    assert "unreadable at 3; its backup was loaded" in caplog.text
    assert not path.exists()


def test_a_reader_of_someone_elses_store_moves_nothing(path):
    file = config_file(path)
    file.save(b"one")
    file.save(b"bad")
    before = names(path)

    assert file.load(parse, read_only=True) == b"one"

    assert names(path) == before


@pytest.mark.parametrize(
    ("content", "backup", "why"),
    [
        (b"bad1", b"bad2", "its backup topics.json.bak is bad too"),
        (b"bad1", None, "it has no backup"),
        (b"bad1", b"", "it has no backup"),
        (None, b"bad2", "its backup topics.json.bak is bad too"),
        (b"", b"bad2", "its backup topics.json.bak is bad too"),
    ],
)
def test_when_nothing_can_be_read_nothing_is_touched_and_the_error_says_what_to_do(
    path, content, backup, why
):
    path.parent.mkdir()
    if content is not None:
        path.write_bytes(content)
    if backup is not None:
        path.with_name("topics.json.bak").write_bytes(backup)
    before = names(path)

    with pytest.raises(ConfigError, match=rf"unreadable, and {why} at .*topics.json:3; restore topics.json"):
        config_file(path).load(parse)

    assert names(path) == before


def test_a_data_version_counts_and_remembers_when():
    assert DataVersion(counter=3, state_version=2, timestamp=5).next(9) == DataVersion(
        counter=4, state_version=2, timestamp=9
    )
