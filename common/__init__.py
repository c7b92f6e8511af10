"""What every stage stands on: the BGP library, the bus, the kernels, configuration and the runtime."""

VERSION = "0.1.0"
"""Of all stages; pyproject.toml takes it from here."""
