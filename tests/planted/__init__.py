"""Faults planted in support and in emitted modules, each of which `verify` has to find."""
