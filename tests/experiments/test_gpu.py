"""What runs on a GPU: proved on the CPU at tiny sizes, and on CUDA where it is (pytest -m cuda)."""

import numpy as np
import pytest
import torch

from experiments.gpu import checks, command, runs
from experiments.lab import results
from experiments.lab.model import Transformer

pytestmark = pytest.mark.usefixtures("one_thread")

ON_CPU = checks.planned("cpu")
QUICK = [
    check
    for check in ON_CPU
    if check.dtype == "float32" and check.tool in ("rescale", "probe", "audit", "scale_gradient")
    if not check.compiled
]


def name(check):
    return "-".join(map(str, check))


@pytest.mark.parametrize("check", QUICK, ids=name)
def test_a_tool_is_that_of_float64(check):
    assert check.error("cpu", 64) <= check.limit


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore")  # the compiler has its own
@pytest.mark.parametrize("check", [one for one in ON_CPU if one not in QUICK], ids=name)
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
    for check in checks.planned("cuda"):
        if check.tool == tool and not (check.compiled and check.dtype != "bfloat16"):
            error = check.error("cuda", 1024)
            if error > check.limit:
                wrong[name(check)] = error
    assert not wrong


@pytest.mark.parametrize("tiny", [True, False])
def test_the_runs_are_those_that_the_files_describe(tiny):
    plan = runs.planned(tiny)
    assert len({setting.key for _, setting in plan}) == len(plan) == 24
    first = [(file, setting.training.seed) for file, setting in plan[:8]]
    assert first == [("length", 0)] * 2 + [("gain", 0)] * 6
    config, training = plan[0][1].config, plan[0][1].training
    if not tiny:
        counted = sum(p.numel() for p in Transformer(config).parameters())
        assert 25e6 <= counted <= 30e6
        assert (training.device, training.autocast, plan[0][1].corpus) == ("cuda", True, "python")


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
