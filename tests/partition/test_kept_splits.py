"""A product that gathers what it would sum keeps the splits of its other dimensions."""

import jax
import jax.numpy as jnp

import shardwright as sw


def test_a_weight_is_gathered_only_along_the_summed_dimension() -> None:
    x, w = (jax.ShapeDtypeStruct(s, jnp.float32) for s in ((4, 64), (64, 256)))
    given = ('[{}, {"d"}]', '[{"d"}, {"t"}]')
    mesh = sw.Mesh({"d": 4, "t": 2})
    for rows in (4, 512):
        x = jax.ShapeDtypeStruct((rows, 64), jnp.float32)
        made = sw.partition(
            *(lambda x, w: x @ w, x, w),
            mesh=mesh,
            in_shardings=given,
            out_shardings='[{}, {"t"}]',
            mode="as_shardy",
        )
        assert all(each.axes == ("d",) for each in made.communications)
    gathered = 3 * 4 * (512 * 16 + 16 * 128)
    assert sum(each.bytes for each in made.communications) == gathered
    assert {each.op for each in made.communications} == {"all_gather"}
