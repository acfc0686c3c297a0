"""A SeaweedFS to try kgw with: `scripts/seaweedfs COMMAND`."""

from __future__ import annotations

import signal
import subprocess
import sys
from pathlib import Path

import click

from tests.seaweedfs import binary
from tests.seaweedfs.cluster import (
    SYNCED_STORE,
    Cluster,
    NotReadyError,
    Setup,
    free_ports,
    run_confined,
    usual_ports,
)
from tests.seaweedfs.namespace import NoNamespaceError

DIRECTORY = click.argument("directory", type=click.Path(file_okay=False, path_type=Path))
EXISTING = click.argument(
    "directory", type=click.Path(exists=True, file_okay=False, path_type=Path)
)
KILL = click.option("--kill", is_flag=True, help="By SIGKILL, as a crash.")


@click.group(help=__doc__)
def main() -> None:
    """Group the commands."""


@main.command()
def install() -> None:
    """Fetch SeaweedFS, once, and print where it is."""
    click.echo(binary.fetch())


@main.command()
@DIRECTORY
@click.option("--volume-servers", default=1, show_default=True, help="How many volume servers.")
@click.option("--filers", default=1, show_default=True, help="How many filers.")
@click.option("--broker", is_flag=True, help="SeaweedMQ's broker, in a network namespace.")
@click.option("--s3", is_flag=True, help="SeaweedFS's S3 gateway.")
@click.option("--synced-store", is_flag=True, help="Filers keep entries in SQLite, synced.")
@click.option("--free-ports", "other_ports", is_flag=True, help="Any ports that are free.")
def start(
    directory: Path,
    *,
    volume_servers: int,
    filers: int,
    broker: bool,
    s3: bool,
    synced_store: bool,
    other_ports: bool,
) -> None:
    """Start a SeaweedFS with its data in DIRECTORY, or what does not run of the one there."""
    binary.fetch()
    setup = Setup(
        volume_servers=volume_servers,
        filers=filers,
        has_broker=broker,
        has_s3=s3,
        files=SYNCED_STORE if synced_store else {},
    )
    if not Cluster.is_in(directory):
        ports = (free_ports if other_ports else usual_ports)(setup)
        cluster = Cluster(directory, setup, ports=ports, outlives=True)
    elif setup == Setup() and not other_ports:
        cluster = Cluster.of(directory)
    else:
        raise click.UsageError(f"{directory} has a SeaweedFS: start it without options")
    cluster.start()
    _show(cluster)
    click.echo(f"kgw serve --backend {cluster.url('kafka')}")


@main.command()
@EXISTING
def status(directory: Path) -> None:
    """Print what runs, and where."""
    _show(Cluster.of(directory))


@main.command()
@EXISTING
@KILL
def stop(directory: Path, *, kill: bool) -> None:
    """End every process; the data stay. A filer may take 15 seconds to end by itself."""
    Cluster.of(directory).stop(signal.SIGKILL if kill else signal.SIGTERM)


@main.command()
@EXISTING
@click.argument("names", nargs=-1, required=True)
@KILL
def restart(directory: Path, names: tuple[str, ...], *, kill: bool) -> None:
    """End processes by their NAMES, as `status` prints them, and start them again."""
    cluster = Cluster.of(directory)
    known = [row.name for row in cluster.status()]
    if unknown := sorted(set(names) - set(known)):
        raise click.ClickException(f"no {', '.join(unknown)}: there are {', '.join(known)}")
    for name in names:
        (cluster.kill if kill else cluster.terminate)(name)
    cluster.start(*names)
    _show(cluster)


@main.command()
@EXISTING
def shell(directory: Path) -> None:
    """Open `weed shell`, which also reads commands from a pipe."""
    cluster = Cluster.of(directory)
    addresses = f"-master={cluster.address('master')} -filer={cluster.address('filer')}"
    sys.exit(subprocess.run([binary.weed(), "shell", *addresses.split()], check=False).returncode)


@main.command(context_settings={"ignore_unknown_options": True})
@click.argument("command", nargs=-1, required=True, type=click.UNPROCESSED)
def confined(command: tuple[str, ...]) -> None:
    """Run a COMMAND where there is no network but loopback: a broker in it needs no relays."""
    sys.exit(run_confined(command))


def _show(cluster: Cluster) -> None:
    for name, pid, address in cluster.status():
        click.echo(f"{name:9} {address:16} {'stopped' if pid is None else f'pid {pid}'}")


if __name__ == "__main__":
    try:
        main(prog_name="scripts/seaweedfs")
    except (
        binary.NoWeedError,
        NoNamespaceError,
        NotReadyError,
        FileNotFoundError,
        subprocess.CalledProcessError,
    ) as error:
        click.echo(f"scripts/seaweedfs: {error}", err=True)
        sys.exit(1)
