"""A message as a line of JSON: what ``store dump`` writes and ``store put --from`` reads.

Answers to no RocketMQ class. ``body`` is base64, ``body_text`` is plain text; a line has one of them.
Called by dump, put, get and query.
"""

from functools import lru_cache

import msgspec
from msgspec import UNSET, UnsetType

from rockstrata.errors import IllegalMessageError
from rockstrata.message import properties as props
from rockstrata.message.crc import body_crc
from rockstrata.message.model import LOOPBACK, Message, StoredMessage, host_text, parse_host


class MessageLine(msgspec.Struct, frozen=True):
    """A stored message, in the order its fields are written.

    ``properties_base64`` appears only if the map does not say what the bytes are: a name twice, a
    piece without a value, text that is not UTF-8.
    """

    topic: str
    queue_id: int
    queue_offset: int
    physical_offset: int
    tags: str | None
    keys: str | None
    unique_key: str | None
    properties: dict[str, str]
    flag: int
    born_timestamp: int
    store_timestamp: int
    born_host: str
    store_host: str
    body_bytes: int
    body_crc: int
    sys_flag: int
    reconsume_times: int
    prepared_transaction_offset: int
    body: bytes | UnsetType = UNSET
    properties_base64: bytes | UnsetType = UNSET


_host_text = lru_cache(maxsize=1024)(host_text)
_parse_host = lru_cache(maxsize=1024)(parse_host)


def line_of(message: StoredMessage, *, body: bool) -> MessageLine:
    """The line of a stored message, with or without its body."""
    wire = message.properties
    table = props.decode(wire)
    return MessageLine(
        message.topic,
        message.queue_id,
        message.queue_offset,
        message.physical_offset,
        table.get(props.TAGS),
        table.get(props.KEYS),
        table.get(props.UNIQUE_KEY),
        table,
        message.flag,
        message.born_timestamp,
        message.store_timestamp,
        _host_text(message.born_host),
        _host_text(message.store_host),
        len(message.body),
        message.body_crc,
        message.sys_flag,
        message.reconsume_times,
        message.prepared_transaction_offset,
        message.body if body else UNSET,
        UNSET if _is_told_by(table, wire) else wire,
    )


def _is_told_by(table: dict[str, str], wire: bytes) -> bool:
    """Would encoding the map give the same bytes?"""
    count = len(table)
    if wire.count(1) != count or wire.count(2) != count or (wire and wire[-1] != 2):
        return False
    try:
        wire.decode()
    except UnicodeDecodeError:
        return False
    return True


class PutLine(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A line to put: topic and a body suffice.

    Offsets and store time are the store's to give: read, and not used. The store host stays the one
    that first stored the message.
    """

    topic: str
    body: bytes | UnsetType = UNSET
    body_text: str | UnsetType = UNSET
    queue_id: int = 0
    tags: str | None = None
    keys: str | list[str] | None = None
    unique_key: str | None = None
    properties: dict[str, str] = {}
    properties_base64: bytes | UnsetType = UNSET
    flag: int = 0
    delay_level: int = 0
    born_timestamp: int = 0
    born_host: str = ""
    store_host: str = ""
    sys_flag: int = 0
    reconsume_times: int = 0
    prepared_transaction_offset: int = 0
    body_crc: int | None = None
    body_bytes: int | None = None
    queue_offset: int | None = None
    physical_offset: int | None = None
    store_timestamp: int | None = None


_decoder = msgspec.json.Decoder(PutLine)


def message_of(text: bytes) -> tuple[Message, int]:
    """The message of a line, and its delay level; raises IllegalMessageError."""
    try:
        line = _decoder.decode(text)
    except msgspec.DecodeError as error:
        raise IllegalMessageError(f"bad line: {error}") from error
    message = Message(
        line.topic,
        _body(line),
        line.queue_id,
        _wire(line),
        line.flag,
        line.sys_flag,
        line.born_timestamp,
        _parse_host(line.born_host) if line.born_host else LOOPBACK,
        _parse_host(line.store_host) if line.store_host else b"",
        line.reconsume_times,
        line.prepared_transaction_offset,
    )
    return message, line.delay_level


def _body(line: PutLine) -> bytes:
    if line.body is UNSET and line.body_text is UNSET:
        hint = "dump with --bodies" if line.body_crc is not None else ""
        raise IllegalMessageError("bad line: no body", expected="body (base64) or body_text", hint=hint)
    if line.body is not UNSET and line.body_text is not UNSET:
        raise IllegalMessageError("bad line: body and body_text", expected="one of them")
    body = line.body if isinstance(line.body, bytes) else str(line.body_text).encode()
    if line.body_crc is not None and body and body_crc(body) != line.body_crc:
        raise IllegalMessageError(
            "bad line: body does not match body_crc", expected=line.body_crc, found=body_crc(body)
        )
    return body


def _wire(line: PutLine) -> bytes:
    """The properties in wire form; a record's own CRC belongs to the record, not to the letter."""
    if isinstance(line.properties_base64, bytes):
        return props.remove(line.properties_base64, props.CRC32)
    table = {name: value for name, value in line.properties.items() if name != props.CRC32}
    keys = " ".join(line.keys) if isinstance(line.keys, list) else line.keys
    for field, name, value in (
        ("tags", props.TAGS, line.tags),
        ("keys", props.KEYS, keys),
        ("unique_key", props.UNIQUE_KEY, line.unique_key),
    ):
        if value is not None and table.setdefault(name, value) != value:
            raise IllegalMessageError(
                f"bad line: {field} contradicts properties.{name}", expected=table[name], found=value
            )
    return props.encode(table)
