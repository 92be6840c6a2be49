"""Layouts, and what loaders hold, compared: which elements lie elsewhere, as ranges with names."""
