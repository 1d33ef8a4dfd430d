"""Reference values of 2F1 and of its gradients, by mpmath at 50 digits.

They go to tests/reference/hyp2f1.json:

    python experiments/papers/polettini_stander/reference.py

mpmath sums series and transforms them; nothing here is an integral. Gradients are central
differences with steps of 1e-15 of the argument, whose own error is 1e-20 or so. It takes a minute,
nearly all of it at f = 1e6.
"""

import json
from pathlib import Path

import mpmath as mp

OUT = Path(__file__).resolve().parents[3] / "tests" / "reference" / "hyp2f1.json"
STEP = mp.mpf(10) ** -15

# Arguments of the models: alpha, (a, b), x = N / lambda.
F = (0, 1, 2, 30, 1_000, 100_000, 1_000_000)
ALPHA = ("0.001", "0.1", "0.92", "7.5")
BETA = (("0.27", "79.73"), ("0.86", "80"), ("40", "40"), ("0.01", "0.5"), ("79.9", "0.1"))
X = ("0.001", "1", "800", "1e6", "1e9")

# (a, b, c, z) of other uses: z between 0 and 1, a first argument that is negative.
OTHERS = [
    ("0.08", "1", "2", "0.999"), ("0.9", "1", "31", "0.5"), ("-4", "1", "2", "0.9999"),
    ("-6.5", "3", "4.5", "-2000"), ("1", "1", "2", "-1e6"), ("1", "50", "51", "-300"),
    ("1", "1e5", "100001", "-12"), ("0.5", "0.001", "0.3", "-1e6"), ("2.5", "1.5", "3", "1e-9"),
    ("2.5", "1.5", "3", "-1e-12"), ("300", "200", "900", "0.97"), ("12", "0.3", "0.4", "-1e12"),
]  # fmt: skip


def log_hyp2f1(a, b, c, z):
    return mp.log(mp.hyp2f1(a, b, c, z))


def log_expectation(f, alpha, a, b, x):
    """log E (x p)^f (1 + x p)^-(alpha + f), p ~ Beta(a, b)."""
    return (
        f * mp.log(x) + mp.log(mp.beta(a + f, b)) - mp.log(mp.beta(a, b))
        + log_hyp2f1(alpha + f, a + f, a + b + f, -x)
    )  # fmt: skip


def gradient(function, arguments):
    found = []
    for i, value in enumerate(arguments):
        step = STEP * max(abs(value), mp.mpf(10) ** -6)
        above, below = list(arguments), list(arguments)
        above[i], below[i] = value + step, value - step
        found.append(float((function(*above) - function(*below)) / (2 * step)))
    return found


def lines(rows):
    return ",\n".join(json.dumps(row) for row in rows)


def main():
    mp.mp.dps = 50
    expectations, functions = [], []
    for f in F:
        for alpha in (mp.mpf(float(v)) for v in ALPHA):
            for a, b in ((mp.mpf(float(a)), mp.mpf(float(b))) for a, b in BETA):
                for x in (mp.mpf(float(v)) for v in X):
                    # Beyond, one value takes seconds.
                    if f == max(F) and (alpha not in (mp.mpf(0.1), mp.mpf(7.5)) or x < 1):
                        continue
                    value = log_expectation(f, alpha, a, b, x)
                    row = {"at": [f, *map(float, (alpha, a, b, x))], "log": float(value)}
                    if f <= 1000 and x != 1 and alpha != mp.mpf(0.1):
                        row["gradient"] = gradient(
                            lambda *rest, f=f: log_expectation(f, *rest), (alpha, a, b, x)
                        )
                    expectations.append(row)
                    functions.append({
                        "at": [float(v) for v in (alpha + f, a + f, a + b + f, -x)],
                        "log": float(log_hyp2f1(*(
                            mp.mpf(float(v)) for v in (alpha + f, a + f, a + b + f, -x)
                        ))),
                    })  # fmt: skip
        print(f, len(expectations), flush=True)
    for arguments in OTHERS:
        arguments = [mp.mpf(float(value)) for value in arguments]
        functions.append({
            "at": [float(v) for v in arguments], "log": float(log_hyp2f1(*arguments)),
            "gradient": gradient(log_hyp2f1, arguments),
        })  # fmt: skip
    parts = [
        f'"{name}": [\n{lines(rows)}\n]'
        for name, rows in (("expectations", expectations), ("hyp2f1", functions))
    ]
    OUT.write_text("{" + ",\n".join(parts) + "}\n")


if __name__ == "__main__":
    main()
