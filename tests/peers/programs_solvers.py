"""Programs of lineax, optimistix, diffrax, jaxopt, numpyro, blackjax."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
from program_cases import Case, drawn, graded, key, library, named, of, program

ROWS = of(8, 16)


# lineax


def _lineax(name: str) -> Case:
    lx = library("lineax")
    solvers = {
        "lu": lambda: lx.LU(),
        "qr": lambda: lx.QR(),
        "svd": lambda: lx.SVD(),
        "cholesky": lambda: lx.Cholesky(),
        "cg": lambda: lx.CG(1e-6, 1e-6),
        "gmres": lambda: lx.GMRES(1e-6, 1e-6),
        "bicgstab": lambda: lx.BiCGStab(1e-6, 1e-6),
    }

    def solved(b: Any, x: Any) -> Any:
        matrix = x.T @ x + 4.0 * jnp.eye(16)
        tags = lx.positive_semidefinite_tag if name in ("cholesky", "cg") else ()
        return lx.linear_solve(lx.MatrixLinearOperator(matrix, tags), b, solvers[name]()).value

    return graded(solved, of(16), ROWS)


for each in ("lu", "qr", "svd", "cholesky", "cg", "gmres", "bicgstab"):
    named(f"lineax_{each}", lambda name=each: _lineax(name))


@program
def lineax_tridiagonal() -> Case:
    lx = library("lineax")

    def solved(b: Any, x: Any) -> Any:
        operator = lx.TridiagonalLinearOperator(4.0 + x.sum(0), x[0, 1:], x[1, 1:])
        return lx.linear_solve(operator, b).value

    return graded(solved, of(16), ROWS)


@program
def lineax_batch() -> Case:
    """A system for each row, in a `vmap`."""
    lx = library("lineax")

    def one(b: Any, x: Any) -> Any:
        matrix = jnp.outer(x, x) + 4.0 * jnp.eye(16)
        operator = lx.MatrixLinearOperator(matrix)
        return lx.linear_solve(operator, b + x, lx.LU()).value

    return graded(jax.vmap(one, (None, 0)), of(16), ROWS)


# optimistix


def _optimistix_list() -> dict[str, Case]:
    optx = library("optimistix")
    bent = lambda y, x: y + 0.1 * jnp.tanh(y) - x  # noqa: E731
    residual = lambda y, x: jnp.tanh(x @ y) - 0.5  # noqa: E731
    loss = lambda y, x: ((x @ y - 1.0) ** 2).mean() + 0.1 * (y**2).sum()  # noqa: E731

    def root(solver: Any) -> Any:
        return lambda y, x: optx.root_find(bent, solver, y, args=x.mean(0), max_steps=16).value

    def least(solver: Any) -> Any:
        return lambda y, x: (
            optx.least_squares(residual, solver, y, args=x, max_steps=16, throw=False).value
        )

    def least_value(solver: Any) -> Any:
        return lambda y, x: optx.minimise(loss, solver, y, args=x, max_steps=24, throw=False).value

    def bisected(y: Any, x: Any) -> Any:
        each = lambda c: (  # noqa: E731
            optx.root_find(
                lambda y, c: jnp.tanh(y) - 0.5 * jnp.tanh(c),
                optx.Bisection(1e-5, 1e-5),
                jnp.array(0.1),
                args=c,
                options={"lower": -3.0, "upper": 3.0},
                max_steps=32,
                throw=False,
            ).value
        )
        return jax.vmap(each)(x[:, 0])

    def fixed(y: Any, x: Any) -> Any:
        f = lambda y, a: 0.5 * jnp.cos(y) + a  # noqa: E731
        solver = optx.FixedPointIteration(1e-5, 1e-5)
        return optx.fixed_point(f, solver, y, args=x.mean(0), max_steps=32, throw=False).value

    return {
        "newton": Case(root(optx.Newton(1e-4, 1e-4)), (of(16), ROWS)),
        "chord": Case(root(optx.Chord(1e-4, 1e-4)), (of(16), ROWS)),
        "levenberg": Case(least(optx.LevenbergMarquardt(1e-4, 1e-4)), (of(16), ROWS)),
        "gauss_newton": Case(least(optx.GaussNewton(1e-4, 1e-4)), (of(4), of(8, 4))),
        "bfgs": Case(least_value(optx.BFGS(1e-5, 1e-5)), (of(16), ROWS)),
        "conjugate": Case(least_value(optx.NonlinearCG(1e-5, 1e-5)), (of(16), ROWS)),
        "simplex": Case(least_value(optx.NelderMead(1e-3, 1e-3)), (of(4), of(8, 4))),
        "bisection": Case(bisected, (of(1), ROWS)),
        "fixed_point": graded(fixed, of(16), ROWS),
    }


for each in (
    *("newton", "chord", "levenberg", "gauss_newton", "bfgs", "conjugate", "simplex"),
    *("bisection", "fixed_point"),
):
    named(f"optimistix_{each}", lambda name=each: _optimistix_list()[name])


# diffrax


def _diffrax(name: str) -> Case:
    dfx = library("diffrax")
    solver = getattr(dfx, {"adaptive": "Tsit5", "saved": "Heun"}.get(name, name), None)
    term = dfx.ODETerm(lambda t, y, w: jnp.tanh(y * w) - y)
    steps = dfx.PIDController(1e-3, 1e-5) if name == "adaptive" else dfx.ConstantStepSize()
    saved = dfx.SaveAt(ts=jnp.linspace(0.0, 1.0, 5)) if name == "saved" else dfx.SaveAt(t1=True)

    def solved(w: Any, x: Any) -> Any:
        made = dfx.diffeqsolve(
            *(term, solver(), 0.0, 1.0, 0.25, x),
            args=w,
            saveat=saved,
            stepsize_controller=steps,
            max_steps=16,
        )
        return made.ys

    return graded(solved, of(16), ROWS)


for each in ("Euler", "Midpoint", "Dopri5", "adaptive", "saved"):
    named(f"diffrax_{each.lower()}", lambda name=each: _diffrax(name))


@program
def diffrax_implicit() -> Case:
    dfx = library("diffrax")

    def solved(w: Any, x: Any) -> Any:
        term = dfx.ODETerm(lambda t, y, w: -y * (1 + w**2))
        steps = dfx.PIDController(1e-3, 1e-4)
        made = dfx.diffeqsolve(
            *(term, dfx.Kvaerno3(), 0.0, 1.0, 0.25, x.mean(0)),
            args=w,
            stepsize_controller=steps,
            max_steps=32,
        )
        return made.ys

    return Case(solved, (of(16), ROWS))


@program
def diffrax_noise() -> Case:
    dfx = library("diffrax")

    def solved(w: Any, x: Any) -> Any:
        noise = dfx.VirtualBrownianTree(0.0, 1.0, 1e-2, (), key())
        terms = dfx.MultiTerm(
            dfx.ODETerm(lambda t, y, w: -w * y), dfx.ControlTerm(lambda t, y, w: 0.1 * y, noise)
        )
        return dfx.diffeqsolve(terms, dfx.EulerHeun(), 0.0, 1.0, 0.25, x, args=w).ys

    return graded(solved, of(16), ROWS)


@program
def diffrax_interpolation() -> Case:
    dfx = library("diffrax")

    def read(w: Any, x: Any) -> Any:
        at = jnp.linspace(0.0, 1.0, 8)
        control = dfx.LinearInterpolation(at, x * w)
        return jax.vmap(control.evaluate)(jnp.array([0.1, 0.33, 0.9]))

    return graded(read, of(16), ROWS)


# jaxopt


def _jaxopt_list() -> dict[str, Case]:
    jaxopt = library("jaxopt")
    loss = lambda w, x: ((x @ w - 1.0) ** 2).mean() + 0.01 * (w**2).sum()  # noqa: E731

    def run(solver: Any) -> Any:
        return lambda w, x: solver.run(w, x).params

    words = {"maxiter": 5}
    return {
        "descent": Case(run(jaxopt.GradientDescent(loss, **words)), (of(16), ROWS)),
        "lbfgs": Case(run(jaxopt.LBFGS(loss, **words)), (of(16), ROWS)),
        "bfgs": Case(run(jaxopt.BFGS(loss, **words)), (of(16), ROWS)),
        "conjugate": Case(run(jaxopt.NonlinearCG(loss, **words)), (of(16), ROWS)),
        "armijo": Case(run(jaxopt.ArmijoSGD(loss, **words)), (of(16), ROWS)),
        "lasso": Case(
            lambda w, x: (
                jaxopt.ProximalGradient(loss, jaxopt.prox.prox_lasso, **words).run(w, 0.1, x).params
            ),
            (of(16), ROWS),
        ),
        "projected": Case(
            lambda w, x: (
                jaxopt.ProjectedGradient(loss, jaxopt.projection.projection_non_negative, **words)
                .run(w, None, x)
                .params
            ),
            (of(16), ROWS),
        ),
        "anderson": Case(
            lambda w, x: (
                jaxopt.AndersonAcceleration(lambda w, x: 0.5 * jnp.cos(w) + x.mean(0), maxiter=6)
                .run(w, x)
                .params
            ),
            (of(16), ROWS),
        ),
        "simplex": graded(lambda x: jax.vmap(jaxopt.projection.projection_simplex)(x), ROWS),
        "ridge": graded(
            lambda w, x: jaxopt.linear_solve.solve_cg(lambda v: x.T @ (x @ v) + v, w), of(16), ROWS
        ),
    }


for each in (
    *("descent", "lbfgs", "bfgs", "conjugate", "armijo", "lasso", "projected", "anderson"),
    *("simplex", "ridge"),
):
    named(f"jaxopt_{each}", lambda name=each: _jaxopt_list()[name])


# numpyro


def _numpyro_list() -> dict[str, Case]:
    dist = library("numpyro.distributions")

    def prob(make: Any, read: Any = lambda x: x) -> Any:
        return graded(lambda m, x: make(m).log_prob(read(x)), of(16), ROWS)

    positive = lambda m: 0.5 + m**2  # noqa: E731
    return {
        "normal": prob(lambda m: dist.Normal(m, 1.0)),
        "student": prob(lambda m: dist.StudentT(3.0, m, 1.0)),
        "gamma": prob(lambda m: dist.Gamma(positive(m), 1.0), lambda x: 0.1 + x**2),
        "beta": prob(lambda m: dist.Beta(positive(m), 2.0), jax.nn.sigmoid),
        "dirichlet": prob(lambda m: dist.Dirichlet(positive(m)), lambda x: jax.nn.softmax(x)),
        "multivariate": prob(lambda m: dist.MultivariateNormal(m, jnp.eye(16) + jnp.outer(m, m))),
        "mixture": prob(
            lambda m: dist.MixtureSameFamily(
                dist.Categorical(logits=m[:4]), dist.Normal(m[4:8], 1.0)
            )
        ),
        "categorical": prob(
            lambda m: dist.Categorical(logits=m), lambda x: (x[:, 0] > 0).astype("int32")
        ),
        "von_mises": prob(lambda m: dist.VonMises(m, 2.0)),
    }


for each in (
    *("normal", "student", "gamma", "beta", "dirichlet", "multivariate", "mixture"),
    *("categorical", "von_mises"),
):
    named(f"numpyro_{each}", lambda name=each: _numpyro_list()[name])


def regression(x: Any) -> Any:
    numpyro, dist = library("numpyro"), library("numpyro.distributions")
    w = numpyro.sample("w", dist.Normal(jnp.zeros(16), 1.0).to_event(1))
    s = numpyro.sample("s", dist.HalfNormal(1.0))
    numpyro.sample("y", dist.Normal(x @ w, s), obs=jnp.ones(8))


@program
def numpyro_posterior() -> Case:
    util = library("numpyro.infer.util")

    def density(params: Any, x: Any) -> Any:
        return util.log_density(regression, (x,), {}, params)[0]

    return graded(density, {"w": of(16), "s": jnp.float32(0.7)}, ROWS)


@program
def numpyro_variational() -> Case:
    """A step of SVI with a guide that is made for the model."""
    numpyro, infer = library("numpyro"), library("numpyro.infer")
    guide = infer.autoguide.AutoNormal(regression)
    svi = infer.SVI(regression, guide, numpyro.optim.Adam(1e-2), infer.Trace_ELBO())
    state = svi.init(key(), drawn(8, 16))
    return Case(svi.update, (state, ROWS))


@program
def numpyro_nuts() -> Case:
    """A step of NUTS: a tree that grows in a loop."""
    infer = library("numpyro.infer")
    kernel = infer.NUTS(potential_fn=lambda z: 0.5 * (z**2).sum(), max_tree_depth=3)
    state = kernel.init(key(), 0, jnp.ones(16), (), {})
    return Case(
        lambda state, x: kernel.sample(state._replace(z=state.z + x.mean(0)), (), {}).z,
        (state, ROWS),
    )


# blackjax


def _blackjax(name: str) -> Case:
    blackjax = library("blackjax")

    def density(z: Any) -> Any:
        return -0.5 * (z**2).sum()

    words = {
        "hmc": (0.1, jnp.ones(16), 4),
        "nuts": (0.1, jnp.ones(16)),
        "mala": (0.1,),
        "ghmc": None,
    }[name]
    sampler = getattr(blackjax, name)(density, *(words or ()))
    state = sampler.init(drawn(16))

    def step(state: Any, x: Any) -> Any:
        moved = state._replace(position=state.position + 0.1 * x.mean(0))
        return sampler.step(key(3), moved)[0].position

    return Case(step, (state, ROWS))


for each in ("hmc", "nuts", "mala"):
    named(f"blackjax_{each}", lambda name=each: _blackjax(name))


@program
def blackjax_random_walk() -> Case:
    blackjax = library("blackjax")

    def step(z: Any, x: Any) -> Any:
        walk = blackjax.additive_step_random_walk.normal_random_walk
        sampler = walk(lambda z: -0.5 * ((z - x.mean(0)) ** 2).sum(), 0.1 * jnp.ones(16))
        return sampler.step(key(3), sampler.init(z))[0].position

    return Case(step, (of(16), ROWS))


@program
def blackjax_langevin() -> Case:
    """A step of SGLD with gradients of a batch."""
    blackjax = library("blackjax")
    gradient = jax.grad(lambda z, x: -((x @ z) ** 2).mean())
    sampler = blackjax.sgld(gradient)
    return Case(lambda z, x: sampler.step(key(3), z, x, 1e-2), (of(16), ROWS))
