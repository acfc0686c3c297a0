"""The files for systemd say what the server does, and the server does what they say."""

from __future__ import annotations

from pathlib import Path

import pytest
from click.testing import CliRunner

from kgw.cli.main import main
from kgw.cli.shared.errors import ExitCode
from kgw.config import Config, load_config
from kgw.config.listeners import SecurityProtocol, parse_address
from kgw.config.load import environment_name
from kgw.server.service_manager import EXTEND_S, TELL_INTERVAL_S
from tests.service.sandbox import settings

FOLDER = Path(__file__).parents[2] / "deploy" / "systemd"
SERVICE = FOLDER / "kgw.service"


def setting(name: str, unit: Path = SERVICE) -> str:
    """Return the value of a setting that the unit has once."""
    (value,) = settings(unit, name)
    return value


def test_the_command() -> None:
    """It is one that kgw understands, with the sample's settings."""
    program, command, *options = setting("ExecStart").split()
    assert ("/opt/kgw/bin/kgw", "serve") == (program, command)
    assert ["--config", "/etc/kgw/kgw.toml"] == options
    arguments = [command, "--config", str(FOLDER / "kgw.toml"), "--print-config"]
    result = CliRunner().invoke(main, arguments, prog_name="kgw")
    assert (0, "") == (result.exit_code, result.stderr)


def test_the_sample() -> None:
    """Its data directory is the one that systemd makes; its listener, the one of the socket."""
    config = load_config(FOLDER / "kgw.toml")
    assert f"/var/lib/{setting('StateDirectory')}" == config.data_dir
    port = int(setting("ListenStream", FOLDER / "kgw.socket"))
    assert [("", port)] == [(one.host, one.port) for one in config.bound_listeners]
    assert ["127.0.0.1"] == [one.host for one in config.bound_admin_listeners]


@pytest.mark.parametrize(
    "line",
    [
        line.removeprefix("#")
        for line in (FOLDER / "kgw.toml").read_text(encoding="utf-8").splitlines()
        if line.startswith('#"')
    ],
)
def test_what_the_sample_leaves_out(tmp_path: Path, line: str) -> None:
    """A line that is commented out is a setting, too."""
    file = tmp_path / "kgw.toml"
    file.write_text(line, encoding="utf-8")
    assert load_config(file).advertised


def test_the_sample_with_tls() -> None:
    """It asks for a login over TLS, and has rules; the rest is as in the open one."""
    config = load_config(FOLDER / "tls.toml")
    plain = load_config(FOLDER / "kgw.toml")
    (listener,) = config.bound_listeners
    assert (config.protocol(listener.name), "") == (SecurityProtocol.SASL_SSL, listener.host)
    assert listener.port == config.advertised[listener.name].port
    assert config.super_users
    assert (plain.data_dir, plain.admin_listeners) == (config.data_dir, config.admin_listeners)


def test_the_key_is_a_credential() -> None:
    """The file that is loaded is the one of the settings, and the variable is that setting's."""
    drop_in = FOLDER / "tls.conf"
    name, _, path = setting("LoadCredential", drop_in).partition(":")
    assert load_config(FOLDER / "tls.toml").ssl_keystore_location == path
    variable = environment_name("ssl.keystore.location")
    assert f"{variable}=%d/{name}" == setting("Environment", drop_in)


def test_a_reload() -> None:
    """It is the signal at which certificates are read."""
    assert "kill -HUP $MAINPID" == setting("ExecReload")


def test_what_is_not_started_again() -> None:
    """Failures that a person has to see to; every other one may be over at the next try."""
    stays = {int(code) for code in setting("RestartPreventExitStatus").split()}
    assert {ExitCode.USAGE, ExitCode.DATA_DIRECTORY} == stays
    assert "on-failure" == setting("Restart")


def test_times() -> None:
    """A drain ends before systemd's patience does, which each word of kgw renews in time."""
    stop_s = int(setting("TimeoutStopSec"))
    assert stop_s > 2 * Config().shutdown_timeout_ms / 1000
    assert EXTEND_S > 2 * TELL_INTERVAL_S
    assert int(setting("WatchdogSec")) > 4 * TELL_INTERVAL_S
    assert "notify" == setting("Type")


def test_the_user() -> None:
    """The user that the service runs as is the one that is made for it."""
    kind, name, *_, home = (FOLDER / "kgw.sysusers").read_text(encoding="utf-8").split()[-5:]
    assert ("u", setting("User"), "/var/lib/kgw") == (kind, name, home)


def test_the_place_of_locks() -> None:
    """What tells a killed gateway from one that lives outlives it (docs/two-gateways.md)."""
    assert f"TMPDIR=/run/{setting('RuntimeDirectory')}" == setting("Environment")
    assert "restart" == setting("RuntimeDirectoryPreserve")


def test_addresses_are_understood() -> None:
    """Every ListenStream of the socket is an address of the network."""
    for text in settings(FOLDER / "kgw.socket", "ListenStream"):
        assert parse_address(text if ":" in text else f":{text}")
