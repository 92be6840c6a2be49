"""From the shardings that were said to a sharding of every value.

In the order in which to read: `parts` (axes as stretches), `factors` (one visit of one op), `rules`
(kinds of ops to factors), `graph` and `program_graph` (what is visited), `order` (when), and
`propagation`, with the `trail` that says why. Before it, `applied` (constraints) and `groups`.
"""
