"""Propagate the given shardings to every value.

Reading order: `parts` (axes as stretches), `factors` (one visit of one op), `rules` (kinds of ops
to factors), `graph` and `program_graph` (the nodes), `order` (of visits), and `propagation`, with
the `trail` of reasons. `applied` (constraints) and `groups` run before it.
"""
