"""Emission: the files of bundles from plans and descriptions, written, checked and displayed."""
