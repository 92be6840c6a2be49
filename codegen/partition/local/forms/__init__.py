"""Local forms: how an op runs on shards along a dimension in which its elements depend on each
other.

A form has the additional factors that it can split, their rule, and the communications inside the
op. `form` is the interface, `table` the list by kind of op; a backend has a text for each (`forms`
there).
"""
