"""What an H200 would launch for a sweep of every model, on a machine that has none.

    python -m pip install --no-deps --target PLUGIN \
        jax-cuda12-pjrt==JAXLIB jax-cuda12-plugin==JAXLIB nvidia-cuda-nvcc-cu12
    PYTHONPATH=PLUGIN python experiments/speed/gpu/launches.py --version NAME

with the version of the installed jaxlib. Stretches of sweeps are compiled for that card as a run
compiles them, and their programs are read: kernels launched in a sweep, returns to the host in it,
and the memory that it takes beside arguments and results. Appends to launches.csv what is not there
yet, and makes launches.md; --tree prints a program.

A branch counts as often as it is taken, a loop as often as it is repeated; where the data decide,
as `TIMES` says. Loops and branches have no returns to the host where they are in a graph, as they
are unless they hold something that the host must order.
"""

import argparse
import os
import re
import sys
from collections import Counter
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path

os.environ["JAX_PLATFORMS"] = "cpu"
import jax
import jax.numpy as jnp
import numpy as np
import pandas as pd
from jax.experimental import topologies

from bnp_models.inference import chunks
from bnp_models.inference.compilation import GRAPHS, IN_GRAPHS
from bnp_models.kernels.numerics.platforms import forms_of, map_draws

HERE = Path(__file__).parent
sys.path.append(str(HERE.parents[1] / "accuracy" / "known_truth"))
from cases import MODELS, make_case  # noqa: E402
from results import Results, markdown  # noqa: E402

# What the driver of such a card says of it.
H200 = """
gpu_device_info {
  threads_per_block_limit: 1024 threads_per_warp: 32
  shared_memory_per_block: 49152 shared_memory_per_block_optin: 232448
  shared_memory_per_core: 233472 threads_per_core_limit: 2048
  core_count: 132 fpus_per_core: 128
  registers_per_core_limit: 65536 registers_per_block_limit: 65536
  block_dim_limit_x: 2147483647 block_dim_limit_y: 65535 block_dim_limit_z: 65535
  memory_bandwidth: 4800000000000 l2_cache_size: 62914560 clock_rate_ghz: 1.98
  device_memory_size: 150754820096 cuda_compute_capability { major: 9 }
  driver_version: "12.9.0" runtime_version: "12.9.0"
  kernel_mode_driver_version: "12.9.0" compile_time_toolkit_version: "12.9.0"
}
platform_name: "CUDA"
dnn_version_info { major: 9 minor: 8 }
runtime_version { major: 12 minor: 9 patch: 0 }
device_description_str: "NVIDIA H200"
"""

# How often a loop of data-dependent length runs, by the end of its name; else once, as those do
# that repeat a few trials until all are accepted.
TIMES = {
    "log_totals_by_tables/while": 2,  # chunks of 4,096 distinct cells
    "update_seating/draw_seating/while": 2,
    "split_counts/while": 3,  # levels until nothing is left
    "add_simulated/while": 8,  # batches of households
}
# How often a branch is taken that holds a scope.
SHARES = {"update_seating": 1 / 8, "propose_sides": 1 / 2, "split_or_merge_classes": 1 / 4}

# What is no launch.
FREE = {
    "parameter", "constant", "tuple", "get-tuple-element", "bitcast", "after-all", "partition-id",
    "replica-id", "opt-barrier", "async-done", "copy-done",
}  # fmt: skip
TAU1 = "tau_1, 4,096 cells, 64 draws"


@dataclass
class Block:
    """What one computation launches."""

    kernels: Counter = field(default_factory=Counter)
    """Launches by kind, loops and branches apart."""
    inner: list = field(default_factory=list)
    """Loops and branches: (name, times, block of each part)."""
    ordered: int = 0
    """Steps that the host must order."""

    @property
    def launches(self):
        """Launches in all."""
        own = sum(self.kernels.values())
        return own + sum(t * sum(b.launches for b in blocks) for _, t, blocks in self.inner)

    @property
    def in_graph(self):
        """Whether no step must be ordered by the host."""
        return not self.ordered and all(b.in_graph for _, _, part in self.inner for b in part)

    @property
    def returns(self):
        """Returns to the host: one for each decision that is in no graph."""
        number = self.ordered
        for _, times, blocks in self.inner:
            if not all(block.in_graph for block in blocks):
                number += 1 + times * (1 + sum(block.returns for block in blocks))
        return number


