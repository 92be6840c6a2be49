"""Emission: write, check and display the files of bundles, given plans and descriptions."""
