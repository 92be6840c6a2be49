"""Forms that forward, for devices that cannot send directly to every receiver."""
