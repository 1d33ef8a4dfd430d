"""Records in parts on 1, 2, 4 and 8 devices: work and memory of each, and what they send.

    python experiments/speed/gpu/shards.py

20,000 records, or persons in households, for each device, one chain, the forms of kernels for
accelerators, compiled for host devices that share this machine's cores: what is counted is the
program of one device, no speed. Loops count once. Writes shards.csv, shards.md, and collectives.md
with all that eight devices send in a sweep.
"""

import argparse
import json
import os
import re
import subprocess
import sys
from collections import Counter
from math import prod
from pathlib import Path

import pandas as pd

HERE = Path(__file__).parent
sys.path += [str(HERE.parents[1] / name) for name in ("speed/benchmark", "accuracy/known_truth")]
SHARDS, RECORDS = (1, 2, 4, 8), 20_000
NAMES = ("hdp plain", "hdp", "nplcm", "ndpmpm")
BYTES = {"f32": 4, "s32": 4, "u32": 4, "s64": 8, "u16": 2, "s16": 2, "u8": 1, "s8": 1, "pred": 1}
COLLECTIVE = re.compile(
    r"= (.*?) (all-gather|all-reduce|all-to-all|collective-permute|reduce-scatter)(?:-start)?\("
)


def make_sample(name, number):
    """So many records, or persons in households of two to six."""
    import numpy as np
    from run import latent_class_sample

    import bnp_models as bnp

    records = latent_class_sample(number)
    if name != "ndpmpm":
        return records
    sizes = np.random.default_rng(0).integers(2, 7, number)
    frame = records.to_frame().assign(hid=np.repeat(np.arange(number), sizes)[:number])
    return bnp.Households.from_frame(frame)


def program(name, num_devices):
    """The program of one of so many devices, for sweeps of one chain."""
    import jax
    import jax.numpy as jnp
    from cases import MODELS

    from bnp_models.inference import chunks
    from bnp_models.inference.placement import Placement
    from bnp_models.kernels.numerics.platforms import forms_of

    model = MODELS[name]
    with forms_of(accelerator=True):
        data = model.prepare(make_sample(name, RECORDS * num_devices))
    place = Placement(1, data, jax.devices())
    (keys,) = place.groups(jax.random.split(jax.random.key(0), 1))

    def init(data, keys):
        return chunks.init_chains(model, data, keys, model.capacity, jnp.full(1, 40))

    def sweeps(data, keys, states):
        return chunks.advance_chains(
            model, data, keys, states, chunks.Stretch(0, 8),
            chunks.Schedule(warmup=0, growth_start=0), chunks.Kept(model.scalars, slots=1),
        )  # fmt: skip

    zeros = jax.tree.map(lambda x: jnp.zeros(x.shape, x.dtype), jax.eval_shape(init, data, keys))
    (states,) = place.groups(zeros)
    with forms_of(accelerator=True):
        return jax.jit(sweeps).lower(place.data(data), keys, states).compile()


def sent(text):
    """(kind, shape, bytes, scope) of every collective of a program."""
    for line in text.splitlines():
        if found := COLLECTIVE.search(line):
            scope = re.search(r'op_name="([^"]*)"', line)
            arrays = re.findall(r"(\w+)\[([0-9,]*)\]", found[1])
            size = sum(BYTES[t] * prod(map(int, filter(None, d.split(",")))) for t, d in arrays)
            shape = " ".join(f"{t}[{d}]" for t, d in arrays)
            yield found[2], shape, size, scope[1].split("_sweep_chains)/")[-1] if scope else ""


def measure(name, num_devices):
    """A row, and the collectives."""
    compiled = program(name, num_devices)
    listed = list(sent(compiled.as_text()))
    memory, by_kind = compiled.memory_analysis(), Counter()
    for kind, _, size, _ in listed:
        by_kind[kind] += size
    row = {
        "model": name, "devices": num_devices, "records": RECORDS * num_devices,
        "million_operations": compiled.cost_analysis()["flops"] / 1e6,
        "mebibytes_of_arguments": memory.argument_size_in_bytes / 2**20,
        "temporary_mebibytes": memory.temp_size_in_bytes / 2**20,
        "largest_gather_kilobytes": max(
            (size for kind, _, size, _ in listed if kind == "all-gather"), default=0) / 1e3,
        "added_up_kilobytes": by_kind["all-reduce"] / 1e3,
        "else_sent_kilobytes": (sum(by_kind.values()) - by_kind["all-reduce"]) / 1e3,
    }  # fmt: skip
    return {"row": row, "collectives": listed}


def main():
    from results import markdown

    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--one", nargs=2, help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.one:
        print(json.dumps(measure(args.one[0], int(args.one[1]))))
        return
    rows, listed = [], []
    for name in NAMES:
        for number in SHARDS:
            flags = f"--xla_force_host_platform_device_count={number}"
            environment = os.environ | {"XLA_FLAGS": flags, "JAX_PLATFORMS": "cpu"}
            command = [sys.executable, __file__, "--one", name, str(number)]
            done = subprocess.run(
                command, env=environment, check=True, stdout=subprocess.PIPE, text=True
            )
            found = json.loads(done.stdout.splitlines()[-1])
            rows.append(found["row"])
            print(rows[-1], flush=True)
            if number == max(SHARDS):
                listed += [[name, *one] for one in found["collectives"]]
    frame = pd.DataFrame(rows)
    frame.to_csv(HERE / "shards.csv", index=False, float_format="%.5g")
    (HERE / "shards.md").write_text(markdown(frame, index=False) + "\n")
    every = pd.DataFrame(listed, columns=["model", "kind", "arrays", "bytes", "where"])
    columns = list(every.columns)
    every = every.groupby(columns, sort=False).size().rename("times").reset_index()
    every = every.sort_values(["model", "bytes"], ascending=[True, False])
    (HERE / "collectives.md").write_text(markdown(every, index=False) + "\n")


if __name__ == "__main__":
    main()
