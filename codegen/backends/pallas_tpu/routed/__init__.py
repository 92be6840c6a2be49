"""Kernel forms in which devices forward tiles, because not every device can send to every other."""
