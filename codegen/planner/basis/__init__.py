"""The basis plan: shardings form a graph whose edges are collectives, and the plan is the cheapest
path through it."""
