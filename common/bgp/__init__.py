"""The BGP library: codec, capabilities, state machine and session, without a socket or a clock."""
