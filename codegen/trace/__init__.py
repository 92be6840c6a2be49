"""Trace a JAX function to a program: `jaxprs`, with `params` and `lines`; then `constants`."""
