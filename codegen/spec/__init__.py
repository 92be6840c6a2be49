"""User input: descriptions, configs, groups, the manifest, and shardings of other systems."""
