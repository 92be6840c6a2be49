"""The routed, gathered and spread forms, for devices that do not send directly to every receiver."""
