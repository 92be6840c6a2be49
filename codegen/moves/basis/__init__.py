"""The basis plan. Shardings are the nodes of a graph, and collectives its edges; the plan is the
cheapest path from the source to the target."""
