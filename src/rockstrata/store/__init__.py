"""The ground floor: the local message store.

Names are imported when they are first used: a look-up from the command line needs few of them.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from rockstrata.store.batch_result import BatchPutResult
    from rockstrata.store.dispatcher import Arrival
    from rockstrata.store.local_store import LocalMessageStore
    from rockstrata.store.message_filter import SqlFilter, TagFilter
    from rockstrata.store.reader import StoreReader
    from rockstrata.store.results import BoundaryType, GetResult, GetStatus, PutResult, PutStatus
    from rockstrata.store.store_config import FlushDiskType, StoreConfig

_HOMES = {
    "Arrival": "dispatcher",
    "BatchPutResult": "batch_result",
    "BoundaryType": "results",
    "FlushDiskType": "store_config",
    "GetResult": "results",
    "GetStatus": "results",
    "LocalMessageStore": "local_store",
    "PutResult": "results",
    "PutStatus": "results",
    "SqlFilter": "message_filter",
    "StoreConfig": "store_config",
    "StoreReader": "reader",
    "TagFilter": "message_filter",
}

__all__ = [
    "Arrival",
    "BatchPutResult",
    "BoundaryType",
    "FlushDiskType",
    "GetResult",
    "GetStatus",
    "LocalMessageStore",
    "PutResult",
    "PutStatus",
    "SqlFilter",
    "StoreConfig",
    "StoreReader",
    "TagFilter",
]


def __getattr__(name: str) -> Any:
    home = _HOMES.get(name)
    if home is None:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f"{__name__}.{home}"), name)
