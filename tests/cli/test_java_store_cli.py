"""The commands on a store that Apache RocketMQ wrote: nothing is wrong with it, and it can be copied."""

import json
import shutil

import pytest

from cli.cli_kit import run
from peer.catalogue import INNER, catalogue
from peer.exchange import declare_batch_topics
from peer.peer import NEWEST, SMALL_FILES, Peer, peer_available

pytestmark = pytest.mark.peer

SETS = [word for key, value in SMALL_FILES.items() for word in ("--set", f"{key}={value}")]


@pytest.fixture(scope="module")
def java_root(tmp_path_factory):
    available, reason = peer_available()
    if not available:
        pytest.skip(f"LIVE PEER NOT RUN: {reason}")
    root = tmp_path_factory.mktemp("java") / "store"
    declare_batch_topics(root, INNER)
    Peer(NEWEST).write(root, catalogue(orders=150, inner_batches=60), conf=SMALL_FILES)
    return root


def test_a_store_that_java_wrote_has_nothing_wrong(java_root):
    found = json.loads(run("store", "check", java_root, "--json", *SETS).stdout)
    assert found["findings"] == []
    assert found["summary"]["units"] > 250
    assert found["summary"]["keys"] > 300


def test_damage_in_a_store_that_java_wrote_is_found(java_root, tmp_path):
    root = shutil.copytree(java_root, tmp_path / "store")
    for path in (root / "batchconsumequeue" / INNER / "0").iterdir():
        data = bytearray(path.read_bytes())
        data[46 + 30] ^= 1
        path.write_bytes(data)
    found = json.loads(run("store", "check", root, "--json", *SETS, code=3).stdout)["findings"]
    assert {finding["kind"] for finding in found} == {"wrong unit"}


def test_a_store_that_java_wrote_is_copied_by_dump_and_put(java_root, tmp_path):
    lines = tmp_path / "lines.jsonl"
    lines.write_text(run("store", "dump", "-d", java_root, "--bodies", *SETS).stdout)
    copy = tmp_path / "copy"
    declare_batch_topics(copy, INNER)
    run("store", "put", "--from", lines, "-d", copy, *SETS)
    dumped = run("store", "dump", "-d", copy, "--bodies", *SETS).stdout.splitlines()
    for old, new in zip(
        map(json.loads, lines.read_text().splitlines()), map(json.loads, dumped), strict=True
    ):
        # RocketMQ keeps a client's batch in one file, so a copy may be packed closer.
        for name in ("store_timestamp", "physical_offset"):
            del old[name], new[name]
        assert old == new
    assert run("store", "check", copy, *SETS).exit_code == 0
