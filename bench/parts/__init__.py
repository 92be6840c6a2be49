"""Run checks on an accelerator in parts: processes with time limits that print rows of results for
a table.

`attempt` makes rows inside a process, `run` starts the processes of a part, `report` writes the
rows known after each part, and `table` prints rows as Markdown. Nothing here depends on an
accelerator.
"""
