"""Messages by key: index hits, read, and checked against what was asked.

Answers to DefaultMessageStore.queryMessage. The index holds hashes; topic and key are compared on
the message, so that a collision is never an answer.
"""

from collections.abc import Callable

from rockstrata.message import properties as props
from rockstrata.message.model import StoredMessage
from rockstrata.message.record import decode_record
from rockstrata.store.sources import LogSource

# (topic, key, max_num, begin, end) -> physical offsets, newest first.
OffsetQuery = Callable[[str, str, int, int, int], list[int]]
TAG_INDEX = "T"
_LONG_MAX = 2**63 - 1
# Items keep whole seconds, so a hit up to a second before the range may lie in it.
_SECOND_MS = 1000


def query_messages(
    log: LogSource,
    query: OffsetQuery,
    topic: str,
    key: str,
    max_num: int,
    begin: int = 0,
    end: int = _LONG_MAX,
    *,
    by_tag: bool = False,
) -> list[StoredMessage]:
    """At most ``max_num`` newest messages of ``topic`` with ``key`` stored in [begin, end], oldest
    first.

    ``key`` is a word of KEYS or the unique key, or with ``by_tag`` the tags. Asks the index again
    with more room while collisions take the place of hits.
    """
    asked = max_num
    while True:
        offsets = query(topic, key, asked, max(0, begin - _SECOND_MS), end)
        found = []
        for physical_offset in sorted(set(offsets), reverse=True):
            message = _message(log, physical_offset)
            if (
                message is not None
                and begin <= message.store_timestamp <= end
                and _has(message, topic, key, by_tag)
            ):
                found.append(message)
        if len(found) >= max_num or len(offsets) < asked:
            return sorted(found[:max_num], key=lambda message: message.physical_offset)
        asked *= 4


def _message(log: LogSource, physical_offset: int) -> StoredMessage | None:
    """The record, None if the log no longer has it; a damaged one raises."""
    if not log.min_offset <= physical_offset < log.max_offset:
        return None
    record = log.read_record(physical_offset)
    return None if record is None else decode_record(record, position=0, base=physical_offset)


def _has(message: StoredMessage, topic: str, key: str, by_tag: bool) -> bool:
    if message.topic != topic:
        return False
    if by_tag:
        return message.tags == key
    return message.unique_key == key or key in (message.keys or "").split(props.KEY_SEPARATOR)
