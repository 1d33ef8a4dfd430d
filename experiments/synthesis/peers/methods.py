"""Ways of making synthetic files of a sample: ours, others', and what to measure them by.

Each takes the sample, its structural zeros, the population and a seed, and returns level codes of
the files. Others' libraries are imported late.
"""

import itertools
import math
import time

import jax
import numpy as np

import bnp_models as bnp
from bnp_models.synthesis.synthesize import METHODS

FILES = 5

# Sweeps of each of two chains, the first half of them warm-up, and those between kept draws.
SWEEPS, THIN = 2000, 4

MODELS = {
    "tnplcm": bnp.TNPLCM(components=100),
    "nplcm": bnp.NPLCM(components=100),
    "hdp": bnp.HDPMixedMembership(),
}


def fresh(table, zeros, population, seed):
    """Other samples of the population: what no method that sees one sample can know."""
    rng = np.random.default_rng([seed, 1])
    rows = (rng.choice(population.n, table.n, replace=False) for _ in range(FILES))
    return [population.codes[chosen] for chosen in rows]


def margins(table, zeros, population, seed):
    """Each variable drawn by itself."""
    rng = np.random.default_rng([seed, 2])
    rows = (rng.integers(table.n, size=table.codes.shape) for _ in range(FILES))
    return [np.take_along_axis(table.codes, chosen, axis=0) for chosen in rows]


def one_by_one(table, seed, grow):
    """Variable by variable given those before it, in the order of the table.

    The first is drawn from its margin. `grow` fits a variable: it takes indicators of the levels of
    those before it, the variable's codes and their number, and returns a function of other
    indicators whose rows are proportional to the probabilities of the codes.
    """
    rng = np.random.default_rng([seed, 3])
    made = [np.empty_like(table.codes) for _ in range(FILES)]
    for file in made:
        file[:, 0] = table.codes[rng.integers(table.n, size=table.n), 0]
    num_levels = table.schema.num_levels

    def indicators(codes, number):
        levels = num_levels[:number]
        return np.concatenate([np.eye(size)[codes[:, j]] for j, size in enumerate(levels)], axis=1)

    for j in range(1, table.num_variables):
        weigh = grow(indicators(table.codes, j), table.codes[:, j], num_levels[j])
        weights = weigh(indicators(np.concatenate(made), j)).reshape(FILES, table.n, -1)
        for file, below in zip(made, weights.cumsum(axis=2), strict=True):
            u = rng.random((table.n, 1)) * below[:, -1:]
            file[:, j] = (u >= below[:, :-1]).sum(axis=1)
    return made


def trees(table, zeros, population, seed):
    """Sequential classification trees as synthpop's default grows them.

    Each variable is drawn from the leaf that the variables before it lead to; leaves hold five
    records or more, splits gain 1e-8 of the impurity or more.
    """
    from sklearn.tree import DecisionTreeClassifier

    def grow(x, y, size):
        tree = DecisionTreeClassifier(
            min_samples_leaf=5, min_impurity_decrease=1e-8, random_state=seed
        ).fit(x, y)
        return lambda other: tree.predict_proba(other) @ np.eye(size)[tree.classes_]

    return one_by_one(table, seed, grow)


def stopped_trees(table, zeros, population, seed):
    """The same as Manrique-Vallier & Hu (2018, section 3.1) grow them: they stop much sooner.

    A node is split if its deviance is 0.01 of the root's or more, and into nodes of five or more.
    """
    from sklearn.tree import DecisionTreeClassifier

    def grow(x, y, size):
        tree = DecisionTreeClassifier(
            criterion="entropy", min_samples_leaf=5, min_samples_split=10, random_state=seed
        ).fit(x, y)
        inner = tree.tree_
        deviance = inner.impurity * inner.weighted_n_node_samples
        stops = deviance < 0.01 * deviance[0]
        # A node without children is a leaf. Those below it are never reached.
        inner.children_left[stops] = inner.children_right[stops] = -1
        return lambda other: tree.predict_proba(other) @ np.eye(size)[tree.classes_]

    return one_by_one(table, seed, grow)


def forests(table, zeros, population, seed):
    """Sequential random forests as synthpop's `syn.rf` grows them.

    Each value is that of a record drawn from the leaves of all ten trees together.
    """
    from sklearn.ensemble import RandomForestClassifier

    def grow(x, y, size):
        forest = RandomForestClassifier(10, random_state=seed).fit(x, y)
        leaves = forest.apply(x)
        counts = np.zeros((leaves.shape[1], leaves.max() + 1, size))
        every = np.arange(leaves.shape[1])
        np.add.at(counts, (every, leaves, y[:, None]), 1)
        return lambda other: counts[every, forest.apply(other)].sum(axis=1)

    return one_by_one(table, seed, grow)


