"""What runs on a GPU: proved on the CPU at tiny sizes, and on CUDA where it is (pytest -m cuda)."""

import numpy as np
import pytest
import torch

from experiments.gpu import checks, command
from experiments.lab import results

pytestmark = pytest.mark.usefixtures("one_thread")

QUICK = ("rescale", "probe", "audit", "scale_gradient")


def name(check):
    return "-".join(map(str, check))


def case(check):
    """Return the parameter of a check: the quick ones run by default."""
    quick = check.dtype == "float32" and check.tool in QUICK and not check.compiled
    return pytest.param(check, id=name(check), marks=[] if quick else pytest.mark.slow)


@pytest.mark.filterwarnings("ignore")  # the compiler has its own
@pytest.mark.parametrize("check", [*map(case, checks.planned_checks("cpu"))])
def test_a_tool_rounds_as_its_type_does(check):
    if check.tool == "steps" and check.dtype != "float32":
        pytest.skip("parameters of half precision cannot take a small step")
    assert check.error("cpu", 64) <= check.limit


@pytest.mark.cuda
@pytest.mark.skipif(not torch.cuda.is_available(), reason="there is no CUDA device")
@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("tool", checks.TOOLS)
def test_a_tool_on_cuda_is_that_of_the_cpu(tool):
    wrong = {}
    for check in checks.planned_checks("cuda"):
        if check.tool == tool and not (check.compiled and check.dtype != "bfloat16"):
            error = check.error("cuda", 1024)
            if error > check.limit:
                wrong[name(check)] = error
    assert not wrong


@pytest.mark.slow
def test_the_command_trains_and_goes_on(tmp_path, capsys):
    arguments = ["runs", "--device", "cpu", "--out", str(tmp_path), "--minutes"]
    assert command.main([*arguments, "8"]) == 0
    shown = capsys.readouterr().out.splitlines()
    assert sum(line.startswith(("length ", "gain ")) for line in shown) == 24
    before = {file: file.read_bytes() for file in tmp_path.iterdir()}
    assert sum(map(len, before.values())) < 1e6
    assert command.main([*arguments, "1e-9"]) == 0  # all is there
    assert {file: file.read_bytes() for file in tmp_path.iterdir()} == before
    for line in results.read(tmp_path / "length.jsonl").values():
        assert np.shape(line["readings"]) in ((3, 3), (3, 1))
        assert set(line["extended"]) in ({"none", "ssmax"}, {"own"})
        assert np.shape(line["scale_gradients"]["512"]) == (4, 2, 2)
