"""Stores made by commands under test are small."""

import pytest

from cli.cli_kit import SMALL


@pytest.fixture(autouse=True)
def small_files(monkeypatch):
    for name, value in SMALL.items():
        monkeypatch.setenv(f"ROCKSTRATA_{name.upper()}", str(value))
    monkeypatch.delenv("ROCKSTRATA_DEBUG", raising=False)
