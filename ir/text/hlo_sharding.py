"""Parse shardings in the notation of HLO, which XLA prints, and express them by mesh axes.

    {replicated}                                              every device has the whole tensor
    {maximal device=3}                                        only device 3 has the tensor
    {devices=[2,2]0,2,1,3}                                    the device of every tile, row-major
    {devices=[2,1,4]<=[4,2]T(1,0) last_tile_dim_replicate}    iota(8) as 4x2, transposed, as 2x1x4
    {devices=[2,2,2]<=[8] last_tile_dims={unreduced,replicated}}
    {unreduced}                                               every device has a partial sum
    {manual}                                                  inside a shard_map: an error

HLO assigns tiles to device ids, without axes. The index of a tile along a dimension must consist of
digits of the device's mesh position. Source: `HloSharding::ToString` and `TileAssignment` of XLA.
"""

from __future__ import annotations

import math
import re
from typing import NamedTuple

import numpy as np

from shardwright.ir.axes import AxisRef
from shardwright.ir.errors import InputError, Span
from shardwright.ir.mesh import Mesh
from shardwright.ir.refs import refs_of
from shardwright.ir.sharding import DimSharding, Sharding
from shardwright.ir.text.located import Located

FORMS = "{replicated}, {maximal device=3} or {devices=[2,1,4]<=[8] last_tile_dim_replicate}"
LIST = r"[0-9]+(?:\s*,\s*[0-9]+)*"
WHOLE = re.compile(
    rf"""\s*(?:sharding\s*=\s*)?\{{\s*(?:
        (?P<whole>replicated|unreduced|manual)
      | maximal\s+device\s*=\s*(?P<maximal>[0-9]+)
      | devices\s*=\s*\[(?P<tiles>{LIST})\]\s*
        (?:<=\s*\[(?P<iota>{LIST})\]\s*(?:T\s*\((?P<order>{LIST})\))?|(?P<listed>{LIST}))
        (?:\s*(?P<last>last_tile_dim_replicate)
         |\s*last_tile_dims\s*=\s*\{{\s*(?P<kinds>\w+(?:\s*,\s*\w+)*)\s*\}})?
    )\s*(?:metadata\s*=\s*\{{[^{{}}]*\}}\s*)?\}}\s*""",
    re.VERBOSE,
)


def hlo_sharding(source: Located, mesh: Mesh, rank: int | None) -> Sharding:
    """Parse a sharding on a mesh. A maximal sharding is on a mesh of its one device.

    `rank`: the rank of the tensor, which `{replicated}` and `{unreduced}` do not state. Raises
    InputError, with a caret, for a text in a different notation, for tiles that do not list each
    device of the mesh once, and for tiles that the axes and sub-axes of the mesh cannot express.
    """
    match = WHOLE.fullmatch(source.text)
    if match is None:
        end = len(source.text)
        raise source.error(
            "the text is not a sharding", (0, end), got=source.text.strip(), expected=FORMS
        )
    return _Reader(source, mesh, rank, match).sharding()


class _Tiles(NamedTuple):
    """The mesh position of the device of each tile, and the kind of each tile dimension."""

    positions: np.ndarray
    kinds: tuple[str, ...]


