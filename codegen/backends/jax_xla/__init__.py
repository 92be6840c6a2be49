"""The XLA backend: plain JAX, `shard_map` and `lax` collectives, on CPU, GPU and TPU."""
