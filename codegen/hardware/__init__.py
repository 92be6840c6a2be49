"""Hardware: topologies, the speeds and sizes of chips and hosts, and the texts that name them."""
