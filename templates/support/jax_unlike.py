"""The check that a user's mesh divides devices into the axes of a reshard's side."""


def unlike(side, mesh):
    """Describe the fault of a mesh whose axes share names with the side's axes but differ in
    order or sizes; "" if there is none."""
    given, wanted = (_whole(axes) for axes in (mesh.shape_tuple, side.axes))
    swapped = [*given] != [*wanted] and {*given} == {*wanted}
    resized = {*given} & {*wanted} and [*given.values()] != [*wanted.values()]
    if swapped or resized:
        return f"{side.name} mesh: got axes {given}, expected {wanted}"
    return ""


def _whole(axes):
    """Return the size of each axis, merging its sub-axes (such as `x:(1)2`) and omitting axes of
    size 1."""
    sizes: dict = {}
    for name, size in axes:
        whole = name.partition(":")[0]
        sizes[whole] = sizes.get(whole, 1) * size
    return {name: size for name, size in sizes.items() if size > 1}
