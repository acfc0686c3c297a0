"""`kgw completion`: prints the script by which a shell completes kgw's command line."""

from __future__ import annotations

import click

from kgw.cli.shared.output import print_json
from kgw.cli.shared.settings import json_option

# click keeps the lines of a paragraph that begins with the character \b, which is never shown.
_HELP = """Print what a shell needs to complete kgw's commands, options and names with TAB.

Topics, groups and transactional ids are asked of the server that --bootstrap or KGW_BOOTSTRAP
names, for two seconds at most.

\b
bash: eval "$(kgw completion bash)"              in ~/.bashrc
zsh:  eval "$(kgw completion zsh)"               in ~/.zshrc, after compinit
fish: kgw completion fish > ~/.config/fish/completions/kgw.fish
"""


@click.command(short_help="Print what a shell needs to complete commands.", help=_HELP)
@click.argument("shell", type=click.Choice(["bash", "zsh", "fish"]))
@json_option()
@click.pass_context
def completion(ctx: click.Context, shell: str, is_json: bool) -> None:
    """Print the script of a shell."""
    from kgw.cli.completion.shells import script

    text = script(ctx.find_root().command, shell)
    if is_json:
        print_json({"shell": shell, "script": text})
    else:
        click.echo(text, nl=False)
