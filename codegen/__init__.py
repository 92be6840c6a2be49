"""What is done: planning, rendering, writing, verifying, showing, the command line."""
