"""The letter: a message as it is put, and a message as it was stored.

Answers to RocketMQ's MessageExtBrokerInner and MessageExt. Properties stay in wire form
(``name 0x01 value 0x02``) until a person asks for them: parsing costs more than the put itself.
"""

import socket
import struct
from collections.abc import Iterable, Mapping

import msgspec

from rockstrata.errors import IllegalMessageError
from rockstrata.message import properties as props
from rockstrata.message.ids import encode_message_id

_PORT = struct.Struct(">i")


def pack_host(address: str, port: int) -> bytes:
    """An IPv4 (8 bytes) or IPv6 (20 bytes) host as records hold it."""
    family = socket.AF_INET6 if ":" in address else socket.AF_INET
    try:
        return socket.inet_pton(family, address) + _PORT.pack(port)
    except (OSError, struct.error) as error:
        found = f"{address}:{port}"
        raise IllegalMessageError("bad host", expected="an IP address and a port", found=found) from error


def parse_host(text: str) -> bytes:
    """``1.2.3.4:10911`` or ``[::1]:10911`` packed."""
    address, _, port = text.rpartition(":")
    if not address or not port.lstrip("-").isdigit():
        raise IllegalMessageError("bad host", expected="address:port", found=text)
    return pack_host(address.removeprefix("[").removesuffix("]"), int(port))


def host_text(packed: bytes) -> str:
    """The inverse of ``parse_host``."""
    family = socket.AF_INET if len(packed) == 8 else socket.AF_INET6
    address = socket.inet_ntop(family, packed[:-4])
    port = _PORT.unpack_from(packed, len(packed) - 4)[0]
    return f"[{address}]:{port}" if len(packed) == 20 else f"{address}:{port}"


LOOPBACK = pack_host("127.0.0.1", 0)


class Message(msgspec.Struct, frozen=True, gc=False):
    """A message to put. ``properties`` is in wire form; ``Message.of`` takes a mapping.

    ``born_timestamp`` 0 means the moment of the put; an empty ``store_host`` the store's own.
    """

    topic: str
    body: bytes
    queue_id: int = 0
    properties: bytes = b""
    flag: int = 0
    sys_flag: int = 0
    born_timestamp: int = 0
    born_host: bytes = LOOPBACK
    store_host: bytes = b""
    reconsume_times: int = 0
    prepared_transaction_offset: int = 0
    # The properties hold none of the names a put acts on (``props.ACTED_ON``), and nobody needs to
    # look. Looking costs a tenth of a put.
    is_plain: bool = False

    @staticmethod
    def of(
        topic: str,
        body: bytes | str,
        *,
        queue_id: int = 0,
        tags: str | None = None,
        keys: str | Iterable[str] | None = None,
        unique_key: str | None = None,
        delay_level: int = 0,
        properties: Mapping[str, str] | None = None,
        flag: int = 0,
        born_timestamp: int = 0,
        born_host: bytes = LOOPBACK,
    ) -> "Message":
        """Build a message the way a producer thinks of it."""
        table = dict(properties or {})
        if tags is not None:
            table[props.TAGS] = tags
        if keys is not None:
            table[props.KEYS] = keys if isinstance(keys, str) else " ".join(keys)
        if unique_key is not None:
            table[props.UNIQUE_KEY] = unique_key
        if delay_level:
            table[props.DELAY] = str(delay_level)
        return Message(
            topic,
            body.encode() if isinstance(body, str) else body,
            queue_id,
            props.encode(table),
            flag,
            born_timestamp=born_timestamp,
            born_host=born_host,
            is_plain=props.ACTED_ON.isdisjoint(table),
        )


class StoredMessage(msgspec.Struct, frozen=True, gc=False):
    """A record decoded: everything the log says about one message."""

    topic: str
    body: bytes
    queue_id: int
    properties: bytes
    flag: int
    sys_flag: int
    born_timestamp: int
    born_host: bytes
    store_host: bytes
    reconsume_times: int
    prepared_transaction_offset: int
    queue_offset: int
    physical_offset: int
    store_timestamp: int
    body_crc: int
    record_bytes: int
    version: int = 1

    def find_property(self, name: str) -> str | None:
        """One property, or None."""
        return props.find(self.properties, name)

    def property_map(self) -> dict[str, str]:
        """All properties."""
        return props.decode(self.properties)

    @property
    def tags(self) -> str | None:
        """The TAGS property."""
        return self.find_property(props.TAGS)

    @property
    def keys(self) -> str | None:
        """The KEYS property: words separated by blanks."""
        return self.find_property(props.KEYS)

    @property
    def unique_key(self) -> str | None:
        """The UNIQ_KEY property, given by the producer's client."""
        return self.find_property(props.UNIQUE_KEY)

    @property
    def message_id(self) -> str:
        """The offset message id: store host and physical offset in hex."""
        return encode_message_id(self.store_host, self.physical_offset)

    def to_message(self) -> Message:
        """The same letter, ready to be put again."""
        return Message(
            self.topic,
            self.body,
            self.queue_id,
            self.properties,
            self.flag,
            self.sys_flag,
            self.born_timestamp,
            self.born_host,
            self.store_host,
            self.reconsume_times,
            self.prepared_transaction_offset,
        )
