"""Measure emitted modules on the devices of this machine, and fit a topology's figures to them.

A worker process imports this package too, and is to know nothing of planning or rendering.
"""
