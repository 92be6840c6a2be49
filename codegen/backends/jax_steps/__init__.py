"""Plans of several steps as JAX statements, in the order of the plan."""
