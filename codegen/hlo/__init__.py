"""Readers of compiled programs: HLO instructions, executions, copies, bytes received."""
