"""What every stage stands on: the BGP library, the bus, the kernels, configuration and the runtime."""
