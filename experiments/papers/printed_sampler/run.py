"""The sampler of Battiston & Rimella (2024) as printed, against the joint distribution.

    python experiments/papers/printed_sampler/run.py

Chains start from the joint prior of parameters and data. Each sweep draws the parameters by the
sampler and then new data given the parameters, so that a right sampler leaves the prior's means as
they are (Geweke 2004, doi:10.1198/016214504000001132). Each row repeats one thing as printed. All
chains of a row run side by side in NumPy, without any code of the package. Writes table.md.
"""

import sys
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import pandas as pd
from scipy.special import psi

HERE = Path(__file__).parent
sys.path.append(str(HERE.parents[1] / "accuracy" / "known_truth"))
from results import markdown  # noqa: E402

CHAINS, SWEEPS = 3000, 160
RECORDS, VARIABLES, LEVELS = 4, 5, 3
SLOTS = 40
STICKS = 200
"""Sticks of the prior's g_0, from which chains start; the rest has no weight worth counting."""
SHAPE, RATE = 2.0, 1.0
"""Of all concentrations."""


@dataclass(frozen=True)
class Printed:
    """What a sampler does as printed."""

    tables: bool = False
    """Step 2: tables with the concentration alpha_0 g_0k."""
    order: bool = False
    """Steps 3 to 6: g_0 and g_i before alpha_0 and alpha_i."""
    births: bool = False
    """Step 1: shares of a new component that forget the item which opens it, and components that
    stay until the end of the step when their last item has left."""
    parallel: bool = False
    """Appendix D: all items choose at the same time, those of no component again."""
    empty_counts: bool = False
    """K_n in step 6 counts the empty component too."""


ROWS = {
    "corrected": Printed(),
    "step 2: alpha_0 g_0k": Printed(tables=True),
    "g_0 and g_i before alpha_0 and alpha_i": Printed(order=True),
    "step 1: births as printed": Printed(births=True),
    "appendix D: parallel births": Printed(parallel=True),
    "K_n with the empty component": Printed(empty_counts=True),
    "all but the last": Printed(tables=True, order=True, parallel=True),
}


@dataclass
class State:
    """All chains: C chains, n records, J variables, K slots, L levels."""

    x: np.ndarray  # (C, n, J)
    z: np.ndarray  # (C, n, J)
    g0: np.ndarray  # (C, K), 0 in free slots
    rest0: np.ndarray  # (C,)
    g: np.ndarray  # (C, n, K)
    rest: np.ndarray  # (C, n)
    theta: np.ndarray  # (C, K, J, L)
    alpha0: np.ndarray  # (C,)
    alpha: np.ndarray  # (C, n)


def draw_prior(rng: np.random.Generator) -> State:
    """Parameters and data from the prior, the components in use in the first slots."""
    shape = (CHAINS, RECORDS, VARIABLES)
    alpha0 = rng.gamma(SHAPE, 1 / RATE, CHAINS)
    alpha = rng.gamma(SHAPE, 1 / RATE, shape[:2])
    v = rng.beta(1, alpha0[:, None], (CHAINS, STICKS))
    all_g0 = v * np.cumprod(np.column_stack([np.ones(CHAINS), 1 - v[:, :-1]]), axis=1)
    all_g = dirichlet(rng, alpha[:, :, None] * all_g0[:, None])
    u = rng.random((*shape, 1))
    z = (u > np.cumsum(all_g, axis=2)[:, :, None]).sum(axis=3).clip(max=STICKS - 1)
    g0, g = np.zeros((CHAINS, SLOTS)), np.zeros((*shape[:2], SLOTS))
    for c in range(CHAINS):
        used, z_c = np.unique(z[c], return_inverse=True)
        z[c] = z_c.reshape(z[c].shape)
        g0[c, : used.size], g[c, :, : used.size] = all_g0[c, used], all_g[c][:, used]
    theta = rng.dirichlet(np.ones(LEVELS), (CHAINS, SLOTS, VARIABLES))
    state = State(z, z, g0, 1 - g0.sum(axis=1), g, 1 - g.sum(axis=2), theta, alpha0, alpha)
    return replace(state, x=draw_data(rng, state))


def dirichlet(rng: np.random.Generator, shape: np.ndarray) -> np.ndarray:
    """Dirichlet variates over the last axis; shapes of 0 give 0."""
    gamma = rng.gamma(shape)
    total = gamma.sum(axis=-1, keepdims=True)
    return np.divide(gamma, total, out=np.zeros_like(gamma), where=total > 0)


def draw_data(rng: np.random.Generator, state: State) -> np.ndarray:
    """Levels of all items given their components."""
    chains = np.arange(CHAINS)[:, None, None]
    p = state.theta[chains, state.z, np.arange(VARIABLES)]
    return (rng.random((*state.z.shape, 1)) > np.cumsum(p, axis=3)).sum(axis=3).clip(max=LEVELS - 1)


