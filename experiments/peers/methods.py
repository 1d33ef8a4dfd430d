"""Ways of making synthetic files of a sample: ours and others'. Others are imported late."""

import itertools
import math

import jax
import numpy as np

import bnp_models as bnp


def fresh(table, zeros, seed, files, population):
    """Other samples of the population: what no method that sees one sample can beat."""
    rng = np.random.default_rng([seed, 1])
    rows = [rng.choice(population.n, table.n, replace=False) for _ in range(files)]
    return [population.codes[chosen] for chosen in rows]


def margins(table, zeros, seed, files, population):
    """Each variable drawn by itself."""
    rng = np.random.default_rng([seed, 2])
    drawn = [rng.integers(table.n, size=table.codes.shape) for _ in range(files)]
    return [np.take_along_axis(table.codes, rows, axis=0) for rows in drawn]


def trees(table, zeros, seed, files, population):
    """Sequential classification trees as synthpop's default grows them.

    Each variable is drawn from the leaf that the variables before it lead to; leaves hold at least
    five records, splits gain at least 1e-8 of the impurity (rpart's minbucket and cp). Categories
    are ordered by number for the splits, which is what scikit-learn can do.
    """
    from sklearn.tree import DecisionTreeClassifier

    rng = np.random.default_rng([seed, 3])
    made = [np.empty_like(table.codes) for _ in range(files)]
    for file in made:
        file[:, 0] = table.codes[rng.integers(table.n, size=table.n), 0]
    one_hot = [np.eye(levels, dtype=np.float32) for levels in table.schema.num_levels]

    def predictors(codes, j):
        return np.concatenate([one_hot[i][codes[:, i]] for i in range(j)], axis=1)

    for j in range(1, table.num_variables):
        tree = DecisionTreeClassifier(
            min_samples_leaf=5, min_impurity_decrease=1e-8, random_state=seed
        )
        tree.fit(predictors(table.codes, j), table.codes[:, j])
        for file in made:
            p = tree.predict_proba(predictors(file, j)).cumsum(axis=1)
            u = rng.random((table.n, 1)) * p[:, -1:]
            file[:, j] = tree.classes_[(u >= p[:, :-1]).sum(axis=1)]
    return made


def mbi(table, zeros, seed, files, population):
    """Private-PGM without noise: all pairs of variables, structural zeros as constraints."""
    jax.config.update("jax_enable_compilation_cache", False)
    from mbi import Constraint, Domain, LinearMeasurement, estimation

    names, levels = table.schema.variables, table.schema.num_levels
    domain = Domain(names, levels)
    measured = []
    for pair in itertools.combinations(range(len(names)), 2):
        shape = tuple(levels[j] for j in pair)
        cells = np.ravel_multi_index(table.codes[:, pair].T, shape)
        counts = np.bincount(cells, minlength=math.prod(shape)).astype(float)
        measured.append(LinearMeasurement(counts, tuple(names[j] for j in pair)))
    constraints = []
    if zeros is not None:
        for row in zeros.conditions:
            used = np.flatnonzero(row >= 0)
            constraints.append(
                Constraint(domain.project([names[j] for j in used]), invalid=row[None, used])
            )
    model = estimation.MirrorDescent().estimate(
        domain, measured, known_total=float(table.n), constraints=constraints, iters=1000
    )
    made = []
    for m in range(files):
        np.random.seed(1000 * seed + m)
        frame = model.synthetic_data(table.n).to_dict()
        made.append(np.stack([np.asarray(frame[name]) for name in names], axis=1))
    return made


def lace(table, zeros, seed, files, population):
    """CrossCat: eight states, 500 sweeps, records simulated from all states."""
    from lace import CategoricalHyper, CategoricalPrior, Codebook, ColumnMetadata, Engine, ValueMap

    raise NotImplementedError


def _chains(model, table, zeros, seed, sweeps, thin):
    conditions = zeros if model.conditions_type is not None else None
    return bnp.sample(
        model, table, key=jax.random.key(seed), conditions=conditions, num_chains=2,
        num_warmup=sweeps, num_samples=250, thin=thin,
    )  # fmt: skip
