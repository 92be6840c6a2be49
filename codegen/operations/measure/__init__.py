"""Measure emitted modules on the devices of this machine, and fit a topology's figures to them.

Worker processes import this package too, so it must not depend on planning or rendering.
"""
