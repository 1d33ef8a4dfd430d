"""Records in parts on several devices: what these send each other."""

import json
import os
import subprocess
import sys

import pytest

SHARDED = """
import json, math, re, sys
import jax, jax.numpy as jnp, numpy as np, pandas as pd
import bnp_models as bnp
from bnp_models.inference import chunks
from bnp_models.inference.placement import Placement
from bnp_models.kernels.numerics.platforms import forms_of

rng, n = np.random.default_rng(0), 10_000
if sys.argv[1] == "ndpmpm":
    model = bnp.NDPMPM(components=8, member_components=4)
    sizes = np.repeat([1, 2, 3], [1000, 1600, 1936])
    household, n = np.repeat(np.arange(len(sizes)), sizes), sizes.sum()
    frame = pd.DataFrame(rng.integers(0, 3, (n, 3)), columns=list("abc")).assign(
        household=household, tenure=rng.integers(0, 2, len(sizes))[household]
    )
    table = bnp.Households.from_frame(frame, "household", ["tenure"])
else:
    models = {"hdp": bnp.HDPMixedMembership(capacity=8), "nplcm": bnp.NPLCM(components=8)}
    model = models[sys.argv[1]]
    schema = bnp.Schema(tuple("abcd"), ((0, 1, 2),) * 4)
    table = bnp.Microdata(schema, rng.integers(0, 3, (n, 4)))
with forms_of(accelerator=True):
    data = model.prepare(table)
place = Placement(1, data, jax.devices())
(keys,) = place.groups(jax.random.split(jax.random.key(0), 1))
init = jax.eval_shape(
    lambda data, keys: chunks.init_chains(model, data, keys, 8, jnp.ones(1, jnp.int32)), data, keys
)
(states,) = place.groups(jax.tree.map(lambda x: jnp.zeros(x.shape, x.dtype), init))

def sweeps(data, keys, states):
    return chunks.advance_chains(
        model, data, keys, states, chunks.Stretch(0, 8), chunks.Schedule(warmup=0, growth_start=0),
        chunks.Kept(model.scalars, slots=1),
    )

with forms_of(accelerator=True):
    text = jax.jit(sweeps).lower(place.data(data), keys, states).compile().as_text()
largest = {}
for shape, kind in re.findall(
    r"= (.*?) (all-gather|all-reduce|all-to-all|collective-permute)(?:-start)?\\(", text
):
    for dims in re.findall(r"\\[([0-9,]*)\\]", shape):
        size = math.prod(map(int, filter(None, dims.split(","))))
        largest[kind] = max(size, largest.get(kind, 0))
print(json.dumps({"devices": len(jax.devices()), "n": int(n), "sizes": largest}))
"""


@pytest.mark.long
@pytest.mark.parametrize("model", ["nplcm", "ndpmpm", "hdp"])
def test_no_device_gathers_all_records(model):
    """A sweep gathers parts of the records; counts are added up."""
    flags = f"{os.environ['XLA_FLAGS']} --xla_force_host_platform_device_count=8"
    environment = os.environ | {"XLA_FLAGS": flags, "JAX_PLATFORMS": "cpu"}
    command = [sys.executable, "-c", SHARDED, model]
    done = subprocess.run(command, env=environment, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout.splitlines()[-1])
    assert found["devices"] == 8
    assert found["sizes"]["all-reduce"] > 0
    moved = [size for kind, size in found["sizes"].items() if kind != "all-reduce"]
    assert max(moved, default=0) <= found["n"] / 2, found
