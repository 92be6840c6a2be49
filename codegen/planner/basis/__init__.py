"""The basis plan: collectives as a graph of shardings, and the cheapest path through it."""
