"""Stored messages on the screen: one in full, several as a table.

Answers to RocketMQ's queryMsgById and printMsg. Called by get and query.
"""

from collections.abc import Sequence

from rockstrata.cli import render
from rockstrata.cli.lines import line_of
from rockstrata.errors import RockstrataError
from rockstrata.message.model import StoredMessage, host_text
from rockstrata.message.record import uncompressed_body
from rockstrata.message.sys_flag import COMPRESSED, INNER_BATCH, transaction_type

_PREVIEW = 60
_OWN_NAMES = ("TAGS", "KEYS", "UNIQ_KEY")


def show(messages: Sequence[StoredMessage], *, json: bool) -> None:
    """All of them: lines of JSON with bodies, a page for one, a table for more."""
    if json:
        for message in messages:
            render.json_line(line_of(message, body=True))
    elif len(messages) == 1:
        _page(messages[0])
    else:
        _table(messages)


def readable_body(message: StoredMessage) -> bytes:
    """The body as the producer wrote it, or as it is stored if it cannot be uncompressed."""
    try:
        return uncompressed_body(message)
    except (RockstrataError, ImportError):
        return message.body


def _page(message: StoredMessage) -> None:
    rest = {k: v for k, v in message.property_map().items() if k not in _OWN_NAMES}
    body = readable_body(message)
    pairs: list[tuple[str, object]] = [
        ("topic", message.topic),
        ("queue", str(message.queue_id)),
        ("queue offset", str(message.queue_offset)),
        ("physical offset", str(message.physical_offset)),
        ("message id", message.message_id),
        ("tags", message.tags or "-"),
        ("keys", message.keys or "-"),
        ("unique key", message.unique_key or "-"),
        ("properties", " ".join(f"{k}={v}" for k, v in rest.items()) or "-"),
        ("born", f"{render.time_text(message.born_timestamp)} at {host_text(message.born_host)}"),
        ("stored", f"{render.time_text(message.store_timestamp)} at {host_text(message.store_host)}"),
        ("flags", _flags(message)),
        ("record", f"{render.size_text(message.record_bytes)}, version {message.version}"),
        ("body", f"{render.size_text(len(message.body))}, CRC {message.body_crc:#010x}, matches"),
        ("", render.body_text(body, 2_000)),
    ]
    render.facts(pairs)


def _flags(message: StoredMessage) -> str:
    words = [f"user {message.flag}", f"system {message.sys_flag:#x}"]
    if message.sys_flag & COMPRESSED:
        words.append("compressed")
    if message.sys_flag & INNER_BATCH:
        words.append("inner batch")
    if kind := transaction_type(message.sys_flag):
        words.append(kind.name)
    if message.reconsume_times:
        words.append(f"consumed {message.reconsume_times} times before")
    return ", ".join(words)


def _table(messages: Sequence[StoredMessage]) -> None:
    topics = {message.topic for message in messages}
    title = f"{render.plural(len(messages), 'message')} of " + (
        topics.pop() if len(topics) == 1 else "several topics"
    )
    render.table(
        ("queue", "offset", "stored", "tags", "keys", "bytes", "body"),
        [
            (
                str(message.queue_id),
                str(message.queue_offset),
                render.time_text(message.store_timestamp),
                message.tags or "-",
                message.keys or "-",
                len(message.body),
                render.body_text(readable_body(message), _PREVIEW),
            )
            for message in messages
        ],
        title=render.clean(title),
        right=("queue", "offset", "bytes"),
    )
