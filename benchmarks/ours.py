"""One measurement of ours in a process of its own: `python -m benchmarks.ours NAME --dir D …` prints JSON.

Mirrors the Java peer's `bench` command, name by name and figure by figure.
"""

import argparse
import gc
import json
import random
import statistics
import threading
import time
from itertools import pairwise
from pathlib import Path
from typing import Any

from benchmarks.letters import TOPIC, letter, letters
from benchmarks.letters import body as make_body
from rockstrata.store.local_store import LocalMessageStore
from rockstrata.store.store_config import StoreConfig

Figures = dict[str, Any]


def open_store(args: argparse.Namespace, **settings: Any) -> LocalMessageStore:
    return LocalMessageStore.open(StoreConfig(store_path_root_dir=args.dir, **settings))


def await_dispatch(store: LocalMessageStore) -> None:
    while store.dispatcher.behind_bytes:
        time.sleep(0.0002)


def put(args: argparse.Namespace) -> Figures:
    store = open_store(args)
    for message in letters(args.warmup, args.body, args.queues):
        store.put(message)
    await_dispatch(store)
    messages = letters(args.count, args.body, args.queues)
    gc.collect()
    gc.freeze()
    latencies = [0] * args.count
    clock = time.perf_counter_ns
    start = clock()
    for n, message in enumerate(messages):
        before = clock()
        result = store.put(message)
        latencies[n] = clock() - before
        if not result.ok:
            raise SystemExit(f"put answered {result}")
    called = clock() - start
    await_dispatch(store)
    dispatched = clock() - start
    store.close()
    return {
        "calls_per_s": args.count / called * 1e9,
        "dispatched_per_s": args.count / dispatched * 1e9,
        **percentiles(latencies),
    }


