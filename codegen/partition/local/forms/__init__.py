"""Local forms: run an op on shards along a dimension in which its elements depend on each other.

A form has the additional factors that it can split, their rule, and the communications inside the
op. `form` is the interface, `table` maps kinds of ops to forms; each backend has a template per
form in its own `forms`.
"""
