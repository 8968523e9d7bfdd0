"""What every command about a store directory takes: the directory, a config file, single settings.

Answers to the -c option of RocketMQ's brokers. Sizes of files that are already there are seen, not
asked for: a store written with other sizes than the default opens without a config file.
"""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

if TYPE_CHECKING:
    from rockstrata.store.store_config import StoreConfig

DirOption = Annotated[
    Path | None,
    typer.Option(
        "--dir", "-d", metavar="DIR", help="Store directory; else ROCKSTRATA_STORE_PATH_ROOT_DIR, the config."
    ),
]  # fmt: skip
DirArgument = Annotated[
    Path | None, typer.Argument(metavar="DIR", help="Store directory, the same as --dir.")
]
ConfigOption = Annotated[
    Path | None,
    typer.Option("--config", "-c", metavar="FILE", help="RocketMQ's broker.conf, or a .toml file."),
]
SetOption = Annotated[
    list[str] | None,
    typer.Option(
        "--set", metavar="KEY=VALUE", help="One setting, under RocketMQ's name or ours. Repeatable."
    ),
]
JsonOption = Annotated[bool, typer.Option("--json", help="Answer in JSON, for programs.")]

_MARKS = ("commitlog", "consumequeue", "checkpoint", "lock", "config/topics.json")


def pair(text: str, option: str) -> tuple[str, str]:
    """``key=value`` of an option that is repeated."""
    key, equals, value = text.partition("=")
    if not key or not equals:
        raise typer.BadParameter(f"expected KEY=VALUE, found {text!r}", param_hint=option)
    return key, value


def time_ms(text: str | None, option: str, default: int) -> int:
    """A time given as epoch milliseconds or in ISO 8601."""
    from rockstrata.clock import parse_time_ms

    if text is None:
        return default
    found = parse_time_ms(text)
    if found is None:
        raise typer.BadParameter(
            f"expected epoch milliseconds or a time such as 2026-05-01T12:00:00, found {text!r}",
            param_hint=option,
        )
    return found


def load_config(
    directory: Path | None, config: Path | None, sets: list[str] | None, **overrides: object
) -> "StoreConfig":
    """The settings of a store; warnings go to stderr."""
    import os

    from rockstrata.cli import render
    from rockstrata.store.store_config import StoreConfig

    flags: dict[str, object] = dict(pair(text, "--set") for text in sets or [])
    if directory is not None:
        flags["store_path_root_dir"] = str(directory)
    flags.update(overrides)
    loaded, warnings = StoreConfig.load_with_warnings(config, os.environ, flags)
    for warning in warnings:
        render.warn(warning)
    return sized_as_found(loaded)


def existing_store(
    directory: Path | None, config: Path | None, sets: list[str] | None, **overrides: object
) -> "StoreConfig":
    """The settings of a store that must be there."""
    from rockstrata.errors import ConfigError

    loaded = load_config(directory, config, sets, **overrides)
    if not loaded.root.is_dir():
        raise ConfigError("no store here", path=loaded.root, hint="name its directory with --dir")
    if not is_store(loaded):
        raise ConfigError(
            "not a store", path=loaded.root, expected="a directory that holds commitlog/", hint="see --dir"
        )
    return loaded


def writable_store(
    directory: Path | None, config: Path | None, sets: list[str] | None, **overrides: object
) -> "StoreConfig":
    """The settings of a store that is there, or may be made where nothing is."""
    from rockstrata.errors import ConfigError

    loaded = load_config(directory, config, sets, **overrides)
    root = loaded.root
    if root.exists() and not root.is_dir():
        raise ConfigError("not a directory", path=root, hint="name the store's directory with --dir")
    if root.is_dir() and not is_store(loaded) and any(root.iterdir()):
        raise ConfigError(
            "not a store, and not empty",
            path=root,
            hint="a new store needs a directory of its own; see --dir",
        )
    return loaded


def is_store(config: "StoreConfig") -> bool:
    """Is there anything a store leaves behind?"""
    return any((config.root / name).exists() for name in _MARKS) or any(
        path.is_dir() for path in config.commit_log_paths
    )


def sized_as_found(config: "StoreConfig") -> "StoreConfig":
    """The settings with the sizes of the files that are there, where the default was not changed."""
    import dataclasses

    defaults = {field.name: field.default for field in dataclasses.fields(config)}
    logs = [
        path
        for folder in (*config.commit_log_paths, *config.read_only_commit_log_paths)
        for path in _digits(folder)
    ]
    queues = (path for queue in config.consume_queue_dir.glob("*/*") for path in _digits(queue))
    batches = (path for queue in config.batch_consume_queue_dir.glob("*/*") for path in _digits(queue))
    found = {
        "commit_log_file_bytes": _size(next(iter(logs), None)),
        "consume_queue_file_bytes": _size(next(queues, None)),
        "batch_consume_queue_file_bytes": _size(next(batches, None)),
        **_index_sizes(config),
    }
    changes = {
        name: size for name, size in found.items()
        if size > 0 and getattr(config, name) == defaults[name] != size
    }  # fmt: skip
    if "consume_queue_file_bytes" in changes and changes["consume_queue_file_bytes"] % 20:
        del changes["consume_queue_file_bytes"]
    return dataclasses.replace(config, **changes) if changes else config  # type: ignore[arg-type]


def _digits(folder: Path) -> list[Path]:
    return sorted(path for path in folder.glob("[0-9]*") if path.name.isdigit()) if folder.is_dir() else []


def _size(path: Path | None) -> int:
    return path.stat().st_size if path is not None else 0


def _index_sizes(config: "StoreConfig") -> dict[str, int]:
    """Slots and items, if the file has RocketMQ's four items a slot: its size alone does not tell."""
    files = _digits(config.index_dir)
    size = _size(files[0]) if files else 0
    if size <= 40 or (size - 40) % 84 or config.max_index_num != 4 * config.max_hash_slot_num:
        return {}
    slots = (size - 40) // 84
    return {"max_hash_slot_num": slots, "max_index_num": 4 * slots}
