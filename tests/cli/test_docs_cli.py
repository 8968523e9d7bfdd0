"""The documents say what the code does, and are up to date."""

import re
import shutil

import pytest

from cli.cli_kit import run
from rockstrata.cli import docs
from rockstrata.message.record import decode_record
from rockstrata.store.store_config import StoreConfig


@pytest.fixture
def copied(tmp_path, monkeypatch):
    """The documents of this checkout, to be spoilt."""
    folder = shutil.copytree(docs.docs_folder(), tmp_path / "docs")
    monkeypatch.setattr(docs, "docs_folder", lambda: folder)
    return folder


def test_the_documents_in_the_repository_are_up_to_date():
    assert "up to date" in run("docs", "--check").stdout


def test_a_document_that_says_something_else_is_found_and_written_anew(copied):
    page = copied / "formats" / "consume-queue.md"
    right = page.read_text()
    page.write_text(right.replace("20 bytes.", "21 bytes."))
    (copied / "formats" / "checkpoint.md").unlink()
    result = run("docs", "--check", code=1)
    assert "+20 bytes." in result.stdout
    assert "-21 bytes." in result.stdout
    assert "2 documents out of date; run `make docs`" in result.stderr
    assert "wrote docs/formats/consume-queue.md" in run("docs").stdout
    assert page.read_text() == right
    run("docs", "--check")


def test_every_setting_is_in_the_reference():
    text = (docs.docs_folder() / "configuration.md").read_text()
    for row in StoreConfig.describe():
        assert f"| `{row.field}` |" in text


def test_the_example_record_is_the_one_described():
    text = (docs.docs_folder() / "formats" / "record.md").read_text()
    dump = text.split("```")[1]
    record = bytes.fromhex("".join(re.findall(r"^ *\d+  ((?:[0-9a-f]{2} ?)+)", dump, re.MULTILINE)))
    message = decode_record(record)
    assert (message.topic, message.queue_offset, message.physical_offset) == ("TopicTest", 42, 4096)
    assert (message.body, message.tags, message.keys) == (b"hello", "TagA", "k1 k2")


def test_links_between_the_documents_lead_somewhere():
    for page in docs.docs_folder().glob("formats/*.md"):
        for target in re.findall(r"\]\(([^)#]+)\)", page.read_text()):
            assert (page.parent / target).exists(), (page.name, target)


def test_outside_a_checkout_the_command_says_so(monkeypatch, tmp_path):
    monkeypatch.setattr(docs, "__file__", str(tmp_path / "a" / "b" / "c" / "docs.py"))
    assert "source checkout only" in run("docs", code=2).stderr
