"""The network: topologies, links, and what collectives and exchanges cost on them."""
