"""Show plans to people: derivations, tables, SVG pictures, review pages and explorer pages."""

from shardwright.codegen.show.derivation import derivation
from shardwright.codegen.show.pictures import pictures
from shardwright.codegen.show.summary import summary
from shardwright.codegen.show.svg import svg
from shardwright.codegen.show.tables import tile_table

__all__ = ["derivation", "pictures", "summary", "svg", "tile_table"]
