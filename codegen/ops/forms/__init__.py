"""Local forms: ways to run an op on shards along a dimension in which its elements depend on each
other.

A form states the additional factors that it can split, their rule, and the communications inside
the op. `form` is the interface; the row of each op in its family's file names its form.
`form_texts` has the statements of each form.
"""
