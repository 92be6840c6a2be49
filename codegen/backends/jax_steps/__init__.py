"""Plans of several steps as JAX statements."""
