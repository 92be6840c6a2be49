"""Exact integer index algebra: expressions, bounds, identities and printers.

Importing any module of this package registers the identities, which then simplify every expression.
"""

from shardwright.ir.algebra.identities import rewrite
from shardwright.ir.algebra.index import simplify_by

simplify_by(rewrite)
