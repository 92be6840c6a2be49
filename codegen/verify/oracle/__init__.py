"""The oracle: what a sharding and a partial sum mean, by definition."""
