"""Trace a JAX function to a program. `jaxprs` walks the jaxpr, with the help of the other modules;
then `constants` copies constants."""
