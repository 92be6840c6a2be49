"""Local forms as text: for each kind of op the statements that compute its shards.

`statement` is what a form is written with, `table` the list by kind of op.
"""
