"""The quantities of tables 2 and 4 of Hu, Reiter & Wang (2018), and those of figures 1 and 2."""

import itertools

import numpy as np
import pandas as pd

# Intervals as printed: population value, original, and synthetic by model.
PRINTED_ADULTS = {
    "all of one race, 2 persons": (".928", "(.923, .933)", "(.847, .868)", "(.648, .676)"),
    "all of one race, 3 persons": (".906", "(.889, .901)", "(.803, .845)", "(.349, .407)"),
    "all of one race, 4 persons": (".885", "(.896, .908)", "(.730, .817)", "(.183, .277)"),
    "all white and rent": (".123", "(.115, .128)", "(.110, .126)", "(.052, .062)"),
    "all white and insured": (".632", "(.622, .641)", "(.582, .603)", "(.502, .523)"),
    "all married and working": (".185", "(.177, .192)", "(.171, .188)", "(.153, .168)"),
    "all with a college degree": (".091", "(.086, .097)", "(.071, .082)", "(.067, .077)"),
    "all insured": (".807", "(.800, .815)", "(.764, .782)", "(.760, .777)"),
    "all speak English": (".974", "(.969, .976)", "(.959, .967)", "(.963, .970)"),
    "two workers": (".291", "(.282, .300)", "(.289, .309)", "(.287, .308)"),
}
PRINTED_50000 = {
    "all of one race, 3 persons": ("(.901, .906)", "(.870, .887)"),
    "all of one race, 4 persons": ("(.889, .895)", "(.826, .858)"),
}
"""Original and synthetic intervals of the paper for 50,000 households of adults."""
PRINTED_FAMILIES = {
    "all of one race, 2 persons":
        (".906", "(.900, .911)", "(.858, .877)", "(.824, .845)", "(.811, .840)"),
    "all of one race, 3 persons":
        (".869", "(.871, .884)", "(.776, .811)", "(.701, .744)", "(.682, .723)"),
    "all of one race, 4 persons":
        (".866", "(.863, .876)", "(.756, .800)", "(.622, .667)", "(.614, .667)"),
    "spouse present": (".667", "(.668, .686)", "(.630, .658)", "(.438, .459)", "(.398, .422)"),
    "spouse and white head":
        (".520", "(.520, .540)", "(.484, .510)", "(.339, .359)", "(.330, .356)"),
    "spouse and black head":
        (".029", "(.024, .031)", "(.022, .029)", "(.023, .030)", "(.018, .025)"),
    "white couple": (".489", "(.489, .509)", "(.458, .483)", "(.261, .279)", "(.306, .333)"),
    "white couple that owns":
        (".404", "(.401, .421)", "(.370, .392)", "(.209, .228)", "(.240, .266)"),
    "couple of one race": (".604", "(.603, .622)", "(.556, .582)", "(.290, .309)", "(.337, .361)"),
    "white and other couple":
        (".053", "(.049, .057)", "(.048, .058)", "(.031, .039)", "(.039, .048)"),
    "couple not white that owns":
        (".085", "(.079, .090)", "(.068, .079)", "(.025, .033)", "(.024, .031)"),
    "only mother with children":
        (".143", "(.128, .142)", "(.103, .119)", "(.113, .126)", "(.201, .219)"),
    "only one parent with children":
        (".186", "(.172, .187)", "(.208, .228)", "(.230, .247)", "(.412, .435)"),
    "at least one child": (".481", "(.473, .492)", "(.471, .492)", "(.472, .492)", "(.566, .587)"),
    "at least one parent":
        (".033", "(.029, .036)", "(.038, .046)", "(.035, .043)", "(.011, .016)"),
    "at least one sibling":
        (".029", "(.022, .028)", "(.032, .041)", "(.027, .034)", "(.029, .039)"),
    "at least one grandchild":
        (".035", "(.028, .035)", "(.032, .041)", "(.035, .043)", "(.024, .031)"),
    "three generations": (".043", "(.036, .043)", "(.042, .051)", "(.051, .060)", "(.028, .035)"),
}  # fmt: skip


