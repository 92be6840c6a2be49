"""Hardware: topologies, the figures of chips and hosts, and their names as text."""
