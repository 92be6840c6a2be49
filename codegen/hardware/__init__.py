"""What tensors move on: topologies, the figures of chips and hosts, the texts that name them."""
