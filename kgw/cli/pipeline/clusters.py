"""The clusters of a command, in the form in which Spark's tasks get them."""

from __future__ import annotations

from typing import TYPE_CHECKING

from kgw.cli.shared.command_config import given_properties, tell_warning

if TYPE_CHECKING:
    from kgw.cli.shared.client import Bootstrap
    from kgw.cli.shared.command_config import ClientConfig
    from kgw.pipeline.cluster import Cluster


def given_cluster(bootstrap: Bootstrap) -> Cluster:
    """Return the cluster of --bootstrap and --command-config."""
    from kgw.pipeline.cluster import Cluster

    return Cluster(address_of(bootstrap), given_properties())


def other_cluster(bootstrap: Bootstrap, config: ClientConfig | None) -> Cluster:
    """Return a second cluster, and print the warning of its properties file."""
    from kgw.pipeline.cluster import Cluster

    if config is None:
        return Cluster(address_of(bootstrap))
    tell_warning(config)
    return Cluster(address_of(bootstrap), config.properties)


def address_of(bootstrap: Bootstrap) -> str:
    """Return addresses as text."""
    return ",".join(f"{host}:{port}" for host, port in bootstrap)
