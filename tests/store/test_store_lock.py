"""One owner at a time: in this process, in another one, and when many try at once."""

import os
import subprocess
import sys
import threading
from pathlib import Path

import pytest

from rockstrata.clock import SystemClock
from rockstrata.errors import DiskError, StoreLockedError
from rockstrata.store.posix_disk import PosixDisk
from rockstrata.store.posix_lock import PosixLock
from store.store_kit import bodies, letter, letters, open_store, put_all, small_config

TESTS = Path(__file__).parent.parent
OWNER = """
import sys
from rockstrata.clock import SystemClock
from rockstrata.store.posix_disk import PosixDisk
from store.store_kit import letters, open_store, put_all, small_config
store = open_store(PosixDisk(), SystemClock(), config=small_config(sys.argv[1]))
put_all(store, letters(3))
print("open", flush=True)
sys.stdin.readline()
store.close()
"""


def open_real(root: Path):
    return open_store(PosixDisk(), SystemClock(), config=small_config(root))


def test_a_store_open_in_another_process_is_left_alone(tmp_path):
    environment = os.environ | {"PYTHONPATH": os.pathsep.join([str(TESTS), *sys.path])}
    with subprocess.Popen(
        [sys.executable, "-c", OWNER, str(tmp_path)],
        stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env=environment,
    ) as owner:  # fmt: skip
        assert owner.stdout is not None
        assert owner.stdout.readline() == "open\n"
        before = {p: p.read_bytes() for p in tmp_path.rglob("*") if p.is_file() and p.name != "abort"}
        with pytest.raises(StoreLockedError) as caught:
            open_real(tmp_path)
        assert caught.value.retryable
        assert PosixLock.holder(tmp_path / "lock") == owner.pid
        assert {p: p.read_bytes() for p in tmp_path.rglob("*") if p.is_file() and p.name != "abort"} == before
        owner.communicate("go\n")
    with open_real(tmp_path) as store:
        assert store.recovery.clean
        assert bodies(store) == [letter(n).body for n in range(3)]


def test_the_lock_is_java_s_four_bytes_and_free_after_closing(tmp_path):
    with open_real(tmp_path):
        assert (tmp_path / "lock").read_bytes() == b"lock"
        assert PosixLock.holder(tmp_path / "lock") == os.getpid()
    assert PosixLock.holder(tmp_path / "lock") is None
    with open_real(tmp_path):
        pass


def test_a_link_to_the_directory_is_the_same_store(tmp_path):
    (tmp_path / "store").mkdir()
    (tmp_path / "link").symlink_to(tmp_path / "store")
    with open_real(tmp_path / "store"), pytest.raises(StoreLockedError):
        open_real(tmp_path / "link")


def test_of_many_who_open_at_once_exactly_one_gets_the_store(tmp_path):
    for _ in range(10):
        barrier = threading.Barrier(6)
        opened, refused = [], []

        def try_it(barrier=barrier, opened=opened, refused=refused):
            barrier.wait()
            try:
                opened.append(open_real(tmp_path))
            except StoreLockedError as error:
                refused.append(error)

        threads = [threading.Thread(target=try_it) for _ in range(6)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert (len(opened), len(refused)) == (1, 5)
        put_all(opened[0], letters(1))
        opened[0].close()


def test_a_lock_that_cannot_be_written_is_not_held(tmp_path, monkeypatch):
    def full(fd, data, position):
        raise OSError(28, "No space left on device")

    with monkeypatch.context() as patch:
        patch.setattr(os, "pwrite", full)
        with pytest.raises(DiskError):
            open_real(tmp_path)
    with open_real(tmp_path) as store:
        put_all(store, letters(1))
