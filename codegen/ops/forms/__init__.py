"""Local forms: ways to run an op on shards along a dimension in which its elements depend on each
other.

A form states the additional factors that it can split, their rule, and the communications inside
the op. `form` is the interface, and `table` maps kinds of ops to forms. `form_texts` has the
statements of each form.
"""
