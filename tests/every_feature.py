"""Features that tests of functions which a module has only where asked for emit with."""

EVERY = ("async", "check_exchange", "dtensor", "remembered", "symmetric")
"""All of a Triton module's but gradients."""
