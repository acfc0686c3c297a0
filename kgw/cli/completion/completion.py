"""`kgw completion`: prints the script with which a shell completes kgw's command line."""

from __future__ import annotations

import click

from kgw.cli.shared.output import print_json
from kgw.cli.shared.settings import json_option

# A paragraph that begins with \b, which is never shown, keeps its line breaks in click's help.
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
    """Print the completion script of a shell."""
    from kgw.cli.completion.shells import script

    text = script(ctx.find_root().command, shell)
    if is_json:
        print_json({"shell": shell, "script": text})
    else:
        click.echo(text, nl=False)