def voting_forests(table, zeros, population, seed):
    """Sequential random forests of Caiola & Reiter (2010), whose trees vote for one value each.

    They have 50 trees in place of the 500 of that paper, which vote alike on average.
    """
    from sklearn.ensemble import RandomForestClassifier

    def grow(x, y, size):
        forest = RandomForestClassifier(50, random_state=seed).fit(x, y)

        def votes(other):
            given = np.stack([tree.predict(other).astype(int) for tree in forest.estimators_])
            return np.eye(size)[forest.classes_[given]].sum(axis=0)

        return votes

    return one_by_one(table, seed, grow)


def mbi(table, zeros, population, seed, rounded=True):
    """Private-PGM without noise: all pairs of variables, structural zeros as its constraints.

    Records are rounded (its default) or drawn from the model.
    """
    jax.config.update("jax_enable_compilation_cache", False)
    from mbi import Constraint, Domain, LinearMeasurement, estimation

    names, levels = table.schema.variables, table.schema.num_levels
    domain = Domain(names, levels)
    measured = []
    for pair in itertools.combinations(range(len(names)), 2):
        shape = tuple(levels[j] for j in pair)
        cells = np.ravel_multi_index(tuple(table.codes[:, pair].T), shape)
        counts = np.bincount(cells, minlength=math.prod(shape)).astype(float)
        measured.append(LinearMeasurement(counts, tuple(names[j] for j in pair)))
    constraints = []
    for row in zeros.conditions:
        used = np.flatnonzero(row >= 0)
        part = domain.project([names[j] for j in used])
        constraints.append(Constraint(part, invalid=row[None, used]))
    model = estimation.MirrorDescent().estimate(
        domain, measured, known_total=float(table.n), constraints=constraints
    )
    made = []
    for m in range(FILES):
        np.random.seed(1000 * seed + m)
        method = "round" if rounded else "sample"
        frame = model.synthetic_data(table.n, method=method).to_dict()
        made.append(np.stack([np.asarray(frame[name]) for name in names], axis=1))
    return made


def mbi_drawn(table, zeros, population, seed):
    """The same with records drawn from the model."""
    return mbi(table, zeros, population, seed, rounded=False)


def lace(table, zeros, population, seed):
    """CrossCat: 8 states, 2,000 sweeps, records simulated from the mean of the states."""
    from lace import Engine

    frame = table.to_frame()
    frame.index = [str(i) for i in range(len(frame))]
    frame.index.name = "ID"
    engine = Engine.from_df(frame, n_states=8, rng_seed=seed)
    engine.update(2000)
    made = []
    for _ in range(FILES):
        drawn = engine.simulate(list(frame.columns), n=table.n).to_pandas()
        made.append(bnp.Microdata.from_frame(drawn, levels=table.schema).codes)
    return made


def ours(name, table, zeros, population, seed):
    """Files of one of our models, by every method of `bnp.synthesize`, with their seconds."""
    model, began = MODELS[name], time.perf_counter()
    run = bnp.sample(
        model, table, key=jax.random.key(seed), num_chains=2, num_warmup=SWEEPS // 2,
        conditions=zeros if model.conditions_type is not None else None,
        num_samples=SWEEPS // 2 // THIN, thin=THIN,
    )  # fmt: skip
    chains, made = time.perf_counter() - began, {}
    for method in METHODS:
        began = time.perf_counter()
        frames = bnp.synthesize(run, FILES, method=method)
        codes = [bnp.Microdata.from_frame(frame, levels=table.schema).codes for frame in frames]
        made[f"{name}, {method}"] = codes, chains + time.perf_counter() - began
    return made


PEERS = {
    "fresh samples": fresh, "independent margins": margins, "sequential trees": trees,
    "trees that stop sooner": stopped_trees, "random forests": forests,
    "random forests, votes": voting_forests, "mbi, rounded": mbi, "mbi, drawn": mbi_drawn,
    "lace": lace,
}  # fmt: skip


def make(name, *case):
    """Files of a method, or of all ways of a model, with their seconds."""
    if name in MODELS:
        return ours(name, *case)
    began = time.perf_counter()
    codes = PEERS[name](*case)
    return {name: (codes, time.perf_counter() - began)}
