"""Local forms: how an op runs on shards along a dimension in which its elements depend on others.

A form says which factors may be split beside those along which the op itself computes shards, by
which rule, and what devices send each other inside. `form` is the interface, `table` the list by
kind of op; a backend has a text for each (`forms` there).
"""
