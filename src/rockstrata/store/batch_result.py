"""What putting many messages answers: arrays, and a ``PutResult`` for whoever asks for one.

Answers to RocketMQ's PutMessageResult of a batch.
"""

from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING

from rockstrata.message.ids import encode_message_id
from rockstrata.store.results import PutResult, PutStatus

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray


class BatchPutResult:
    """Results of ``count`` messages in order, of which ``stored`` are in the log: the first ones, unless
    they had to be put one by one.

    ``refusal`` says why the first of the others is not.
    """

    def __init__(
        self,
        count: int,
        stored: int,
        physical_offsets: "NDArray[np.int64]",
        queue_offsets: "NDArray[np.int64]",
        record_bytes: "NDArray[np.int32]",
        store_timestamp: int,
        store_host: Callable[[int], bytes],
        refusal: PutResult | None,
    ) -> None:
        self._count = count
        self.stored = stored
        self.physical_offsets = physical_offsets[:stored]
        self.queue_offsets = queue_offsets[:stored]
        self.record_bytes = record_bytes[:stored]
        self.store_timestamp = store_timestamp
        self.refusal = refusal
        self._store_host = store_host
        self._status = PutStatus.PUT_OK

    @staticmethod
    def refused(count: int, refusal: PutResult) -> "BatchPutResult":
        """Nothing was stored."""
        import numpy as np

        none = np.empty(0, np.int64)
        return BatchPutResult(count, 0, none, none, np.empty(0, np.int32), 0, lambda n: b"", refusal)

    @staticmethod
    def of(results: list[PutResult]) -> "BatchPutResult":
        """Results of messages that were put one by one."""
        return _ListedResult(results)

    def with_status(self, status: PutStatus) -> "BatchPutResult":
        """Stored, but for instance not durable in time."""
        self._status = status
        return self

    @property
    def ok(self) -> bool:
        """True if every message is in the log."""
        return self.stored == self._count

    @property
    def status(self) -> PutStatus:
        """PUT_OK, or the first trouble."""
        return self._status if self.refusal is None else self.refusal.status

    @property
    def end_offset(self) -> int:
        """Physical offset after the last stored record, 0 if none was stored."""
        return int(self.physical_offsets[-1] + self.record_bytes[-1]) if self.stored else 0

    @property
    def message_ids(self) -> str:
        """Offset ids joined with commas, as RocketMQ answers a batch."""
        offsets = enumerate(self.physical_offsets.tolist())
        return ",".join(encode_message_id(self._store_host(n), offset) for n, offset in offsets)

    def __len__(self) -> int:
        return self._count

    def __getitem__(self, n: int) -> PutResult:
        if not -self._count <= n < self._count:
            raise IndexError(n)
        n %= self._count
        if n >= self.stored:
            assert self.refusal is not None
            return self.refusal
        return PutResult(
            self._status, int(self.physical_offsets[n]), int(self.queue_offsets[n]),
            int(self.record_bytes[n]), self.store_timestamp, self._store_host(n),
        )  # fmt: skip

    def __iter__(self) -> Iterator[PutResult]:
        return (self[n] for n in range(self._count))


class _ListedResult(BatchPutResult):
    """Results that exist one by one, because some message needed more than encoding."""

    def __init__(self, results: list[PutResult]) -> None:
        import numpy as np

        stored = [r for r in results if r.ok]
        super().__init__(
            len(results),
            len(stored),
            np.array([r.physical_offset for r in stored], np.int64),
            np.array([r.queue_offset for r in stored], np.int64),
            np.array([r.record_bytes for r in stored], np.int32),
            stored[-1].store_timestamp if stored else 0,
            lambda n: stored[n].store_host,
            next((r for r in results if not r.ok), None),
        )
        self._results = results
        self._status = next((r.status for r in stored if r.status is not PutStatus.PUT_OK), self._status)

    def __getitem__(self, n: int) -> PutResult:
        return self._results[n]
