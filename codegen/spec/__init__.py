"""Input of users: descriptions, configs, groups, the manifest, other systems' shardings."""
