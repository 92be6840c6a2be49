"""What a user says: descriptions, configs, groups, the manifest, other systems' shardings."""
