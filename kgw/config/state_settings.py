"""Settings of where topics, groups and their like are kept."""

from __future__ import annotations

from kgw.config.setting import Setting, SettingType, Value


def _check_url(value: Value) -> None:
    if value:
        from kgw.config.state_url import parse_state_url

        parse_state_url(str(value))


STATE_SETTINGS = (
    Setting(
        "kgw.state.url",
        "",
        "Where topics, groups, committed offsets and settings are kept: empty for SQLite in the "
        "data directory, else `postgresql://USER@HOST/DATABASE` or `mysql://USER@HOST/DATABASE` "
        "(docs/state.md). Records stay in the data directory.",
        check=_check_url,
    ),
    Setting(
        "kgw.state.password",
        "",
        "Password for `kgw.state.url`. Never shown again; best given by its environment variable.",
        type_=SettingType.PASSWORD,
    ),
    Setting(
        "kgw.state.password.file",
        "",
        "File whose content, without the line's end, is the password for `kgw.state.url`. "
        "It is read anew for each connection.",
    ),
    Setting(
        "kgw.state.timeout.ms",
        30_000,
        "How long the database of `kgw.state.url` may be away, or take for one statement, before "
        "nothing is written any more until the next start.",
        minimum=100,
    ),
)
