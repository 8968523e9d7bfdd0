"""Fixtures of the live peer: build once, and never skip in silence."""

from __future__ import annotations

import fcntl
import os
import pickle
import sys
from collections.abc import Callable
from typing import cast

import pytest

# Their assertions are to explain themselves too; whoever imported them first has the last word.
pytest.register_assert_rewrite(*({"peer.exchange", "peer.oracle"} - sys.modules.keys()))

from peer.exchange import JavaStore, java_store  # noqa: E402
from peer.peer import VERSIONS, Peer, peer_available  # noqa: E402


@pytest.fixture(scope="session")
def peers() -> dict[str, Peer]:
    """A Peer for each version. Without java and mvn: a loud skip, or a failure where CI is set."""
    available, reason = peer_available()
    if not available and os.environ.get("CI"):
        pytest.fail(f"LIVE PEER MISSING: {reason}")
    if not available:
        pytest.skip(f"LIVE PEER NOT RUN: {reason}")
    found = {version: Peer(version) for version in VERSIONS}
    for peer in found.values():
        peer.build()
    return found


@pytest.fixture(scope="session")
def java_stores(
    peers: dict[str, Peer], tmp_path_factory: pytest.TempPathFactory
) -> Callable[[str], JavaStore]:
    """A store of everything, written and read by the version asked for; made once for all workers."""
    shared = tmp_path_factory.getbasetemp()
    if "PYTEST_XDIST_WORKER" in os.environ:
        shared = shared.parent

    def make(version: str) -> JavaStore:
        root, saved = shared / f"java-{version}", shared / f"java-{version}.pickle"
        with (shared / f"java-{version}.lock").open("w") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            if not saved.exists():
                saved.write_bytes(pickle.dumps(java_store(peers[version], root)))
        return cast(JavaStore, pickle.loads(saved.read_bytes()))

    return make
