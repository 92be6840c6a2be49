"""Propagate the given shardings to every value of a program.

Reading order: `parts` (axes as stretches), `factors` (one visit of one op), `rules` (the factors of
each kind of op), `graph` and `program_graph` (the nodes to visit), `order` (the order of visits),
and `propagation`, with the `trail` of reasons. `applied` (constraints) and `groups` run before
propagation.
"""