def counts_of(z: np.ndarray) -> np.ndarray:
    """(C, n, K) items by record and component."""
    return (z[..., None] == np.arange(SLOTS)).sum(axis=2)


def choose(rng: np.random.Generator, weight: np.ndarray) -> np.ndarray:
    """Index drawn with probabilities proportional to the weights of the last axis."""
    cumulative = np.cumsum(weight, axis=-1)
    u = rng.random(weight.shape[:-1]) * cumulative[..., -1]
    return (u[..., None] > cumulative).sum(axis=-1).clip(max=weight.shape[-1] - 1)


def open_component(rng, state: State, chains: np.ndarray, opener: int | None) -> np.ndarray:
    """Break a new component off the remainder in some chains; return its slots.

    opener
        Record one of whose items has chosen the new component; None: as printed, by no item.
    """
    slot = np.argmax(state.g0[chains] == 0, axis=1)
    stays = rng.beta(state.alpha0[chains], 1)
    old = state.rest0[chains]
    state.g0[chains, slot], state.rest0[chains] = old * (1 - stays), old * stays
    shapes = np.maximum(
        state.alpha[chains][:, :, None] * np.stack([old * stays, old * (1 - stays)], 1)[:, None],
        1e-100,
    )
    if opener is not None:
        shapes[:, opener, 1] += 1
    share = rng.beta(shapes[..., 0], shapes[..., 1])
    # Both gamma variates may be too small for a number: one of the two has all.
    lost = np.isnan(share)
    share[lost] = rng.random(lost.sum()) < (shapes[lost, 0] / shapes[lost].sum(axis=-1))
    state.g[chains, :, slot] = state.rest[chains] * (1 - share)
    state.rest[chains] *= share
    return slot


def give_back(state: State, empty: np.ndarray) -> None:
    """Return the weights of empty components (C, K) to the remainder."""
    chain, slot = np.nonzero(empty)
    # A chain may have several: a plain sum by index would add one of them only.
    np.add.at(state.rest0, chain, state.g0[chain, slot])
    np.add.at(state.rest, chain, state.g[chain, :, slot])
    state.g0[chain, slot] = 0
    state.g[chain, :, slot] = 0


def draw_labels(rng, state: State, printed: Printed) -> None:
    """Step 1, item after item."""
    every = np.arange(CHAINS)
    items = counts_of(state.z).sum(axis=1)
    for i in range(RECORDS):
        for j in range(VARIABLES):
            old = state.z[:, i, j]
            items[every, old] -= 1
            if not printed.births:
                give_back(state, (items == 0) & (state.g0 > 0))
            x = state.x[:, i, j]
            of_level = state.theta[every, :, j, x]
            weight = np.column_stack([state.g[:, i] * of_level, state.rest[:, i] / LEVELS])
            new = choose(rng, weight)
            born = np.flatnonzero(new == SLOTS)
            if born.size:
                slot = open_component(rng, state, born, None if printed.births else i)
                shape = np.ones((born.size, VARIABLES, LEVELS))
                shape[np.arange(born.size), j, x[born]] += 1
                state.theta[born, slot] = dirichlet(rng, shape)
                new[born] = slot
            state.z[:, i, j] = new
            items[every, new] += 1
    give_back(state, (items == 0) & (state.g0 > 0))


def draw_labels_in_parallel(rng, state: State) -> None:
    """Step 1 of appendix D."""
    every = np.arange(CHAINS)[:, None, None]
    variable = np.arange(VARIABLES)
    of_level = np.moveaxis(state.theta, 1, 3)[every, variable, state.x]
    rest = np.broadcast_to(state.rest[:, :, None, None] / LEVELS, (*state.z.shape, 1))
    state.z = choose(rng, np.concatenate([state.g[:, :, None] * of_level, rest], axis=3))
    while (waiting := np.flatnonzero((state.z == SLOTS).any(axis=(1, 2)))).size:
        slot = open_component(rng, state, waiting, None)
        state.theta[waiting, slot] = rng.dirichlet(np.ones(LEVELS), (waiting.size, VARIABLES))
        x = state.x[waiting]
        level = state.theta[waiting, slot][np.arange(waiting.size)[:, None, None], variable, x]
        new = state.g[waiting, :, slot][:, :, None] * level
        full = (state.g0[waiting] > 0).all(axis=1)
        stay = np.where(full[:, None, None], 0, state.rest[waiting][:, :, None] / LEVELS)
        moves = (state.z[waiting] == SLOTS) & (rng.random(new.shape) * (new + stay) < new)
        moves |= (state.z[waiting] == SLOTS) & full[:, None, None]
        state.z[waiting] = np.where(moves, slot[:, None, None], state.z[waiting])
    empty = counts_of(state.z).sum(axis=1) == 0
    give_back(state, empty & (state.g0 > 0))


