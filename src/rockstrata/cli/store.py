"""``rockstrata store``: commands about one store directory.

Answers to RocketMQ's admin commands on messages and to its export and recovery tools. Each command
has a file of its own; this one puts them together.
"""

import typer

from rockstrata.cli.check import check
from rockstrata.cli.dump import dump
from rockstrata.cli.get import get
from rockstrata.cli.put import put
from rockstrata.cli.query import query
from rockstrata.cli.stat import stat

app = typer.Typer(
    help="Put, get, query, check and dump a store directory. Reading works beside a running broker.",
    no_args_is_help=True,
    rich_markup_mode=None,
)
app.command("put")(put)
app.command("get")(get)
app.command("query")(query)
app.command("stat")(stat)
app.command("check")(check)
app.command("dump")(dump)
