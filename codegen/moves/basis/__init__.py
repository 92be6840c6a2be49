"""The basis plan: the cheapest path from the source to the target in a graph whose nodes are
shardings and whose edges are collectives."""
