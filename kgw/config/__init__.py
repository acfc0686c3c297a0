"""The tables of all settings, of the server and of topics, and the loaded configuration.

A setting has Kafka's name if Kafka has it, and otherwise a name that begins with `kgw.`.
"""

from kgw.config.config import Config
from kgw.config.listeners import Listener, Node, parse_address, parse_listener, parse_peer
from kgw.config.load import load_config
from kgw.config.server_settings import SERVER_SETTINGS
from kgw.config.setting import ConfigError, Setting, SettingType, Value
from kgw.config.topic_settings import TOPIC_SETTINGS, parse_topic_config, topic_setting

__all__ = [
    "SERVER_SETTINGS",
    "TOPIC_SETTINGS",
    "Config",
    "ConfigError",
    "Listener",
    "Node",
    "Setting",
    "SettingType",
    "Value",
    "load_config",
    "parse_address",
    "parse_listener",
    "parse_peer",
    "parse_topic_config",
    "topic_setting",
]
