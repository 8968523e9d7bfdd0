"""Fixtures of the live peer: build once, and never skip in silence."""

from __future__ import annotations

import os

import pytest

from peer.peer import VERSIONS, Peer, peer_available


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
