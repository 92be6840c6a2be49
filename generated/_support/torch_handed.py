"""Check an exchange in one process, which packs, hands over and unpacks all pieces."""

from .torch_wire import Wire, unpacked


def handed_over(moves, given):
    """Pack, hand over and unpack pieces of the source shards, and return the target shards of
    each tensor. Exit if a device expects pieces of other sizes."""
    exchange, found = moves[0].exchange, []
    home = given[0][0].device
    held = dict.fromkeys(exchange.ranks, [None] * len(moves))
    held |= dict(zip(sorted(exchange.source.ids), zip(*given, strict=True), strict=True))
    wires = {device: Wire(moves, device, home) for device in exchange.ranks}
    sent = []
    for device, wire in wires.items():
        packed, _ = wire.buffers()
        wire.pack(held[device], packed)
        sent.append(wire.parts("source", held[device], packed))
    for rank, (device, wire) in enumerate(wires.items()):
        outs, (_, arrived) = [move.empty(device, home) for move in moves], wire.buffers()
        with unpacked(moves, outs, wire.receiver) as targets:
            expected = wire.parts("target", targets, arrived)
            for sender, parts in enumerate(sent):
                leaving = [part for receiver, part in parts if receiver == rank]
                arriving = [part for peer, part in expected if peer == sender]
                if [*map(len, leaving)] != [*map(len, arriving)]:
                    raise SystemExit(f"device {device}: receives different bytes than expected")
                for part, place in zip(leaving, arriving, strict=True):
                    place.copy_(part)
            wire.keep(held[device], targets)
            wire.unpack(arrived, targets)
        if wire.receiver >= 0:
            found.append(outs)
    return zip(*found, strict=True)
