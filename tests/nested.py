"""The nested model: exact answers on tiny households, chains, and faults planted in them."""

import contextlib
from functools import partial
from itertools import product
from typing import NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pandas as pd
import pytest
from harness import bands, draw_levels, draw_variable, prior_of

from bnp_models import Households
from bnp_models.kernels.nested import impossible
from bnp_models.kernels.nested.members import in_parts
from bnp_models.models.nested import ndpmpm, sweep

ROLES = ("head", "other", "guest")

# Groups of four ages, and larger ones, as a file has them and as a tree.
AGE_GROUPS = pd.DataFrame({"age": list("0123"), "group": list("abcc"), "larger": list("xxyy")})
AGE_TREE = [[1, 1], [2]]


def tiny_households(households, head=None, ages=2, roles=2) -> Households:
    """Households given as (home, [(role, age), ..]), labels in full; ages are 0, 1, .."""
    rows = [
        (i, home, role, age)
        for i, (home, members) in enumerate(households)
        for role, age in members
    ]
    frame = pd.DataFrame(rows, columns=["hid", "home", "role", "age"])
    labels = {"home": ("own", "rent"), "role": ROLES[:roles], "age": map(str, range(ages))}
    pairs = [(variable, label) for variable, own in labels.items() for label in own]
    levels = pd.DataFrame(pairs, columns=["variable", "level"])
    return Households.from_frame(frame, "hid", ["home"], levels=levels, head=head)


def all_households(data, members):
    """Codes of all households of one number of members: (B, q) and (B, members, p)."""
    household = data.household.num_levels[:-1]
    codes = np.array(list(product(*map(range, household + data.member.num_levels * members))))
    codes = codes.reshape(-1, len(household) + members * len(data.member.num_levels))
    q = len(household)
    return codes[:, :q], codes[:, q:].reshape(len(codes), members, len(data.member.num_levels))


def log_probabilities(xp, parameters, data, i):
    """Log probability, size included, of all households of the i-th size, before truncation.

    `parameters` are log_pi (.., F), log_omega (.., F, S), log_lambda (.., Q, F) and log_phi
    (.., R, F, S); the result is (.., B).
    """
    log_pi, log_omega, log_lambda, log_phi = parameters
    household, members = all_households(data, data.blocks[i][0])
    first_q = sweep.first_rows(data.household.num_levels)
    first_p = sweep.first_rows(data.member.num_levels)
    total = log_pi[..., None, :] + log_lambda[..., [first_q[-1] + i], :]
    for k in range(household.shape[1]):
        total = total + log_lambda[..., first_q[k] + household[:, k], :]
    for j in range(members.shape[1]):
        own = log_omega[..., None, :, :]
        for v in range(members.shape[2]):
            own = own + log_phi[..., first_p[v] + members[:, j, v], :, :]
        total = total + _logsumexp(xp, own)
    return _logsumexp(xp, total)


def _logsumexp(xp, x):
    top = xp.max(x, axis=-1, keepdims=True)
    return xp.log(xp.sum(xp.exp(x - top), axis=-1)) + top[..., 0]


def relative_ages(block, sign, applies, num_ages=3):
    """Member codes with the head's age taken off (-1) or put on (1), in a circle.

    `block` has household codes (.., home, head's age) and member codes (.., m, role and age);
    `applies` says for which roles this is done.
    """
    members = block.member_codes.copy()
    head = block.household_codes[..., None, 1]
    moved = (members[..., 1] + sign * head) % num_ages
    members[..., 1] = np.where(np.array(applies)[members[..., 0]], moved, members[..., 1])
    return members


class Block(NamedTuple):
    """What `relative_ages` takes."""

    household_codes: np.ndarray
    member_codes: np.ndarray


def possible_households(data, i):
    """Whether each household of the i-th size is possible, by asking the rules one by one."""
    household, members = all_households(data, data.blocks[i][0])
    possible = data.possible
    if possible is None:
        return np.ones(len(household), bool)
    if data.relative is not None:
        applies = data.relative.pairs[0].applies
        members, possible = relative_ages(Block(household, members), 1, applies), possible.rules
    return np.array([
        bool(possible.on_numpy(h[None], m[None])[0])
        for h, m in zip(household, members, strict=True)
    ])  # fmt: skip


