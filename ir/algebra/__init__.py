"""Exact integer index algebra: expressions, what is proved of them, identities, printers.

Importing any part of it registers the identities with the expressions they simplify.
"""

from shardwright.ir.algebra.identities import rewrite
from shardwright.ir.algebra.index import simplify_by

simplify_by(rewrite)
