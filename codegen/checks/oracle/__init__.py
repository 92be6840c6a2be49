"""The oracle: the meaning of shardings and partial sums, by definition."""
