"""Layouts of everything made of message bytes, declared once; sizes and documents derive from them.

Answers to the constants in RocketMQ's MessageDecoder, MessageExtEncoder and CommitLog.
Called by record, batch, ids, the kernels' tests and the format documents.
"""

from dataclasses import dataclass

from rockstrata.layout import Layout

MAGIC_V1 = 0xDAA320A7
MAGIC_V2 = 0xDAA320AB
MAGIC_BLANK = 0xCBD43194

HOST_V4_BYTES = 8
HOST_V6_BYTES = 20


def _record_head(born_bytes: int, store_bytes: int) -> Layout:
    """The fixed head of a record, up to and including the length of its body."""
    return Layout(
        f"record head, born host {born_bytes} bytes, store host {store_bytes} bytes",
        ("size", "i", "bytes of the whole record, this field included"),
        ("magic", "I", "0xDAA320A7 (V1) or 0xDAA320AB (V2)"),
        ("body_crc", "i", "CRC-32 of the body & 0x7FFFFFFF"),
        ("queue_id", "i", ""),
        ("flag", "i", "the user's own"),
        ("queue_offset", "q", "number of the message in its queue"),
        ("physical_offset", "q", "address of this record in the log"),
        ("sys_flag", "i", "bits: compression, transaction, IPv6 hosts, inner batch"),
        ("born_timestamp", "q", "ms, the producer's clock"),
        ("born_host", f"{born_bytes}s", "address, then port i32"),
        ("store_timestamp", "q", "ms, the broker's clock"),
        ("store_host", f"{store_bytes}s", "address, then port i32"),
        ("reconsume_times", "i", ""),
        ("prepared_transaction_offset", "q", "physical offset of the half message"),
        ("body_length", "i", "n"),
        size=72 + born_bytes + store_bytes,
    )


# Indexed by (sys_flag >> 4) & 3: bit 0 born host is IPv6, bit 1 store host is IPv6.
RECORD_HEADS = (_record_head(8, 8), _record_head(20, 8), _record_head(8, 20), _record_head(20, 20))
RECORD_HEAD = RECORD_HEADS[0]

BLANK = Layout(
    "blank at the end of a log file",
    ("size", "i", "bytes left in the file, this blank included"),
    ("magic", "I", "0xCBD43194"),
    size=8,
)
BATCH_ELEMENT_HEAD = Layout(
    "head of an element of a client batch",
    ("size", "i", "bytes of the whole element"),
    ("magic", "i", "0, not read"),
    ("body_crc", "i", "0, not read"),
    ("flag", "i", "the user's own"),
    ("body_length", "i", "n"),
    size=20,
)
MESSAGE_ID_V4 = Layout(
    "offset message id, IPv4",
    ("store_host", "8s", "address, then port i32"),
    ("physical_offset", "q", ""),
    size=16,
)
MESSAGE_ID_V6 = Layout(
    "offset message id, IPv6",
    ("store_host", "20s", "address, then port i32"),
    ("physical_offset", "q", ""),
    size=28,
)
UNIQUE_KEY_TAIL = Layout(
    "unique key after the client's address (4 or 16 bytes)",
    ("pid", "H", "low 16 bits"),
    ("class_loader_hash", "i", "any number of the process"),
    ("span_ms", "i", "since 00:00 of the first day of the local month"),
    ("counter", "H", "of the process, wraps"),
    size=12,
)


@dataclass(frozen=True)
class VariableField:
    """A field whose size is told by the one before it; ``positions`` count from the head's end."""

    name: str
    type_name: str
    doc: str


RECORD_FIELDS = (
    VariableField("body", "n bytes", "as the client sent it, compressed or not"),
    VariableField("topic_length", "i8 (V1) or i16 (V2)", "t"),
    VariableField("topic", "t bytes", "UTF-8"),
    VariableField("properties_length", "i16", "p"),
    VariableField("properties", "p bytes", "name 0x01 value 0x02, repeated; UTF-8"),
)
BATCH_ELEMENT_FIELDS = (
    VariableField("body", "n bytes", ""),
    VariableField("properties_length", "i16", "p"),
    VariableField("properties", "p bytes", "name 0x01 value 0x02, repeated; UTF-8"),
)

# Bytes of a record with empty body, topic and properties: V1 with IPv4 hosts.
RECORD_BYTES_MIN = RECORD_HEAD.size + 1 + 2
BATCH_ELEMENT_BYTES_MIN = BATCH_ELEMENT_HEAD.size + 2


def record_fixed_bytes(sys_flag: int, version: int) -> int:
    """Bytes of a record that do not depend on its body, topic and properties: 91 and up."""
    return RECORD_HEADS[(sys_flag >> 4) & 3].size + version + 2