def of_adults(frame: pd.DataFrame) -> pd.DataFrame:
    """Estimates of table 2 and their variances, from persons in the order of their households.

    Returns
    -------
    frame
        Columns "q" and "u", by quantity.
    """
    home = _Homes(frame)
    white, works = frame["race"] == "white", frame["employment"] == "employed"
    insured, married = frame["insurance"] == "yes", frame["marital"] == "married, spouse present"
    rows = home.one_race()
    rows["all white and rent"] = home.all(white & (frame["tenure"] == "rented"))
    rows["all white and insured"] = home.all(white & insured)
    rows["all married and working"] = home.all(married & works)
    rows["all with a college degree"] = home.all(frame["education"].isin(["bachelor", "beyond"]))
    rows["all insured"] = home.all(insured)
    rows["all speak English"] = home.all(frame["english"] == "yes")
    rows["two workers"] = home.number(works) == 2
    return _shares(rows)


def of_families(frame: pd.DataFrame) -> pd.DataFrame:
    """Estimates of table 4 and their variances, as `of_adults`."""
    home = _Homes(frame)
    relate, race = frame["relate"].astype(str), frame["race"]
    head, spouse, white = relate == "head", relate == "spouse", race == "white"
    has = {name: home.number(relate == name) > 0 for name in relate.unique()}
    none = np.zeros(home.size.size, bool)
    couple = has["spouse"] & (home.number(head) > 0)
    white_head, white_spouse = home.number(head & white) > 0, home.number(spouse & white) > 0
    owns = home.number(frame["tenure"] == "owned") > 0
    same = couple & (home.race_of(head) == home.race_of(spouse))
    child, parent = has["child"], has.get("parent", none) | has.get("parent-in-law", none)
    grandchild = has.get("grandchild", none)
    alone = child & ~has["spouse"]
    woman = home.number(head & (frame["sex"] == "female")) > 0
    rows = home.one_race() | {
        "spouse present": has["spouse"],
        "spouse and white head": has["spouse"] & white_head,
        "spouse and black head": has["spouse"] & (home.number(head & (race == "black")) > 0),
        "white couple": couple & white_head & white_spouse,
        "white couple that owns": couple & white_head & white_spouse & owns,
        "couple of one race": same,
        "white and other couple": couple & (white_head ^ white_spouse),
        "couple not white that owns": couple & ~white_head & ~white_spouse & owns,
        "only mother with children": alone & woman,
        "only one parent with children": alone,
        "at least one child": child,
        "at least one parent": parent,
        "at least one sibling": has.get("sibling", none),
        "at least one grandchild": grandchild,
        "three generations": (parent & child) | (child & grandchild),
    }
    return _shares(rows)


class _Homes:
    """Sums over the members of each household, which are in consecutive rows."""

    def __init__(self, frame):
        first = frame["household"].to_numpy()
        self.starts = np.flatnonzero(np.r_[True, first[1:] != first[:-1]])
        self.size = np.diff(np.r_[self.starts, len(frame)])
        race = frame["race"].astype(str)
        self.race = np.unique(race, return_inverse=True)[1]

    def number(self, mask):
        return np.add.reduceat(np.asarray(mask, int), self.starts)

    def all(self, mask):
        return self.number(mask) == self.size

    def race_of(self, mask):
        """Code of the race of the chosen member, -1 if there is none."""
        return np.maximum.reduceat(np.where(mask, self.race, -1), self.starts)

    def one_race(self):
        of_race = np.maximum.reduceat(self.race, self.starts)
        same = of_race == np.minimum.reduceat(self.race, self.starts)
        return {f"all of one race, {n} persons": same[self.size == n] for n in (2, 3, 4)}


def _shares(rows):
    q = {name: mask.mean() for name, mask in rows.items()}
    u = {name: q[name] * (1 - q[name]) / mask.size for name, mask in rows.items()}
    return pd.DataFrame({"q": q, "u": u})


def proportions(codes: np.ndarray, num_levels: tuple[int, ...], ways: int) -> np.ndarray:
    """Shares of all cells of all tables of so many variables, from codes (persons, J)."""
    shares = []
    for columns in itertools.combinations(range(len(num_levels)), ways):
        cell = np.zeros(len(codes), np.int64)
        for j in columns:
            cell = cell * num_levels[j] + codes[:, j]
        cells = int(np.prod([num_levels[j] for j in columns]))
        shares.append(np.bincount(cell, minlength=cells) / len(codes))
    return np.concatenate(shares)
