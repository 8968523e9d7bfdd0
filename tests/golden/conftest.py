"""Assertions of the helpers explain themselves."""

from __future__ import annotations

import sys

import pytest

pytest.register_assert_rewrite(*({"peer.exchange"} - sys.modules.keys()))
