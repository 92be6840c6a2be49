"""Comparison of layouts and loaders: the elements that differ in place, as named ranges."""
