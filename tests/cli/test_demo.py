"""The demo shows what it promises, and leaves a store that its own commands work on."""

import re
import shlex

from cli.cli_kit import SMALL, run, spawn


def test_the_demo_kills_a_process_and_finds_every_acknowledged_message(tmp_path, monkeypatch):
    for name in SMALL:
        monkeypatch.delenv(f"ROCKSTRATA_{name.upper()}")
    root = tmp_path / "demo"
    done = spawn("demo", "--dir", root, "--messages", 1_500)
    told = done.stdout.decode()
    assert done.returncode == 0, done.stderr.decode()
    assert done.stderr == b""
    assert "\x1b" not in told
    acked, found = re.search(r"([\d,]+) acknowledged, ([\d,]+) found: every one", told).groups()
    assert acked == found
    assert int(acked.replace(",", "")) >= 1_500
    assert "is dead (exit -9)" in told
    assert "arrived after" in told
    assert "nothing wrong" in told
    commands = [shlex.split(line) for line in told.splitlines() if re.match(r"  \S.* store ", line)]
    assert len(commands) == 6
    for command in commands:
        run(*command[command.index("store") :])


def test_the_demo_does_not_write_among_other_files(tmp_path):
    (tmp_path / "letter.txt").write_text("dear")
    assert "needs an empty directory" in run("demo", "--dir", tmp_path, code=2).stderr
    assert "1000" in run("demo", "--messages", 3, code=2).stderr
