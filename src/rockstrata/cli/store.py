"""``rockstrata store``: commands about one store directory.

Answers to RocketMQ's admin commands on messages and to its export and recovery tools. Each command
has a file of its own; this one puts them together.
"""

import typer

from rockstrata.cli import check, dump, get, put, query, stat

app = typer.Typer(
    help="Put, get, query, check and dump a store directory. Reading works beside a running broker.",
    no_args_is_help=True,
    rich_markup_mode=None,
)
app.command("put")(put.put)
app.command("get")(get.get)
app.command("query")(query.query)
app.command("stat")(stat.stat)
app.command("check")(check.check)
app.command("dump")(dump.dump)
