from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from kgw.config import SERVER_SETTINGS, TOPIC_SETTINGS, ConfigError, load_config
from kgw.config.load import environment_name, split_assignment
from kgw.config.refused import REFUSED_SERVER_SETTINGS, REFUSED_TOPIC_SETTINGS

if TYPE_CHECKING:
    from pathlib import Path


def write(tmp_path: Path, text: str) -> Path:
    """Return a configuration file with this text."""
    file = tmp_path / "kgw.toml"
    file.write_text(text, encoding="utf-8")
    return file


def test_the_last_of_file_environment_and_flags_wins(tmp_path: Path) -> None:
    """Each place hides those before it, and the origin says which one holds."""
    file = write(tmp_path, "num.partitions = 2\nnode.id = 2\nkgw.cache.bytes = 2\n")
    environ = {"KGW_NUM_PARTITIONS": "3", "KGW_NODE_ID": "3"}
    flags = [("num.partitions", "4", "--set"), ("num.partitions", "5", "--set")]
    config = load_config(file, environ, flags)
    assert (5, 3, 2) == (config.num_partitions, config.node_id, config.cache_bytes)
    assert "--set" == config.origin("num.partitions")
    assert "environment variable KGW_NODE_ID" == config.origin("node.id")
    assert f"file {file}" == config.origin("kgw.cache.bytes")
    assert "default" == config.origin("message.max.bytes")
    assert config.is_given("node.id")


def test_names_may_be_quoted_dotted_or_tables(tmp_path: Path) -> None:
    """TOML has three ways to write a dotted name; all of them mean the setting."""
    file = write(
        tmp_path,
        '"max.connections" = 10\n"max.connections.per.ip" = 5\nnode.id = 7\n'
        'listeners = ["127.0.0.1:0"]\n[kgw]\ncache.bytes = "64MB"\n',
    )
    config = load_config(file)
    assert (10, 5, 7) == (
        config.max_connections,
        config.max_connections_per_ip,
        config.node_id,
    )
    assert 64 << 20 == config.cache_bytes
    assert ("127.0.0.1:0",) == config.listeners


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("num.partition = 1", r"did you mean num\.partitions\? \(file "),
        ("num.partitions = 0", r"below the minimum of 1 \(file "),
        ("num.partitions = true", r"is not a whole number \(file "),
        ("num.partitions = ", "is not TOML"),
        ("num.io.threads = 1", r"is not served"),
    ],
)
def test_mistakes_in_a_file_name_the_file(tmp_path: Path, text: str, expected: str) -> None:
    """A mistake is one line that says where it is and what to do."""
    with pytest.raises(ConfigError, match=expected) as caught:
        load_config(write(tmp_path, text))
    assert "\n" not in str(caught.value)


def test_a_file_that_cannot_be_read_says_why(tmp_path: Path) -> None:
    """A missing file, a directory and bytes that are no text are told apart."""
    with pytest.raises(ConfigError, match="No such file"):
        load_config(tmp_path / "missing.toml")
    with pytest.raises(ConfigError, match="Is a directory"):
        load_config(tmp_path)
    binary = tmp_path / "binary.toml"
    binary.write_bytes(b"\xff\xfe")
    with pytest.raises(ConfigError, match="is not TOML"):
        load_config(binary)


def test_every_setting_has_a_variable_of_its_own() -> None:
    """Dots become underscores, and a leading kgw. is not repeated."""
    names = {environment_name(name) for name in SERVER_SETTINGS}
    assert len(SERVER_SETTINGS) == len(names)
    assert "KGW_NUM_PARTITIONS" == environment_name("num.partitions")
    assert "KGW_CACHE_BYTES" == environment_name("kgw.cache.bytes")


def test_variables_of_others_are_left_alone() -> None:
    """A service called kgw in Kubernetes puts KGW_PORT and more into every pod."""
    environ = {
        "KGW_PORT": "tcp://10.0.0.1:9092",
        "KGW_PORT_9092_TCP_PORT": "9092",
        "KGW_SERVICE_HOST": "10.0.0.1",
        "KGW_BOOTSTRAP": "localhost:9092",
        "KGW_CONFIG": "kgw.toml",
        "HOME": "/root",
    }
    assert () == load_config(environ=environ).warnings


def test_variables_that_mean_nothing_are_told() -> None:
    """A variable called nearly like a setting, or like a flag, is refused; others are warned of."""
    with pytest.raises(ConfigError, match="did you mean KGW_NUM_PARTITIONS"):
        load_config(environ={"KGW_NUM_PARTITION": "3"})
    for variable, meant in (
        ("KGW_DATA_DIR", "KGW_LOG_DIRS"),
        ("KGW_DATADIR", "KGW_LOG_DIRS"),
        ("KGW_LISTEN", "KGW_LISTENERS"),
        ("KGW_ADVERTISE", "KGW_ADVERTISED_LISTENERS"),
    ):
        with pytest.raises(ConfigError, match=f"did you mean {meant}"):
            load_config(environ={variable: "x"})
    config = load_config(environ={"KGW_SOMETHING_ELSE": "3"})
    assert ("environment variable KGW_SOMETHING_ELSE is no setting",) == config.warnings
    # A server needs none of it.
    (warning,) = load_config(environ={"KGW_BOOSTRAP": "h:1"}).warnings
    assert warning.endswith("KGW_BOOSTRAP is no setting; did you mean KGW_BOOTSTRAP?")


REFUSED = (
    *REFUSED_SERVER_SETTINGS,
    *REFUSED_TOPIC_SETTINGS,
    *(TOPIC_SETTINGS.keys() - SERVER_SETTINGS.keys()),
    "ssl.provider",
    "sasl.enabled.mechanisms",
    "quota.window.num",
    "zookeeper.connect",
)


@pytest.mark.parametrize("name", REFUSED)
def test_what_is_not_obeyed_is_refused_wherever_it_is_said(tmp_path: Path, name: str) -> None:
    """A file, a variable and a flag are refused alike, each with its place and the same reason."""
    variable = environment_name(name)
    given: dict[str, tuple[Path | None, dict[str, str], list[tuple[str, str, str]]]] = {
        "--set": (None, {}, [(name, "1", "--set")]),
        f"file {tmp_path / 'kgw.toml'}": (write(tmp_path, f'"{name}" = "1"'), {}, []),
        f"environment variable {variable}": (None, {variable: "1"}, []),
    }
    if name == "flush.ms":
        # That is kgw.flush.ms, of the server.
        del given[f"environment variable {variable}"]
    told = set()
    for place, (file, environ, flags) in given.items():
        with pytest.raises(ConfigError) as caught:
            load_config(file, environ, flags)
        assert str(caught.value).endswith(f" ({place})")
        told.add(str(caught.value).removesuffix(f" ({place})"))
    assert 1 == len(told)


def test_bad_variables_and_flags_are_named() -> None:
    """The message says which variable, or which flag, holds the bad value."""
    with pytest.raises(ConfigError, match=r"\(environment variable KGW_NODE_ID\)"):
        load_config(environ={"KGW_NODE_ID": "first"})
    with pytest.raises(ConfigError, match=r"\(--node-id\)"):
        load_config(overrides=[("node.id", "first", "--node-id")])


def test_assignments_are_split_at_the_first_equals_sign() -> None:
    """A value may hold an equals sign, a name may not be missing."""
    assert ("a.b", "c=d") == split_assignment("a.b=c=d")
    for text in ("a.b", "=c"):
        with pytest.raises(ConfigError, match="KEY=VALUE"):
            split_assignment(text)
