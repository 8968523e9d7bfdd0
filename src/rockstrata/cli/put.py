"""``rockstrata store put``: one message from the command line, or many from a file of JSON lines.

Answers to RocketMQ's sendMessage command. Takes the store's lock: not beside a running broker.
"""

import sys
from typing import TYPE_CHECKING, Annotated

import typer

from rockstrata.cli.options import ConfigOption, DirOption, JsonOption, SetOption, pair, writable_store

if TYPE_CHECKING:
    from rockstrata.message.model import Message
    from rockstrata.store.local_store import LocalMessageStore
    from rockstrata.store.results import PutResult
    from rockstrata.store.store_config import StoreConfig


def put(
    topic: Annotated[str | None, typer.Argument(metavar="TOPIC")] = None,
    body: Annotated[
        str | None, typer.Argument(metavar="BODY", help="The body; - reads it from stdin.")
    ] = None,
    directory: DirOption = None,
    queue: Annotated[int, typer.Option("--queue", "-q", min=0, help="Queue id.")] = 0,
    tags: Annotated[str | None, typer.Option(help="The message's tag.")] = None,
    keys: Annotated[str | None, typer.Option(help="Keys, separated by blanks.")] = None,
    properties: Annotated[
        list[str] | None, typer.Option("--property", metavar="NAME=VALUE", help="A property. Repeatable.")
    ] = None,
    delay_level: Annotated[
        int, typer.Option(min=0, help="Deliver later: 1 is 1 s, 2 is 5 s, … 18 is 2 h.")
    ] = 0,
    flag: Annotated[int, typer.Option(help="The user's own number.")] = 0,
    sync: Annotated[bool, typer.Option("--sync", help="Answer when the message is on disk.")] = False,
    source: Annotated[
        str | None,
        typer.Option("--from", metavar="FILE", help="Put every line of a JSON-lines file; - is stdin."),
    ] = None,
    config: ConfigOption = None,
    sets: SetOption = None,
    json: JsonOption = False,
) -> None:
    """Put one message, or all messages of a file.

    A line of the file is a JSON object as `store dump --bodies` writes it; {"topic": "t", "body_text":
    "hello"} suffices. "body" is base64, "body_text" is plain text. Lines are put in order, as they are:
    only "delay_level" delays a message, a DELAY among its properties does not. A bad line ends the
    command; the lines before it are stored.
    """
    if source is None and (topic is None or body is None):
        raise typer.BadParameter("TOPIC and BODY, or --from FILE", param_hint="arguments")
    if source is not None and (topic is not None or body is not None):
        raise typer.BadParameter("either TOPIC and BODY or --from FILE, not both", param_hint="arguments")
    overrides = {"flush_disk_type": "SYNC_FLUSH"} if sync else {}
    settings = writable_store(directory, config, sets, **overrides)
    if source is not None:
        from rockstrata.cli.put_file import put_file

        put_file(settings, source, json=json)
        return
    from rockstrata.message.model import Message

    assert topic is not None
    assert body is not None
    table = dict(pair(text, "--property") for text in properties or [])
    content = sys.stdin.buffer.read() if body == "-" else body.encode("utf-8", "surrogateescape")
    message = Message.of(
        topic,
        content,
        queue_id=queue,
        tags=tags,
        keys=keys,
        delay_level=delay_level,
        properties=table,
        flag=flag,
    )
    with open_store(settings) as store:
        result = store.put(message)
    _answer(settings, message, result, json=json)


def open_store(config: "StoreConfig") -> "LocalMessageStore":
    """Open a store for writing, and say what recovery had to do.

    Without its services: a command puts what it was told to, delivers no delayed message meanwhile and
    deletes no old file. Closing dispatches and syncs everything.
    """
    from rockstrata.cli import render
    from rockstrata.store.local_store import LocalMessageStore

    store = LocalMessageStore.open(config, start_services=False)
    report = store.recovery
    if not report.clean:
        render.note(
            f"the last owner did not close this store: {render.plural(report.records, 'record')} checked "
            f"from {report.scanned_from}, {render.plural(report.cut_bytes, 'byte')} cut at {report.end}"
        )
    return store


def _answer(config: "StoreConfig", message: "Message", result: "PutResult", *, json: bool) -> None:
    from rockstrata.cli import render
    from rockstrata.message import properties as props

    if not result.ok:
        raise refusal(result)
    if json:
        render.json_line(answer_fields(message, result))
        return
    render.facts(
        [
            ("status", result.status.name + (f" ({result.reason})" if result.reason else "")),
            ("topic", message.topic),
            ("queue", str(message.queue_id)),
            ("queue offset", str(result.queue_offset)),
            ("physical offset", str(result.physical_offset)),
            ("message id", result.message_id),
            ("stored", render.time_text(result.store_timestamp)),
            ("store", str(config.root)),
        ]
    )
    if level := props.find(message.properties, props.DELAY):
        render.note(f"delayed (level {level}): it waits in SCHEDULE_TOPIC_XXXX until an owner delivers it")


def answer_fields(message: "Message", result: "PutResult") -> dict[str, object]:
    """Where a message went, for programs."""
    return {
        "status": result.status.name,
        "topic": message.topic,
        "queue_id": message.queue_id,
        "queue_offset": result.queue_offset,
        "physical_offset": result.physical_offset,
        "message_id": result.message_id,
        "store_timestamp": result.store_timestamp,
        "record_bytes": result.record_bytes,
    }


def refusal(result: "PutResult", **where: object) -> Exception:
    """The error of a put that did not store: bad input, or a store that cannot take it now."""
    from rockstrata.errors import IllegalMessageError, StoreStateError
    from rockstrata.store.results import PutStatus

    bad_input = (
        PutStatus.MESSAGE_ILLEGAL,
        PutStatus.PROPERTIES_SIZE_EXCEEDED,
        PutStatus.WHEEL_TIMER_NOT_ENABLE,
    )
    kind = IllegalMessageError if result.status in bad_input else StoreStateError
    what = f"not stored: {result.status.name}" + (f": {result.reason}" if result.reason else "")
    return kind(what, **where)  # type: ignore[arg-type]