_COMPUTATION = re.compile(r"^(ENTRY )?%?([\w.\-]+) \(.*\) -> .* \{$")


def read_program(text):
    """The entry computation of a compiled program's text."""
    computations, entry, current = {}, None, None
    for line in text.splitlines():
        if current is None:
            if match := _COMPUTATION.match(line):
                current = computations.setdefault(match[2], [])
                entry = match[2] if match[1] else entry
        elif line.startswith("}"):
            current = None
        else:
            current.append(line.strip())
    return _block(computations, entry)


def _block(computations, name):
    block = Block()
    for line in computations[name]:
        opcode = _opcode(line)

        def called(what, line=line):
            return re.search(what + r"=%?([\w.\-]+)", line)[1]

        if opcode in FREE:
            continue
        if opcode == "while":
            known = re.search(r'known_trip_count"?:\{"n":"(\d+)"', line)
            ends = (n for name, n in TIMES.items() if _source(line).endswith(name))
            times = int(known[1]) if known else next(ends, 1)
            parts = [_block(computations, called(part)) for part in ("body", "condition")]
            block.inner.append((_source(line), times, parts))
        elif opcode == "conditional":
            listed = re.search(r"branch_computations=\{([^}]*)\}", line)
            names = (
                [part.strip().lstrip("%") for part in listed[1].split(",")] if listed
                else [called("true_computation"), called("false_computation")]
            )  # fmt: skip
            blocks = {part: _block(computations, part) for part in names}
            largest = max(names, key=lambda part: blocks[part].launches)
            text = " ".join(computations[largest])
            share = next((share for name, share in SHARES.items() if name in text), 1)
            block.inner.append((_source(line), share, [blocks[largest]]))
        elif opcode == "call":
            inner = _block(computations, called("to_apply"))
            block.kernels += inner.kernels
            block.inner += inner.inner
            block.ordered += inner.ordered
        else:
            block.ordered += "__dynamic_memcpy" in line
            block.kernels[_kind(line, opcode, computations)] += 1
    return block


def _opcode(line):
    """Name of the operation: what stands before the arguments, behind the result's shape."""
    rest = line.split(" = ", 1)[1]
    if rest.startswith("("):
        depth = np.cumsum([(c == "(") - (c == ")") for c in rest])
        rest = rest[int(np.argmax(depth == 0)) + 1 :].strip()
    else:
        rest = rest.split(" ", 1)[1]
    return rest.split("(", 1)[0].strip()


def _kind(line, opcode, computations):
    if opcode == "custom-call":
        return re.search(r'custom_call_target="([^"]*)"', line)[1]
    if opcode == "fusion":
        fused = computations[re.search(r"calls=%?([\w.\-]+)", line)[1]]
        scatter = any(" scatter(" in part for part in fused)
        return "scatter" if scatter else re.search(r"kind=k(\w+)", line)[1]
    return opcode


def _source(line):
    """Scopes of a loop or branch, from the sweep on."""
    match = re.search(r'op_name="([^"]*)"', line)
    return match[1].split("_sweep_chains)/")[-1] if match else ""


def tree(block, depth=0):
    """Lines that show a block."""
    pad = "  " * depth
    yield f"{pad}{sum(block.kernels.values())} {dict(sorted(block.kernels.items()))}"
    for source, times, parts in block.inner:
        yield f"{pad}{times:g} times: {source}"
        for part in parts:
            yield from tree(part, depth + 1)