class _Reader(NamedTuple):
    source: Located
    mesh: Mesh
    rank: int | None
    match: re.Match[str]

    def sharding(self) -> Sharding:
        if self.match["maximal"] is not None:
            device = self._numbers("maximal")[0]
            self._known([device], "maximal")
            return Sharding(Mesh({}, [device]), ())
        if whole := self.match["whole"]:
            if whole == "manual":
                raise self._manual("whole")
            if self.rank is None:
                raise self._error("whole", "the text does not give the rank", "[{}, {}]")
            sums = tuple(map(AxisRef, self.mesh.sizes)) if whole == "unreduced" else ()
            return Sharding(self.mesh, (DimSharding(),) * self.rank, unreduced=sums)
        tiles = self._tiles()
        refs = [self._refs(tiles.positions, axis) for axis in range(tiles.positions.ndim)]
        if not np.array_equal(_tiled(self.mesh, refs, tiles.positions.shape), tiles.positions):
            raise self._misfit()
        by_kind = list(zip(refs, tiles.kinds, strict=True))
        dims = tuple(DimSharding(each) for each, kind in by_kind if kind == "tile")
        sums = tuple(ref for each, kind in by_kind if kind == "unreduced" for ref in each)
        return Sharding(self.mesh, dims, unreduced=sums)

    def _tiles(self) -> _Tiles:
        shape = self._numbers("tiles")
        count = math.prod(shape)
        if count != self.mesh.size:
            raise self._error(
                "tiles", "there must be a tile for each device of the mesh",
                f"{self.mesh.size} tiles, for {self.mesh}", got=f"{count} tiles",
            )  # fmt: skip
        listed = "iota" if self.match["iota"] else "listed"
        ids = self._iota() if self.match["iota"] else self._numbers("listed")
        if sorted(ids) != sorted(set(ids)) or len(ids) != count:
            raise self._error(
                listed, "each tile must have a different device", f"{count} distinct ids"
            )
        self._known(ids, listed)
        place = {device: at for at, device in enumerate(self.mesh.device_ids)}
        positions = np.array([place[device] for device in ids], dtype=np.int64).reshape(shape)
        kinds = self._kinds(len(shape))
        for axis, kind in enumerate(kinds):
            if kind == "replicated":  # the order of replicas has no meaning
                positions.sort(axis=axis)
        return _Tiles(positions, kinds)

    def _iota(self) -> list[int]:
        shape, order = self._numbers("iota"), self._numbers("order")
        if math.prod(shape) != self.mesh.size:
            raise self._error(
                "iota",
                "the iota must have one id for each device of the mesh",
                f"{self.mesh.size} ids",
            )
        if order and sorted(order) != list(range(len(shape))):
            raise self._error(
                "order", "a transpose must name each dimension of the iota once",
                f"an order of {', '.join(map(str, range(len(shape))))}",
            )  # fmt: skip
        ids = np.arange(math.prod(shape)).reshape(shape).transpose(order or None)
        return [int(device) for device in ids.ravel()]

    def _kinds(self, rank: int) -> tuple[str, ...]:
        """Return the kind of each tile dimension: "tile" for a dimension of the tensor, else
        "replicated", "unreduced" or "manual"."""
        last = ["replicated"] * bool(self.match["last"])
        if self.match["kinds"]:
            last = [kind.strip() for kind in self.match["kinds"].split(",")]
        wrong = [kind for kind in last if kind not in ("replicated", "unreduced", "manual")]
        if wrong or len(last) > rank:
            raise self._error(
                "kinds", "unknown kinds of the last tile dimensions",
                f"at most {rank} of the kinds replicated, unreduced and manual",
            )  # fmt: skip
        sizes = self._numbers("tiles")[rank - len(last) :]
        if any(kind == "manual" and size > 1 for kind, size in zip(last, sizes, strict=True)):
            raise self._manual("kinds")
        return ("tile",) * (rank - len(last)) + tuple(last)

    def _refs(self, positions: np.ndarray, axis: int) -> tuple[AxisRef, ...]:
        """Return the axes and sub-axes that split a tile dimension, given the mesh position of each
        tile. Raise InputError if no axes do."""
        first = tuple(slice(None) if other == axis else 0 for other in range(positions.ndim))
        line = positions[first]
        digits: list[tuple[int, int]] = []
        while line.size > 1:
            stride = int(line[1] - line[0])
            runs = (n for n in range(line.size, 1, -1) if line.size % n == 0)
            size = next((n for n in runs if (np.diff(line[:n]) == stride).all()), 0)
            if stride <= 0 or not size:
                raise self._misfit()
            digits.insert(0, (stride, size))
            line = line[::size]
        refs = refs_of(self.mesh, digits)
        if refs is None:
            raise self._misfit()
        return refs

    def _numbers(self, group: str) -> list[int]:
        text = self.match[group]
        return [int(number) for number in text.split(",")] if text else []

    def _known(self, ids: list[int], group: str) -> None:
        others = sorted({*ids} - {*self.mesh.device_ids})
        if others:
            raise self._error(
                group, "every device must be in the mesh", f"ids of {self.mesh}",
                got=f"device {others[0]}",
            )  # fmt: skip

    def _manual(self, group: str) -> InputError:
        return self._error(
            group,
            "a manual sharding does not say how the tensor is split: each device holds its own "
            "value",
            "the sharding outside the shard_map, as given by its in_specs or out_specs",
        )

    def _misfit(self) -> InputError:
        return self._error(
            "tiles", "the tiles must be shards along axes or sub-axes of the mesh",
            f"a tile assignment that follows the axes of {self.mesh}", got=self.source.text.strip(),
        )  # fmt: skip

    def _error(self, group: str, rule: str, expected: str, got: str | None = None) -> InputError:
        span: Span = self.match.span(group)
        if got is None:
            got = self.match[group]
        return self.source.error(rule, span, got=got, expected=expected)


def _tiled(mesh: Mesh, refs: list[tuple[AxisRef, ...]], shape: tuple[int, ...]) -> np.ndarray:
    """Return the mesh position that each tile would have if `refs` split the tile dimensions and
    all other digits of the position were 0."""
    positions = np.zeros((1,), dtype=np.int64)
    for digit in (mesh.digit(ref) for each in refs for ref in each):
        values = np.arange(digit.size, dtype=np.int64) * digit.stride
        positions = (positions[:, None] + values).ravel()
    return positions.reshape(shape)
