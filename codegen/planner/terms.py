"""What may be reduced, and what may be one term among others: the rules of both strategies."""

from __future__ import annotations

from shardwright.ir.errors import InputError
from shardwright.ir.reshard import Reshard


def check_terms(reshard: Reshard) -> None:
    """Raise InputError for booleans that are added: they have no sum."""
    adds = reshard.adds and reshard.source.operator == "sum"
    places = reshard.places and reshard.target.operator == "sum"
    if reshard.dtype == "bool" and (adds or places):
        raise InputError(
            "partial sums are added, and booleans have no sum",
            argument="dtype",
            got="bool",
            expected="an integer or a floating dtype, as int8; or unreduced=max{…}",
        )
