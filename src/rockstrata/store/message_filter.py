"""Which messages of a queue a consumer wants: by tags at the consume queue, by SQL on the record.

Answers to RocketMQ's MessageFilter, DefaultMessageFilter and ExpressionMessageFilter.
"""

from typing import Protocol

from rockstrata.message import sql92
from rockstrata.message.record import decode_record
from rockstrata.message.tags import java_hash_code
from rockstrata.store.results import Record


class MessageFilter(Protocol):
    """Two sieves: a cheap one on the queue's unit, an exact one on the record."""

    def matches_unit(self, tags_code: int) -> bool:
        """False only if the message surely does not match."""
        ...

    def matches_record(self, record: Record) -> bool: ...


class TagFilter:
    """``A || B``: any of these tags. As in RocketMQ hashes are compared, not words."""

    def __init__(self, expression: str) -> None:
        tags = [tag.strip() for tag in expression.split("||")]
        self._codes = {java_hash_code(tag) for tag in tags if tag}

    def matches_unit(self, tags_code: int) -> bool:
        """Compare the low 32 bits: the hash is sign-extended in the unit."""
        return ((tags_code & 0xFFFF_FFFF) ^ 0x8000_0000) - 0x8000_0000 in self._codes

    def matches_record(self, record: Record) -> bool:
        """The unit has said it all."""
        return True


class SqlFilter:
    """An SQL92 expression on the properties."""

    def __init__(self, expression: str) -> None:
        self._expression = sql92.compile_filter(expression)

    def matches_unit(self, tags_code: int) -> bool:
        """The unit says nothing of properties."""
        return True

    def matches_record(self, record: Record) -> bool:
        """Unknown counts as no."""
        return self._expression.matches(decode_record(record, check_crc=False).property_map()) is True


def tag_filter(expression: str | None) -> TagFilter | None:
    """None for no expression or ``*``: everything matches."""
    return None if expression is None or expression.strip() in ("", "*") else TagFilter(expression)
