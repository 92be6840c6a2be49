"""Measurements of Shardwright and its peers, each pair taken in one run. No test asserts a time."""
