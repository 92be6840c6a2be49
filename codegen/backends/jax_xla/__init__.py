"""The XLA backend: plain JAX, with `shard_map` and `lax` collectives, on CPU, GPU and TPU."""
