"""The forms that forward, for devices that do not send directly to every receiver."""