def draw_tables(rng, state: State, printed: Printed) -> np.ndarray:
    """Step 2: (C, n, K) tables by record and component."""
    number = counts_of(state.z)
    alpha = state.alpha0[:, None] if printed.tables else state.alpha
    concentration = np.maximum(alpha[:, :, None] * state.g0[:, None], 1e-300)
    tables = np.zeros(number.shape, int)
    for t in range(VARIABLES):
        opens = rng.random(number.shape) < concentration / (concentration + t)
        tables += (number > t) & opens
    return tables


def draw_weights(rng, state: State, tables: np.ndarray) -> None:
    """Steps 3 and 4: g_0, and g_i given g_0."""
    by_component = tables.sum(axis=1)
    drawn = dirichlet(rng, np.column_stack([by_component, state.alpha0]))
    state.g0, state.rest0 = drawn[:, :-1], drawn[:, -1]
    number = counts_of(state.z)
    shape = state.alpha[:, :, None] * drawn[:, None]
    shape[:, :, :-1] += number
    drawn = dirichlet(rng, shape)
    state.g, state.rest = drawn[:, :, :-1], drawn[:, :, -1]


def draw_concentrations(rng, state: State, tables: np.ndarray, printed: Printed) -> None:
    """Step 6."""
    components = (tables.sum(axis=1) > 0).sum(axis=1) + printed.empty_counts
    state.alpha0 = escobar_west(rng, state.alpha0, components, tables.sum(axis=(1, 2)))
    state.alpha = escobar_west(rng, state.alpha, tables.sum(axis=2), np.full(1, VARIABLES))


def escobar_west(rng, alpha: np.ndarray, groups: np.ndarray, items: np.ndarray) -> np.ndarray:
    """Concentrations of processes with so many items in so many groups."""
    rate = RATE - np.log(rng.beta(alpha + 1, items))
    less = rng.random(alpha.shape) < items * rate / (groups + SHAPE - 1 + items * rate)
    return rng.gamma(SHAPE + groups - less) / rate


def draw_levels(rng, state: State) -> None:
    """Step 5: theta of the components in use."""
    member = state.z[..., None] == np.arange(SLOTS)
    level = state.x[..., None] == np.arange(LEVELS)
    number = np.einsum("cijk,cijl->ckjl", member, level, dtype=float)
    state.theta = dirichlet(rng, 1 + number)


def sweep(rng, state: State, printed: Printed) -> None:
    """All steps, and new data."""
    if printed.parallel:
        draw_labels_in_parallel(rng, state)
    else:
        draw_labels(rng, state, printed)
    tables = draw_tables(rng, state, printed)
    if printed.order:
        draw_weights(rng, state, tables)
        draw_concentrations(rng, state, tables, printed)
    else:
        draw_concentrations(rng, state, tables, printed)
        draw_weights(rng, state, tables)
    draw_levels(rng, state)
    state.x = draw_data(rng, state)


def statistics(state: State) -> np.ndarray:
    """(C, 4) components in use, alpha_0, and means of alpha_i and of log alpha_i."""
    used = (counts_of(state.z).sum(axis=1) > 0).sum(axis=1)
    means = state.alpha.mean(axis=1), np.log(state.alpha).mean(axis=1)
    return np.column_stack([used, state.alpha0, *means])


def main() -> None:
    """Run all rows and write the table."""
    names = ("components", "alpha_0", "alpha_i", "log alpha_i")
    prior = [statistics(draw_prior(np.random.default_rng((1, k)))) for k in range(8)]
    components = float(np.concatenate(prior)[:, 0].mean())
    rows = [dict(zip(("sampler", *names), ("prior", components, 2.0, 2.0, psi(2)), strict=True))]
    for number, (name, printed) in enumerate(ROWS.items()):
        rng = np.random.default_rng((2, number))
        state = draw_prior(rng)
        total, kept = np.zeros((CHAINS, len(names))), 0
        for t in range(SWEEPS):
            sweep(rng, state, printed)
            if t >= SWEEPS // 2:
                total, kept = total + statistics(state), kept + 1
        mean = total / kept
        error = mean.std(axis=0) / np.sqrt(CHAINS)
        found = [f"{m:.3f} +- {e:.3f}" for m, e in zip(mean.mean(axis=0), error, strict=True)]
        rows.append(dict(zip(("sampler", *names), (name, *found), strict=True)))
        print(rows[-1], flush=True)
    (HERE / "table.md").write_text(markdown(pd.DataFrame(rows), index=False) + "\n")


if __name__ == "__main__":
    main()
