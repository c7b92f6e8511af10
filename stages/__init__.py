"""The stages of the router, one package each. No stage imports another stage (tests/architecture)."""