def statistics(xp, parameters, data, i):
    """log P(possible | size) and the shares of two possible households, of the i-th size."""
    log_p = log_probabilities(xp, parameters, data, i)
    keep = possible_households(data, i)
    log_all, log_possible = _logsumexp(xp, log_p), _logsumexp(xp, log_p[..., keep])
    ends = np.flatnonzero(keep)[[0, -1]]
    shares = xp.exp(log_p[..., ends] - log_possible[..., None])
    return xp.concatenate([(log_possible - log_all)[..., None], shares], axis=-1)


def prior_parameters(model, data, size, seed):
    """Draws from the prior by NumPy: alpha, beta (its first), log c, and logs of the parameters.

    log c is that of the first household and of the last member variable.
    """
    rng = np.random.default_rng(seed)
    F, S = model.components, model.member_components
    layers = data.member_levels.layers

    def sticks(concentration, number):
        v = rng.beta(1, np.repeat(concentration[..., None], number, axis=-1))
        v[..., -1] = 1
        rest = np.cumprod(1 - v[..., :-1], axis=-1)
        return v * np.concatenate([np.ones((*v.shape[:-1], 1)), rest], axis=-1)

    def levels(num_levels, number, head=None, uniform=None, ordered=()):
        log_c, found = [], []
        for j, levels in enumerate(num_levels):
            prior = prior_of(model)
            told = head is not None and j == head.variable and prior == "learned"
            if j == uniform and prior == "learned":
                prior = "uniform"
            # The head, the first level, is one of two kinds, whose shares are uniform.
            tree = AGE_TREE if len(layers) > 1 else bands(levels)
            drawn, log_own = draw_variable(
                rng, prior, size, tree if j in ordered else levels - told, number
            )
            log_c.append(log_own)
            if told:
                share = draw_levels(rng, np.ones((size, 2)), number)
                drawn = np.concatenate([share[:, :1], share[:, 1:] * drawn], axis=1)
            found.append(drawn)
        return log_c, np.concatenate(found, axis=1)

    alpha = rng.gamma(model.a, 1 / model.b, size)
    num_betas = F if model.beta == "class" else 1
    beta = rng.gamma(model.a_beta, 1 / model.b_beta, (size, num_betas))
    if model.alpha is not None:
        alpha = np.full_like(alpha, model.alpha)
    if model.fixed_beta is not None:
        beta = np.full((size, 1), model.fixed_beta)
    # Under rules the sizes, the last variable, keep the uniform prior.
    size_at = None if data.possible is None else len(data.household.num_levels) - 1
    household, of_household = levels(data.household.num_levels, (F,), uniform=size_at)
    # The last variable of members is their age.
    ordered = (len(data.member.num_levels) - 1,) if layers else ()
    shared = model.member_classes == "shared"
    each = (1 if shared else F, S)
    member, of_member = levels(data.member.num_levels, each, data.head, ordered=ordered)
    if shared:
        shape = np.full((size, S), 1 / S)
        if model.fixed_beta is None:
            beta, shape = S * rng.gamma(1, 1, (size, 1)), rng.dirichlet(np.ones(S), size)
        of_classes = np.moveaxis(draw_levels(rng, beta * shape, (F,)), 1, 2)
    else:
        of_classes = sticks(np.broadcast_to(beta, (size, F)), S)
    parameters = sticks(alpha, F), of_classes, of_household, of_member
    logs = tuple(np.log(np.maximum(x, 1e-300)) for x in parameters)
    return alpha, beta[:, 0], np.stack([household[0], member[-1]], axis=1), logs


def observed_households(model, table, data):
    """Places of the sample's households of each size in `all_households`."""
    observed = []
    for i, block in enumerate(table.size_blocks):
        household, members = all_households(data, data.blocks[i][0])
        cells = {h.tobytes() + m.tobytes(): b for b, (h, m) in
                 enumerate(zip(household, members, strict=True))}  # fmt: skip
        members = block.member_codes
        if model.relative:
            members = relative_ages(block, -1, data.relative.pairs[0].applies)
        observed.append([
            cells[h.astype(int).tobytes() + m.astype(int).tobytes()]
            for h, m in zip(block.household_codes, members, strict=True)
        ])  # fmt: skip
    return observed


