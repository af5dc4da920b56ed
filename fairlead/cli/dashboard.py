"""dashboard: the web pages, served until the command is stopped."""

import os
from pathlib import Path

import click

from fairlead.cli.output import example, json_option, show
from fairlead.cli.store_options import StoreOptions, accepts_store_options
from fairlead.config_layers import TOKEN_VARIABLE
from fairlead.shards import is_missing

PORT = 8321


@click.command(epilog=example("fairlead dashboard --store embedded:./data"))
@click.option(
    "--host",
    default="127.0.0.1",
    show_default=True,
    help="The address to listen on; any but this machine's own needs a token.",
)
@click.option("--port", type=click.IntRange(0, 65_535), default=PORT, show_default=True, help="0: any free port.")
@click.option(
    "--token-file",
    type=click.Path(path_type=Path),
    help=f"A file with the token that visitors must know; default: the variable {TOKEN_VARIABLE}.",
)
@click.option("--allow-host", "host_names", multiple=True, metavar="NAME", help="A further host name of the server.")
@click.option("--read-only", is_flag=True, help="Show everything, and allow no changes.")
@accepts_store_options
@json_option
def dashboard(
    store_options: StoreOptions,
    host: str,
    port: int,
    token_file: Path | None,
    host_names: tuple[str, ...],
    read_only: bool,
) -> None:
    """Serve web pages until Ctrl-C: health, waiting tenants, why an item does not run, dead letters.

    The pages read the stores, and need no fleet. On a machine with other users, set a token: each visitor sees all
    payloads, and can control the fleet.
    """
    # Imported when the command runs: a web server is slow to import, and no other command needs it.
    from fairlead.dashboard.server import serve

    app = store_options.app()
    app.operator = app.operator._replace(through="dashboard")
    for name, url in app.shards.urls.items():
        if is_missing(url):
            click.echo(
                f"Warning: shard {name}: there is no store at {url}; the pages report this until there is one", err=True
            )
    serve(
        app,
        host=host,
        port=port,
        token=_token(token_file),
        host_names=frozenset(host_names),
        read_only=read_only,
        started=lambda url: show({"url": url}, lambda: [f"{url}  (Ctrl-C ends it)"]),
    )


def _token(token_file: Path | None) -> str | None:
    if token_file is not None:
        try:
            return token_file.read_text(encoding="utf-8").strip()
        except (OSError, UnicodeDecodeError) as error:
            raise click.UsageError(f"The token file cannot be read: {error}") from None
    return os.environ.get(TOKEN_VARIABLE) or None
