"""Programs whose tiles have one shape, narrower than memory tiles: XLA packs each tile densely into
a slot, one kernel pushes slots, and XLA unpacks them. All of that is in the module."""

from .pallas_program import PallasProgram


class Thin(PallasProgram):
    """A reshard among `Permuted` peers. `kernel`: a function of outgoing and incoming slots, in
    HBM, and DMA semaphores for both; `moved`: as for `PallasProgram`; `slot`: the shape of a slot,
    whole granules of 512 bytes that hold the elements of a tile contiguously."""

    form = "slots"

    def __init__(self, kernel, moved, peers, slot, **settings):
        super().__init__(peers, (), **settings)
        self.kernel, self.moved, self.slot_shape = kernel, moved, slot
        self.outgoing = self.incoming = peers.count
