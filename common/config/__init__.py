"""The configuration: one TOML file, declared once (schema.py), read (load.py), and written down (render.py)."""

from common.config.load import ConfigError, ConfigErrors, load, loads, notices
from common.config.schema import (
    FAMILIES,
    Config,
    ExportPolicy,
    Fib,
    ImportPolicy,
    Log,
    Neighbor,
    Policy,
    Router,
    Status,
)

__all__ = [
    "FAMILIES",
    "Config",
    "ConfigError",
    "ConfigErrors",
    "ExportPolicy",
    "Fib",
    "ImportPolicy",
    "Log",
    "Neighbor",
    "Policy",
    "Router",
    "Status",
    "load",
    "loads",
    "notices",
]