def exact_means(model, table, data, num_draws=100_000, seed=0):
    """Posterior means of log alpha, log beta, log c and `statistics` of every size, and errors.

    By weighting draws from the prior with the likelihood, summed over classes in full.
    """
    observed = observed_households(model, table, data)
    likelihood, values = [], []
    for step in range(num_draws // 50_000):
        alpha, beta, log_c, parameters = prior_parameters(model, data, 50_000, (seed, step))
        if model.sizes == "given":
            parameters[2][:, data.household.size_rows] = 0
        log_like, possible, found = 0.0, [], [np.log(alpha), np.log(beta), *log_c.T]
        for i, cells in enumerate(observed):
            log_p = log_probabilities(np, parameters, data, i)
            possible.append(_logsumexp(np, log_p[:, possible_households(data, i)]))
            log_like = log_like + log_p[:, cells].sum(axis=1)
            found += list(statistics(np, parameters, data, i).T)
        # The prior has a power of P(possible).
        truncated = data.num_households - model.prior_possible
        if model.sizes == "given":
            # Of each household over its own size: weights of the sizes cancel.
            share = np.array([number for _, number in data.blocks]) / data.num_households
            log_feasible = np.stack(possible, axis=1) @ (truncated * share)
        else:
            log_feasible = truncated * _logsumexp(np, np.stack(possible, axis=1))
        likelihood.append(np.exp(log_like - log_feasible))
        values.append(np.column_stack(found))
    likelihood, values = np.concatenate(likelihood), np.concatenate(values)
    top = likelihood[:, None] * values
    mean = top.mean(axis=0) / likelihood.mean()
    residual = top - mean * likelihood[:, None]
    return mean, residual.std(axis=0) / likelihood.mean() / np.sqrt(len(likelihood))


def _parameters(state):
    return state.log_pi, state.log_omega, state.log_lambda, state.log_phi


def moments(state, data):
    found = [statistics(jnp, _parameters(state), data, i) for i in range(len(data.blocks))]
    beta = state.beta[0] if state.beta.ndim else state.beta
    # Of the last variable of members, or of its bands or largest groups.
    layers = data.member_levels.layers
    number = layers[-1].number if layers else data.member.num_levels[-1]
    c = (
        jnp.sum(state.household_shape[: data.household.num_levels[0]]),
        jnp.sum(state.member_shape[-number:]),
    )
    return jnp.concatenate([jnp.log(jnp.stack([state.alpha, beta, *c])), *found])


# Faults: each is a wrong version of one step, chosen by a switch when the compiled sweep runs.


def _forget_augmented(field):
    def fault(wrong):
        right = ndpmpm.augment

        def augment(model, key, state, data):
            found, *rest = right(model, key, state, data)
            return found._replace(**{field: jnp.where(wrong, 0, getattr(found, field))}), *rest

        return ndpmpm, "augment", augment

    return fault


def _forget_other_heads(wrong):
    right = sweep.add_other_heads

    def add_other_heads(key, augmented, *args):
        found, number = right(key, augmented, *args)
        return jax.tree.map(lambda a, b: jnp.where(wrong, a, b), augmented, found), number

    return sweep, "add_other_heads", add_other_heads


def _size_by_size(wrong):
    # As printed: each size by itself, until the sample's number of that size.
    def augment(model, key, state, data, right=ndpmpm.augment):
        found, *rest = right(model, key, state, data)
        sizes, wanted = zip(*data.blocks, strict=True)
        tables = sweep.tables_of(
            state.log_pi, state.log_omega, state.log_lambda, state.log_phi, data.household,
            data.member, None,
        )  # fmt: skip
        log_size = state.log_lambda[data.household.size_rows]
        one = np.eye(len(sizes), dtype=bool)
        shape = (model.components, model.member_components)
        printed = sweep.Augmented.none(shape, data.household, data.member)
        for i, number in enumerate(wanted):
            printed, _, _ = sweep.add_simulated(
                jax.random.fold_in(key, i), printed, tables,
                jnp.where(one[i][:, None], log_size, -jnp.inf),
                sweep.SampleSizes(sizes, tuple(number * one[i])),
                sweep.judge_by_predicate(data.possible, sizes, wanted),
                sweep.DrawnVariables(data.household, data.member, False),
            )  # fmt: skip
        return jax.tree.map(lambda a, b: jnp.where(wrong, a, b), printed, found), *rest

    return ndpmpm, "augment", augment


def _invert_reorder(wrong):
    right = sweep.reorder_classes

    def reorder_classes(key, log_pi, alpha):
        return right(key, log_pi, jnp.where(wrong, 2 - alpha, alpha))

    return sweep, "reorder_classes", reorder_classes


def _prior_of_ones(wrong):
    # Level probabilities drawn with another prior.
    right = sweep.draw_level_probabilities

    def draw_level_probabilities(key, shapes, *args):
        ones = jax.tree.map(lambda x: jnp.where(wrong, 1, x), shapes)
        return right(key, ones, *args)

    return sweep, "draw_level_probabilities", draw_level_probabilities


def _count_levels_of_kinds(wrong):
    # Dir(1) of all levels of the variable that tells heads: its kinds have as many as they have.
    right = sweep._kind_shapes

    def _kind_shapes(levels, unread, data):
        kinds = jnp.array([data.head.levels.count(False), data.head.levels.count(True)])
        return right(levels, unread, data) + jnp.where(wrong, kinds - 1, 0)[:, None]

    return sweep, "_kind_shapes", _kind_shapes


def _threefold(wrong):
    right = sweep.update_shape

    def update_shape(prior, key, counts, levels):
        return right(prior, key, jnp.where(wrong, 3 * counts, counts), levels)

    return sweep, "update_shape", update_shape


def _first_household_class(wrong):
    # Levels of shared member classes from one class of households only.
    def by_member_class(model, counts, right=ndpmpm.by_member_class):
        found, first = right(model, counts), counts.member_levels[:, :1]
        return found._replace(member_levels=jnp.where(wrong, first, found.member_levels))

    return ndpmpm, "by_member_class", by_member_class


def _shape_of_tenfold_members(wrong):
    right = ndpmpm.update_member_class_shapes

    def update_member_class_shapes(model, key, shape, counts):
        members = jnp.where(wrong, 10 * counts.members, counts.members)
        return right(model, key, shape, counts._replace(members=members))

    return ndpmpm, "update_member_class_shapes", update_member_class_shapes


def _judge_codes(wrong):
    # Codes taken for the levels that they stand for.
    def judge_of(data, right=sweep.judge_of):
        rules = data.possible.rules
        other = sweep.judge_by_predicate(rules, *zip(*data.blocks, strict=True))

        def judge(new, key):
            return jnp.where(wrong, other(new, key), right(data)(new, key))

        return judge

    return sweep, "judge_of", judge_of


FAULTS = {
    "prior of ones": _prior_of_ones,
    "levels' prior from threefold members": _threefold,
    "codes not decoded": _judge_codes,
    "no levels of impossible members": _forget_augmented("member_levels"),
    "nobody known by kind": _forget_augmented("unread"),
    "no other heads": _forget_other_heads,
    "kinds of as many as their levels": _count_levels_of_kinds,
    "size by size": _size_by_size,
    "reorder inverted": _invert_reorder,
    "levels from one household class": _first_household_class,
    "shapes of weights from tenfold members": _shape_of_tenfold_members,
}


def switched(names, on=None):
    """Switches of these faults, one of them on at most."""
    return {name: jnp.asarray(name == on) for name in names}


@contextlib.contextmanager
def planted(switches):
    """The sweep with these faults, while it is traced."""
    with pytest.MonkeyPatch.context() as patch:
        if switches:
            # Wrong chains may run off to where next to nothing is possible.
            patch.setattr(impossible, "MAX_SIMULATED", 2**12)
        for name, wrong in switches.items():
            patch.setattr(*FAULTS[name](wrong))
        yield


@partial(jax.jit, static_argnames=("num_chains",))
def posterior_chains(model, key, data, switches, num_sweeps, burn, num_chains=128):
    """Per-chain means of what `exact_means` returns."""

    def one(key):
        key_init, key_sweeps = jax.random.split(key)

        def body(t, carry):
            state, sums = carry
            with planted(switches):
                state, _ = model.sweep(jax.random.fold_in(key_sweeps, t), state, data, t)
            return state, sums + jnp.where(t >= burn, moments(state, data), 0)

        state = model.init(key_init, data, model.capacity, jnp.asarray(model.components))
        carry = (state, jnp.zeros_like(moments(state, data)))
        return jax.lax.fori_loop(0, num_sweeps, body, carry)[1] / (num_sweeps - burn)

    return jax.vmap(one)(jax.random.split(key, num_chains))


def draw_households(key, state, data):
    """Possible households given the parameters, classes summed out: codes (N, q), (N, m, p).

    All have the first number of members.
    """
    members, number = data.blocks[0]
    household, person = all_households(data, members)
    keep = possible_households(data, 0)
    log_p = log_probabilities(jnp, _parameters(state), data, 0)[keep]
    chosen = jax.random.categorical(key, log_p, shape=(number,))
    return jnp.asarray(household[keep])[chosen], jnp.asarray(person[keep])[chosen]


def with_households(data, household, person):
    """The data of other households of the same sizes."""
    number, members, _ = person.shape
    _, of_households, of_members = in_parts(data.blocks, data.parts)
    first = jnp.asarray(sweep.first_rows(data.household.num_levels))[:, None]
    codes = jnp.concatenate([household.T, jnp.zeros((1, number), int)])
    persons = person.reshape(number * members, -1).T
    return eqx.tree_at(
        lambda d: (d.household_rows, d.member_codes),
        data,
        (
            (codes + first).astype(jnp.int32)[:, of_households.unit],
            persons.astype(jnp.int32)[:, of_members.unit],
        ),
    )


def _from_prior(model, key, data, num_tries=64):
    """A state from the prior; of several, chosen by their powers of P(possible), if it has one."""
    power = model.prior_possible
    if not power:
        return sweep.draw_prior(model, key, data)
    key, key_choice = jax.random.split(key)
    draw = partial(sweep.draw_prior, model, data=data)
    states = jax.vmap(lambda key: draw(key))(jax.random.split(key, num_tries))
    log_possible = jax.vmap(lambda state: statistics(jnp, _parameters(state), data, 0)[0])(states)
    chosen = jax.random.categorical(key_choice, power * log_possible)
    return jax.tree.map(lambda x: x[chosen], states)


@partial(jax.jit, static_argnames=("num_chains",))
def joint_chains(model, key, data, switches, num_sweeps, num_chains=128):
    """Per-chain means of the same under chains that alternate data and sweeps.

    Data of one size: every chain starts from the prior, and alternates possible households drawn
    given the parameters, classes summed out, with a sweep given them (Geweke 2004,
    doi:10.1198/016214504000001132). The parameters' marginal is their prior.
    """

    def one(key):
        key_prior, key_steps = jax.random.split(key)

        def body(t, carry):
            state, sums = carry
            key_x, key_sweep = jax.random.split(jax.random.fold_in(key_steps, t))
            new = with_households(data, *draw_households(key_x, state, data))
            with planted(switches):
                state, _ = model.sweep(key_sweep, state, new, t)
            return state, sums + moments(state, data)

        state = _from_prior(model, key_prior, data)
        carry = (state, jnp.zeros_like(moments(state, data)))
        return jax.lax.fori_loop(0, num_sweeps, body, carry)[1] / num_sweeps

    return jax.vmap(one)(jax.random.split(key, num_chains))


def prior_means(model, data, num_draws=100_000, seed=1):
    """Means of what `joint_chains` returns under the prior, and their errors."""
    alpha, beta, log_c, parameters = prior_parameters(model, data, num_draws, seed)
    shares = statistics(np, parameters, data, 0)
    values = np.column_stack([np.log(alpha), np.log(beta), log_c, shares])
    weight = np.exp(model.prior_possible * shares[:, 0])
    mean = weight @ values / weight.sum()
    residual = weight[:, None] * (values - mean)
    return mean, residual.std(axis=0) / weight.mean() / np.sqrt(num_draws)
