"""What is measured, side by side in one run. Nothing here is a timed test."""
