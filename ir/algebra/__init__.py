"""Exact integer index algebra: expressions, bounds, identities and printers.

Importing any part of the package registers the identities with the expressions they simplify.
"""

from shardwright.ir.algebra.identities import rewrite
from shardwright.ir.algebra.index import simplify_by

simplify_by(rewrite)