def compiled(model, table, conditions, num_chains, tau1=False):
    """The program of a stretch of sweeps, or of tau_1 at a draw of each chain, for the card."""
    card = topologies.get_topology_desc("", "cuda", target_config=H200, topology="1x1x1")
    place = jax.sharding.SingleDeviceSharding(card.devices[0])
    cuda = next(Path(path) for path in sys.path if Path(path, "nvidia/cuda_nvcc").is_dir())
    options = {
        GRAPHS: IN_GRAPHS, "xla_gpu_cuda_data_dir": str(cuda / "nvidia" / "cuda_nvcc"),
        "xla_gpu_autotune_level": 0, "xla_gpu_enable_triton_gemm": False,
    }  # fmt: skip

    def shape(x):
        return jax.ShapeDtypeStruct(jnp.shape(x), jnp.result_type(x), sharding=place)

    with forms_of(accelerator=True):
        data = model.prepare(table, conditions)
        keys = jax.vmap(jax.random.key)(jnp.arange(num_chains))
        starts = jnp.full(num_chains, 40)
        init = partial(chunks.init_chains, model, capacity=model.capacity, starts=starts)
        states = jax.eval_shape(init, data, keys)
        if tau1:
            kept = jax.eval_shape(chunks.one_draw, model, data, keys, states)
            draws = {name: kept[name] for name in (*model.parameters, "alpha")}
            function = partial(log_p, model, table.schema.num_levels)
            arguments = draws, keys, np.resize(table.codes, (4096, table.num_variables))
        else:
            function = partial(
                chunks.advance_chains, stretch=chunks.Stretch(0, 64),
                schedule=chunks.Schedule(warmup=0, growth_start=0),
                kept=chunks.Kept(model.scalars, slots=1),
            )  # fmt: skip
            arguments = model, data, keys, states
        lowered = jax.jit(function).lower(*jax.tree.map(shape, arguments))
        return lowered.compile(compiler_options=options)


def log_p(model, num_levels, draws, keys, cells):
    """log p of every cell for every draw."""
    return map_draws(
        lambda given: model.log_cell_probability(*given, cells, num_levels), (keys, draws)
    )


def measure(case, num_chains, show=False):
    """A row."""
    tau1 = case == TAU1
    program = compiled(*make_case("hdp" if tau1 else case), num_chains, tau1)
    block = read_program(program.as_text())
    if not tau1:
        # The loop over sweeps has the most to launch.
        _, _, (block, _) = max(block.inner, key=lambda inner: inner[2][0].launches)
    if show:
        print("\n".join(tree(block)))
    mebibytes = program.memory_analysis().temp_size_in_bytes / 2**20
    return {
        "launches": round(block.launches), "returns": round(block.returns),
        "temporary_mebibytes": mebibytes,
    }  # fmt: skip


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--version", help="of the code, such as a commit")
    cases = [*MODELS, TAU1]
    parser.add_argument("--cases", nargs="+", choices=cases, default=cases)
    parser.add_argument("--chains", type=int, nargs="+", default=[1, 32])
    parser.add_argument("--tree", action="store_true", help="print programs, keep no rows")
    args = parser.parse_args()
    if args.tree:
        for case in args.cases:
            measure(case, 64 if case == TAU1 else args.chains[0], show=True)
        return
    if not args.version:
        parser.error("say --version")
    results = Results(HERE / "launches.csv", ("version", "case", "chains"))
    rows = (
        {"version": args.version, "case": case, "chains": number}
        for case in args.cases for number in ([64] if case == TAU1 else args.chains)
    )  # fmt: skip
    for row in results.missing(rows):
        results.append(row | measure(row["case"], row["chains"]))
        jax.clear_caches()
    frame = pd.read_csv(results.path).set_index(["case", "chains", "version"]).unstack("version")
    frame.columns = [" ".join(reversed(column)) for column in frame.columns]
    (HERE / "launches.md").write_text(markdown(frame.reset_index(), index=False) + "\n")


if __name__ == "__main__":
    main()
