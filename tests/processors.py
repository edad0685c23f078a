"""The tests, as another processor would compute: `make processors`.

NumPy, OpenBLAS, MKL, oneDNN and PyTorch choose their kernels by the processor, and add in another
order on another one. Each setting here makes one of them choose otherwise. Whether it changes a bit
of a few sums, products and exponentials on this machine is said first; it is run all the same,
since those are a sample.

    python -m tests.processors [--only NAME …] [PATH …]
"""

import argparse
import os
import subprocess
import sys
import time
from pathlib import Path

ROOT = Path(__file__).parents[1]
NUMERIC = (
    *("attnlib", "claims", "experiments", "chapters"),
    *("tests/library", "tests/claims", "tests/experiments", "tests/book"),
)
"""What prints or compares a float."""

SETTINGS = {
    "here": {},
    # With oneDNN's: a processor has no AMX without AVX-512, and PyTorch's bfloat16 relies on it.
    "torch-default": {"ATEN_CPU_CAPABILITY": "default", "ONEDNN_MAX_CPU_ISA": "AVX2"},
    "torch-avx2": {"ATEN_CPU_CAPABILITY": "avx2", "ONEDNN_MAX_CPU_ISA": "AVX2"},
    "openblas-haswell": {"OPENBLAS_CORETYPE": "Haswell"},
    "openblas-skylakex": {"OPENBLAS_CORETYPE": "SkylakeX"},
    "openblas-prescott": {"OPENBLAS_CORETYPE": "Prescott"},
    "mkl-avx2": {"MKL_ENABLE_INSTRUCTIONS": "AVX2"},
    "mkl-compatible": {"MKL_CBWR": "COMPATIBLE"},
    "onednn-avx2": {"ONEDNN_MAX_CPU_ISA": "AVX2"},
    "numpy-avx2": {"NPY_DISABLE_CPU_FEATURES": "X86_V4 AVX512_ICL"},
    "threads-2": {"OMP_NUM_THREADS": "2"},
    "older": {
        "ATEN_CPU_CAPABILITY": "avx2",
        "OPENBLAS_CORETYPE": "Haswell",
        "MKL_CBWR": "AVX2",
        "ONEDNN_MAX_CPU_ISA": "AVX2",
        "NPY_DISABLE_CPU_FEATURES": "X86_V4 AVX512_ICL",
        "OMP_NUM_THREADS": "2",
    },
}

FINGERPRINT = """
import hashlib
import numpy as np
import torch
from torch.nn import functional

x = np.random.default_rng(0).normal(size=(300, 301))
single, double = torch.from_numpy(x).float(), torch.from_numpy(x)
heads = single[None, None, :, :64]
found = [
    *(x @ x.T, np.exp(x), np.exp(x.astype("f")), np.sin(x), np.linalg.eigvalsh(x @ x.T)),
    *(single @ single.T, double @ double.T, single.exp(), single.sum(), single.softmax(-1)),
    *(functional.gelu(single), functional.scaled_dot_product_attention(heads, heads, heads)),
]
print(hashlib.sha256(b"".join(np.ascontiguousarray(y).tobytes() for y in found)).hexdigest())
"""


def environment(setting: dict[str, str]) -> dict[str, str]:
    """Return this process's environment with a setting in it, and one thread without."""
    return {**os.environ, "OMP_NUM_THREADS": "1", **setting}


def fingerprint(setting: dict[str, str]) -> str:
    """Return a hash of what a few kernels compute."""
    command = [sys.executable, "-c", FINGERPRINT]
    run = subprocess.run(
        command, env=environment(setting), check=True, capture_output=True, text=True
    )
    return run.stdout


def main() -> int:
    """Run the tests under each setting; return how many settings had failures."""
    parser = argparse.ArgumentParser(prog="python -m tests.processors", description=__doc__)
    parser.add_argument("paths", nargs="*", default=NUMERIC, help="tests and chapters to run")
    parser.add_argument("--only", nargs="+", choices=SETTINGS, default=list(SETTINGS))
    chosen = parser.parse_args()
    own, table, failures = fingerprint({}), [], 0
    for name in chosen.only:
        bits = "other bits" if fingerprint(SETTINGS[name]) != own else "the same bits"
        print(f"\n=== {name}: {SETTINGS[name]} ({bits} than without)", flush=True)
        start = time.monotonic()
        command = [sys.executable, "-m", "pytest", "--nbval", "-n", "3", "--dist", "loadfile"]
        command += ["--tb=short", *chosen.paths]
        run = subprocess.run(command, cwd=ROOT, env=environment(SETTINGS[name]), check=False)
        failures += run.returncode != 0
        outcome = "failed" if run.returncode else "passed"
        table.append(f"{name:18} {bits:14} {outcome:8} {time.monotonic() - start:6.0f} s")
    print("", *table, sep="\n")
    return failures


if __name__ == "__main__":
    sys.exit(main())
