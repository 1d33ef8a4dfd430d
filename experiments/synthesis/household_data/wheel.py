"""Read tables from the wheel of ActivitySim 1.6.0, label their codes, write them compactly."""

import argparse
import hashlib
import zipfile

import pandas as pd
import pyarrow as pa
from pyarrow import parquet

SHA256 = "6b403df14ad1d5ed9800b8db7fd19a84e16bf1da0a3f891a3c43a1160c7524dd"


def read(path, example):
    """Read the persons and households of one of the wheel's examples."""
    with open(path, "rb") as file:
        digest = hashlib.file_digest(file, "sha256").hexdigest()
    if digest != SHA256:
        raise SystemExit(f"{path}: SHA-256 {digest}, expected {SHA256}")
    folder = f"activitysim/examples/{example}/data"
    with zipfile.ZipFile(path) as wheel:
        return tuple(
            pd.read_csv(wheel.open(f"{folder}/{name}.csv")) for name in ("persons", "households")
        )


def labelled(name, codes, labels):
    """Return codes as a categorical of all the labels, each of which occurs."""
    unknown = set(codes) ^ set(labels)
    if unknown:
        raise SystemExit(f"{name}: codes of the file and of the labels differ: {unknown}")
    return pd.Categorical(codes.map(labels), categories=list(dict.fromkeys(labels.values())))


def write(table, path):
    """Write one Parquet file; the same table and the same PyArrow give the same bytes."""
    table = pa.Table.from_pandas(table, preserve_index=False).replace_schema_metadata(None)
    parquet.write_table(
        table, path, compression="zstd", compression_level=19, row_group_size=len(table)
    )


def run(make, description):
    """Run ``make(wheel)`` from the command line ``WHEEL OUT.parquet``."""
    parser = argparse.ArgumentParser(description=description)
    parser.add_argument("wheel")
    parser.add_argument("out")
    arguments = parser.parse_args()
    write(make(arguments.wheel), arguments.out)
