"""The program of one device, to which `lower` lowers a program whose values have shardings.

`axes` cuts the mesh into named pieces of axes, `assign` lists the layouts in which an op can run on
shards, and `steps` defines the steps of the result. `moves/paths.py` finds paths between layouts of
a value.
"""
