"""Measure emitted modules on the devices of this machine, and fit a topology's figures to the
measurements.

Worker processes import this package too and must not depend on planning or rendering.
"""
