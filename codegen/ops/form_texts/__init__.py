"""The text of local forms: for each kind of op, the statements that compute its shards.

`statement` has the tools for writing a form, `table` the forms by kind of op.
"""
