"""The options for the old scheme and the output of a plan, for the two commands that make plans."""

from __future__ import annotations

from functools import reduce, wraps
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import click

from kgw.cli.shared.client import BOOTSTRAP
from kgw.cli.shared.command_config import other_cluster_option
from kgw.cli.shared.errors import CommandError
from kgw.cli.shared.output import note, print_json, print_rows
from kgw.types import printable

if TYPE_CHECKING:
    from collections.abc import Callable

    from kgw.cli.shared.client import Bootstrap
    from kgw.cli.shared.command_config import ClientConfig
    from kgw.migrate.plan import MigrationPlan

_DAMAGE_TOLD = 5
_PATH = click.Path(exists=True, path_type=Path)

_OPTIONS = (
    click.option(
        "--ledger",
        type=_PATH,
        multiple=True,
        metavar="PATH",
        help="Entries of the ledger: an export, a log file of SeaweedMQ or a directory of those; "
        "may be given several times.",
    ),
    click.option("--ledger-topic", metavar="TOPIC", help="Entries of the ledger as a Kafka topic."),
    click.option(
        "--ledger-bootstrap",
        callback=BOOTSTRAP,
        metavar="HOST:PORT",
        help="The server that has the ledger's topic.  [default: --bootstrap]",
    ),
    other_cluster_option("--ledger-command-config", "--ledger-bootstrap"),
    click.option(
        "--positions",
        type=_PATH,
        multiple=True,
        metavar="PATH",
        help="Positions of groups: JSON lines, or a directory copied from the filer; may be given "
        "several times.",
    ),
    click.option(
        "--positions-bootstrap",
        callback=BOOTSTRAP,
        metavar="HOST:PORT",
        help="Positions of groups: as the old gateway tells them, while it still runs.",
    ),
    other_cluster_option("--positions-command-config", "--positions-bootstrap"),
    click.option("--strict", is_flag=True, help="Stop at the first entry that cannot be read."),
)


class SchemeOptions(NamedTuple):
    """The sources of the old scheme as the user gave them; fields are named like the options."""

    ledger: tuple[Path, ...]
    ledger_topic: str | None
    ledger_bootstrap: Bootstrap | None
    ledger_command_config: ClientConfig | None
    positions: tuple[Path, ...]
    positions_bootstrap: Bootstrap | None
    positions_command_config: ClientConfig | None
    strict: bool

    def for_plan(self) -> dict[str, Any]:
        """Return the sources in the form that is written to a plan."""
        return {
            "ledger": [str(one) for one in self.ledger],
            "ledger_topic": self.ledger_topic,
            "positions": [str(one) for one in self.positions],
            "positions_bootstrap": self.positions_bootstrap,
        }


def old_scheme_options(command: Callable[..., Any]) -> Callable[..., Any]:
    """Add the options for the old scheme's sources to a command, as one argument `scheme`."""

    @wraps(command)
    def with_scheme(**given: Any) -> Any:
        scheme = SchemeOptions(*(given.pop(name) for name in SchemeOptions._fields))
        return command(scheme=scheme, **given)

    return reduce(lambda decorated, option: option(decorated), reversed(_OPTIONS), with_scheme)


def check_planning(path: Path, scheme: SchemeOptions) -> None:
    """Refuse, before planning, a plan without a ledger or with a file that cannot be written.

    Raises UsageError, CommandError.
    """
    if not scheme.ledger and scheme.ledger_topic is None:
        raise click.UsageError("say where the ledger is: --ledger or --ledger-topic")
    for what in ("ledger", "positions"):
        given = scheme._asdict()
        if given[f"{what}_command_config"] and not given[f"{what}_bootstrap"]:
            raise click.UsageError(f"--{what}-command-config needs --{what}-bootstrap")
    if path.exists():
        raise CommandError(f"{path} exists")
    if not path.parent.is_dir():
        raise CommandError(f"{path.parent} is no directory")


def keep_plan(path: Path, plan: MigrationPlan, *, is_json: bool) -> None:
    """Write a plan to its file, and print a summary. Raises MigrationError."""
    from kgw.migrate.sealed_file import write_sealed

    write_sealed(path, plan)
    if is_json:
        left_out = ("runs", "samples", "digest")
        partitions = [
            {name: value for name, value in one.items() if name not in left_out}
            for one in plan["partitions"]
        ]
        print_json({"file": str(path), **plan, "partitions": partitions})
    else:
        _print_plan(plan)
        note(
            f"The plan is in {printable(str(path))}; `kgw migrate offsets --apply` shows what it "
            "would change."
        )


def _print_plan(plan: MigrationPlan) -> None:
    from kgw.migrate.mapping import MatchClass

    classes = [one.value for one in MatchClass]
    print_rows(
        [{**dict.fromkeys(classes, 0), **one["classes"], **one} for one in plan["partitions"]],
        " ".join(("topic partition entries records", *classes)),
    )
    if plan["groups"]:
        click.echo()
        columns = "group topic partition old_offset offset certainty comes_again"
        print_rows(plan["groups"], columns)
    for absent in plan["absent"]:
        groups = ", ".join(absent["groups"])
        note(
            printable(
                f"The gateway has no {absent['topic']} partition {absent['partition']}: left out"
                + (f", with the positions of {groups}." if groups else ".")
            )
        )
    damage = plan["damage"]
    if damage["count"]:
        note(f"{damage['count']} entries or positions could not be read:")
        for one in damage["first"][:_DAMAGE_TOLD]:
            note(printable(f"  {one['place']}: {one['reason']}"))
