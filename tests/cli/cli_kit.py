"""What the tests of the command line share: a runner, small stores, and ways to damage them."""

import json
import os
import subprocess
import sys
from pathlib import Path

from typer.testing import CliRunner

from rockstrata.cli.main import app
from rockstrata.message.model import Message
from rockstrata.store.local_store import LocalMessageStore
from rockstrata.store.store_config import StoreConfig
from rockstrata.testing.manual_clock import ManualClock

LOG_BYTES = 1 << 16
START_MS = 1_700_000_000_000
# Files so small that a few hundred messages fill several.
SMALL = {
    "commit_log_file_bytes": LOG_BYTES,
    "consume_queue_file_bytes": 100 * 20,
    "max_hash_slot_num": 250,
    "max_index_num": 1_000,
}


def run(*arguments, code=0, stdin=None, env=None):
    """Run a command in this process; its exit code must be ``code``."""
    result = CliRunner().invoke(app, [str(a) for a in arguments], input=stdin, env=env)
    if result.exception is not None and not isinstance(result.exception, SystemExit):
        raise result.exception
    assert result.exit_code == code, (result.exit_code, result.stdout, result.stderr)
    return result


def run_json(*arguments, code=0):
    """The answers of a command with ``--json``, one per line."""
    return [json.loads(line) for line in run(*arguments, "--json", code=code).stdout.splitlines()]


def spawn(*arguments, **options):
    """Run a command as a process of its own."""
    return subprocess.run(
        [sys.executable, "-m", "rockstrata.cli.main", *map(str, arguments)],
        capture_output=True, check=False, timeout=60, env={**os.environ, **options.pop("env", {})}, **options,
    )  # fmt: skip


def small_config(root, **settings):
    """Settings of a small store."""
    return StoreConfig(**{"store_path_root_dir": str(root), "broker_ip": "127.0.0.1", **SMALL, **settings})


def fill(root, count=300, **settings):
    """A store with ``count`` messages, a millisecond apart, in two topics; closed in order."""
    clock = ManualClock(START_MS)
    with LocalMessageStore.open(small_config(root, **settings), clock=clock, start_services=False) as store:
        for n in range(count):
            clock.advance(1)
            topic = "orders" if n % 3 else "pay"
            result = store.put(
                Message.of(
                    topic, f"body {n} " + "x" * (n % 50), queue_id=n % 3, tags="ABC"[n % 3], keys=f"k{n} all"
                )
            )
            assert result.ok
    return Path(root)


def set_bytes(path, position, data):
    """Overwrite bytes of a file; what was there."""
    with Path(path).open("r+b") as file:
        file.seek(position)
        before = file.read(len(data))
        file.seek(position)
        file.write(data)
    return before


def log_file(root, number=0):
    """The path of a commit-log file."""
    return Path(root) / "commitlog" / f"{number * LOG_BYTES:020d}"
