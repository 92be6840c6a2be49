"""Plans of several steps as statements, in the order of the plan."""