def put_batch(args: argparse.Namespace) -> Figures:
    """Only the calls are timed; each call's messages are made just before it, as a broker makes them."""
    store = open_store(args)

    def puts(count: int) -> int:
        taken = 0
        for first in range(0, count - args.batch + 1, args.batch):
            messages = letters(args.batch, args.body, args.queues, first)
            before = time.perf_counter_ns()
            result = store.put_batch(messages)
            taken += time.perf_counter_ns() - before
            if not result.ok:
                raise SystemExit("put_batch was refused")
        return taken

    puts(args.warmup)
    await_dispatch(store)
    gc.collect()
    gc.freeze()
    taken = puts(args.count)
    await_dispatch(store)
    store.close()
    return {"messages_per_s": args.count // args.batch * args.batch / taken * 1e9}


def sync(args: argparse.Namespace) -> Figures:
    store = open_store(args, flush_disk_type="SYNC_FLUSH")
    _sync_round(store, args, 1.0)
    start = time.perf_counter()
    latencies = _sync_round(store, args, args.seconds)
    elapsed = time.perf_counter() - start
    store.close()
    return {"messages_per_s": len(latencies) / elapsed, **percentiles(latencies)}


def _sync_round(store: LocalMessageStore, args: argparse.Namespace, seconds: float) -> list[int]:
    data = make_body(args.body)
    deadline = time.perf_counter_ns() + int(seconds * 1e9)
    taken: list[list[int]] = []
    failures: list[str] = []

    def writer(queue_id: int) -> None:
        mine: list[int] = []
        taken.append(mine)
        clock = time.perf_counter_ns
        before = clock()
        while before < deadline:
            result = store.put(letter(len(mine), data, queue_id))
            if result.status.name != "PUT_OK":
                failures.append(str(result))
                return
            now = clock()
            mine.append(now - before)
            before = now

    threads = [threading.Thread(target=writer, args=(n,)) for n in range(args.threads)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    if failures:
        raise SystemExit(failures[0])
    return [latency for mine in taken for latency in mine]


def start(args: argparse.Namespace) -> Figures:
    begin = time.perf_counter()
    store = open_store(args)
    await_dispatch(store)
    total = time.perf_counter() - begin
    messages = sum(store.message_count(t, q) for t, ids in store.topic_queues().items() for q in ids)
    was_clean = store.recovery.clean
    store.close()
    return {
        "total_s": total,
        "messages": messages,
        "messages_per_s": messages / total,
        "was_clean": was_clean,
    }


def read(args: argparse.Namespace) -> Figures:
    store = open_store(args)
    await_dispatch(store)
    _pass(store, args.batch, copy=False)
    mapped = [_pass(store, args.batch, copy=False) for _ in range(args.passes)]
    copied = [_pass(store, args.batch, copy=True) for _ in range(args.passes)]
    store.close()
    return {"messages_per_s": statistics.median(mapped), "copied_messages_per_s": statistics.median(copied)}


def _pass(store: LocalMessageStore, batch: int, *, copy: bool) -> float:
    room = bytearray(8 << 20)
    count = 0
    begin = time.perf_counter()
    for queue_id in store.topic_queues()[TOPIC]:
        offset, maximum = store.min_offset(TOPIC, queue_id), store.max_offset(TOPIC, queue_id)
        while offset < maximum:
            result = store.get(TOPIC, queue_id, offset, batch)
            count += len(result.records)
            offset = result.next_begin_offset
            if copy:
                data = b"".join(result.records)
                room[: len(data)] = data
    return count / (time.perf_counter() - begin)


def index(args: argparse.Namespace) -> Figures:
    import numpy as np

    from rockstrata.message.key_hashes import hash_blob
    from rockstrata.message.tags import index_hash
    from rockstrata.store.index_file import IndexFile
    from rockstrata.store.posix_disk import PosixDisk

    slots, chunk, now = 5_000_000, 500_000, int(time.time() * 1000)
    root = Path(args.dir)

    def fill(file: IndexFile, keys: int) -> float:
        taken = 0.0
        for first in range(0, keys, chunk):
            numbers = np.arange(first, min(first + chunk, keys))
            blob, ends = _key_blob(numbers)
            begin = time.perf_counter()
            hashes = hash_blob(blob, ends, 0)
            if file.put_keys(hashes, numbers * 1209, now + numbers // 200) != len(numbers):
                raise SystemExit("the index is full")
            taken += time.perf_counter() - begin
        return taken

    warm = IndexFile.create(PosixDisk(), root / "20000101000000000", slots, 4 * chunk + 1, None)
    fill(warm, 4 * chunk)
    file = IndexFile.create(PosixDisk(), root / "20000101000000001", slots, args.keys + 1, None)
    filled = fill(file, args.keys)
    begin = time.perf_counter()
    file.flush()
    flushed = time.perf_counter() - begin
    asked = np.array(random.Random(11).choices(range(args.keys), k=args.queries))
    blob, ends = _key_blob(asked)
    edges = [8, *ends.tolist()]
    keys = [blob[a - 8 : b - 8].decode() for a, b in pairwise(edges)]
    offsets = (asked * 1209).tolist()
    file.query(index_hash(keys[0]), 0, 2**62, 64)
    begin = time.perf_counter()
    missed = 0
    for key, offset in zip(keys, offsets, strict=True):
        if offset not in file.query(index_hash(key), 0, 2**62, 64):
            missed += 1
    one_by_one = time.perf_counter() - begin
    file.query_many(hash_blob(blob, ends, 0)[:10], 0, 2**62, 64)
    begin = time.perf_counter()
    first, physical = file.query_many(hash_blob(blob, ends, 0), 0, 2**62, 64)
    many = time.perf_counter() - begin
    rows = np.repeat(np.arange(len(asked)), np.diff(first))
    found = np.zeros(len(asked), bool)
    found[rows[physical == (asked * 1209)[rows]]] = True
    if missed or not found.all():
        raise SystemExit(f"{missed} and {(~found).sum()} keys were not found")
    return {
        "puts_per_s": args.keys / filled,
        "flush_s": flushed,
        "queries_per_s": args.queries / one_by_one,
        "many_queries_per_s": args.queries / many,
    }


def _key_blob(numbers: Any) -> tuple[bytes, Any]:
    """The keys of the Java peer, end to end: `Bench#` and a scattered number in hex."""
    import numpy as np

    with np.errstate(over="ignore"):
        mixed = (numbers.astype(np.uint64) + np.uint64(1)) * np.uint64(0x9E3779B97F4A7C15)
        mixed = (mixed ^ (mixed >> np.uint64(31))) * np.uint64(0xBF58476D1CE4E5B9)
        mixed ^= mixed >> np.uint64(29)
    nibbles = (mixed[:, None] >> np.arange(60, -1, -4, dtype=np.uint64)) & np.uint64(15)
    digits = np.frombuffer(b"0123456789abcdef", np.uint8)[nibbles.astype(np.intp)]
    text = np.concatenate([np.tile(np.frombuffer(b"Bench#", np.uint8), (len(numbers), 1)), digits], axis=1)
    zeros = np.where(mixed == 0, 15, (nibbles != 0).argmax(axis=1))
    keep = np.ones(text.shape, bool)
    keep[:, 6:] = np.arange(16) >= zeros[:, None]
    return text[keep].tobytes(), np.cumsum(22 - zeros).astype(np.int64) + 8


def percentiles(latencies: list[int]) -> Figures:
    ordered = sorted(latencies)
    return {"p50_us": ordered[len(ordered) // 2] / 1e3, "p99_us": ordered[len(ordered) * 99 // 100] / 1e3}


def memory() -> Figures:
    facts = dict(line.split(":", 1) for line in Path("/proc/self/status").read_text().splitlines())
    return {
        "peak_rss_kb": int(facts["VmHWM"].split()[0]),
        "private_kb": int(facts["RssAnon"].split()[0]),
    }


COMMANDS = {
    "put": put,
    "put-batch": put_batch,
    "sync": sync,
    "rebuild": start,
    "start": start,
    "read": read,
    "index": index,
}


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("name", choices=COMMANDS)
    parser.add_argument("--dir", required=True)
    for option, default in (
        ("count", 500_000), ("body", 1024), ("queues", 8), ("warmup", 100_000), ("batch", 256),
        ("threads", 16), ("passes", 5), ("keys", 20_000_000), ("queries", 500_000),
    ):  # fmt: skip
        parser.add_argument(f"--{option}", type=int, default=default)
    parser.add_argument("--seconds", type=float, default=5.0)
    args = parser.parse_args()
    figures = COMMANDS[args.name](args)
    print(json.dumps({**figures, **memory()}))


if __name__ == "__main__":
    main()
