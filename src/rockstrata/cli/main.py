"""The command line: groups of commands, exit codes, and errors as one clear line.

Answers to RocketMQ's MQAdmin for what concerns a store directory. ``main`` is the entry point of the
``rockstrata`` script.
"""

import logging
import os
import sys
from typing import Annotated, Any, NoReturn

import typer
from typer.core import TyperGroup

from rockstrata import __version__
from rockstrata.cli.demo import demo
from rockstrata.cli.docs import docs
from rockstrata.cli.store import app as store_app
from rockstrata.errors import CorruptionError, RockstrataError

EXIT_FAILED = 1
EXIT_BAD_INPUT = 2
EXIT_CORRUPTION = 3
EXIT_INTERRUPTED = 130
EXIT_BROKEN_PIPE = 141

HELP = """Apache RocketMQ's message store in Python: put, get, query, check and dump a store directory,
written by us or by a RocketMQ broker.

Exit codes: 0 done; 1 failed, or nothing found; 2 bad input or usage; 3 damaged data found;
130 interrupted. An error is one line on stderr; --debug (or ROCKSTRATA_DEBUG=1) adds where it arose."""


def exit_code(error: RockstrataError) -> int:
    """What the process says to the shell about an error."""
    if isinstance(error, CorruptionError):
        return EXIT_CORRUPTION
    # Settings, messages and expressions that cannot be used are all values.
    return EXIT_BAD_INPUT if isinstance(error, ValueError) else EXIT_FAILED


class _Group(TyperGroup):
    """Turns our errors into a line and an exit code, wherever the command was called from."""

    def invoke(self, ctx: Any) -> Any:
        """Run the command."""
        try:
            return super().invoke(ctx)
        except RockstrataError as error:
            from rockstrata.cli import render

            if _debug(ctx):
                import traceback

                traceback.print_exc()
            render.error(str(error))
            raise typer.Exit(exit_code(error)) from error
        except KeyboardInterrupt as error:
            from rockstrata.cli import render

            render.note("interrupted")
            raise typer.Exit(EXIT_INTERRUPTED) from error
        except BrokenPipeError as error:
            _drop_stdout()
            raise typer.Exit(EXIT_BROKEN_PIPE) from error


def _debug(ctx: Any) -> bool:
    return bool(ctx.params.get("debug"))


def _drop_stdout() -> None:
    """Nobody reads our output any more: what is still buffered must not raise at exit."""
    try:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    except (OSError, ValueError):
        return


app = typer.Typer(
    name="rockstrata", cls=_Group, help=HELP, no_args_is_help=True, pretty_exceptions_enable=False,
    add_completion=False, rich_markup_mode=None, context_settings={"help_option_names": ["-h", "--help"]},
)  # fmt: skip


def _version(wanted: bool) -> None:
    if wanted:
        typer.echo(f"rockstrata {__version__}")
        raise typer.Exit


@app.callback()
def root(
    version: Annotated[
        bool, typer.Option("--version", callback=_version, is_eager=True, help="Print the version.")
    ] = False,
    debug: Annotated[
        bool,
        typer.Option("--debug", envvar="ROCKSTRATA_DEBUG", help="Show where an error arose, and the log."),
    ] = False,
) -> None:
    """Set up what all commands share."""
    logging.basicConfig(
        level=logging.DEBUG if debug else logging.WARNING,
        format="%(levelname)s %(name)s: %(message)s",
        force=True,
    )


root.__doc__ = HELP
app.add_typer(store_app, name="store")
app.command("demo")(demo)
app.command("docs", hidden=True)(docs)


def main() -> NoReturn:
    """Run the command line."""
    try:
        app()
    finally:
        try:
            sys.stdout.flush()
        except BrokenPipeError:
            _drop_stdout()
    raise SystemExit(0)


if __name__ == "__main__":
    main()
