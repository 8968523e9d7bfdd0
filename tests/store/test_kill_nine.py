"""Real processes killed with SIGKILL at random moments, round after round on the same directory."""

import os
import random
import signal
import subprocess
import sys
import time
from pathlib import Path

from rockstrata.clock import SystemClock
from rockstrata.store.check import StoreCheck
from rockstrata.store.check_findings import Finding
from rockstrata.store.posix_disk import PosixDisk
from store.kill_writer import THREADS, config_of, message
from store.store_kit import open_store, read_queue_of

ROUNDS = int(os.environ.get("ROCKSTRATA_KILL_ROUNDS", "50"))
SEED = int(os.environ.get("ROCKSTRATA_KILL_SEED", "1"))


def kill_rounds(root: Path, ack_dir: Path) -> None:
    dice = random.Random(SEED)
    tests = Path(__file__).parent.parent
    environment = os.environ | {"PYTHONPATH": os.pathsep.join([str(tests), *sys.path])}
    command = [sys.executable, "-m", "store.kill_writer", str(root), str(ack_dir)]
    with subprocess.Popen(
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env=environment, cwd=tests
    ) as zygote:
        assert zygote.stdin is not None
        assert zygote.stdout is not None
        for round_number in range(1, ROUNDS + 1):
            zygote.stdin.write(f"{round_number}\n")
            zygote.stdin.flush()
            pid = int(zygote.stdout.readline())
            if round_number % 10:
                # Some die in their recovery, before the first put.
                if dice.random() < 0.8:
                    wait_for_acks(ack_dir / str(round_number), pid)
                time.sleep(dice.choice([0.0, 0.002, 0.01, 0.05, 0.1]) * dice.random())
                os.kill(pid, signal.SIGKILL)
            status = int(zygote.stdout.readline())
            ended_well = os.WIFSIGNALED(status) if round_number % 10 else status == 0
            assert ended_well, f"round {round_number} ended with {status}"
        zygote.stdin.close()


def wait_for_acks(path: Path, pid: int) -> None:
    deadline = time.monotonic() + 20
    while not (path.exists() and path.stat().st_size):
        assert time.monotonic() < deadline, f"{pid} acknowledged nothing"
        time.sleep(0.001)


def test_no_acknowledged_message_is_missing_after_kills_at_random_moments(tmp_path):
    root, ack_dir = tmp_path / "store", tmp_path / "acks"
    ack_dir.mkdir()
    kill_rounds(root, ack_dir)

    config = config_of(str(root))
    with open_store(PosixDisk(), SystemClock(), config=config) as store:
        found = {}
        for thread in range(THREADS):
            for queue_id in (0, 1):
                queue = read_queue_of(store, f"topic{thread}", queue_id)
                assert [m.queue_offset for m in queue] == list(range(len(queue)))
                found |= {(thread, queue_id, m.queue_offset): m for m in queue}
        acked = 0
        for path in sorted(ack_dir.iterdir(), key=lambda p: int(p.name)):
            lines = path.read_text().splitlines(keepends=True)
            for line in (one for one in lines if one.endswith("\n")):
                thread, n, queue_offset, physical_offset = map(int, line.split())
                sent = message(int(path.name), thread, n)
                stored = found[thread, n % 2, queue_offset]
                assert (stored.body, stored.physical_offset) == (sent.body, physical_offset), line
                acked += 1
                if acked % 97 == 0:
                    assert store.query(sent.topic, f"k{path.name}-{thread}-{n}") == [stored]
        # What nobody acknowledged was at least put: one call in flight per thread and round.
        assert acked <= len(found) <= acked + ROUNDS * (THREADS - 1 + 8)
        assert acked > 10 * ROUNDS
        bodies = [m.body for m in found.values()]
        assert len(set(bodies)) == len(bodies)
    findings = [one for one in StoreCheck(config).run() if isinstance(one, Finding)]
    assert findings == []
