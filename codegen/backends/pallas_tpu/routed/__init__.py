"""Kernel forms in which devices forward tiles, as not every device can send to every other."""
