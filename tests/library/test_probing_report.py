"""The probe around a model: nothing changes, nothing is passed over in silence; its report."""

import json
import math
import re
import threading
from contextlib import suppress

import numpy as np
import pytest
import torch
from torch import nn
from torch.nn import functional
from torch.utils.checkpoint import checkpoint

from attnlib import exact, freezing
from attnlib.attention import rescale
from attnlib.probing import DEFINITIONS, RANDOM, probe
from attnlib.scores import DotProduct
from tests.library import foreign
from tests.library.test_probing import Caller, draw
from tests.paths import ROOT

HEADS = 4


# --- nothing changes ----------------------------------------------------------------------------


def test_outputs_gradients_and_random_numbers_are_those_without_it():
    model, run = foreign.MODELS["torch decoder, padding"]()
    model.train()

    def results():
        torch.manual_seed(3)
        model.zero_grad()
        output = run()
        output.square().sum().backward()
        gradients = [p.grad.clone() for p in model.parameters() if p.grad is not None]
        return [output.detach(), *gradients, torch.get_rng_state()]

    expected = results()
    with probe(model, theory=False):
        watched = results()
    assert len(watched) > 10
    assert all(map(torch.equal, watched, expected))


def test_everything_is_put_back_and_a_model_that_fails_leaves_no_trace_in_the_names():
    class Sometimes(nn.Module):
        def __init__(self):
            super().__init__()
            self.attention = Caller()

        def forward(self, x, fails):
            x = self.attention(x, x, x)
            return 1 / 0 if fails else x

    model, x = Sometimes(), torch.ones(1, 2, 3, 4)
    hooks = torch.nn.modules.module._global_forward_hooks.copy()
    with suppress(ZeroDivisionError), probe(model), probe(model) as report:
        with suppress(ZeroDivisionError):
            model(x, fails=True)
        model(x, fails=False)
        model(x, fails=True)
    assert list(report.table()["layer"]) == ["attention"] * 2
    assert list(report.table()["call"]) == [0, 0]
    assert torch.nn.modules.module._global_forward_hooks == hooks
    assert torch.overrides._get_current_function_mode_stack() == []


def test_a_backward_pass_that_runs_the_model_again_counts_once():
    model, x = foreign.torch_encoder(dropout=0.0).train(), torch.randn(1, 5, 32, requires_grad=True)
    with probe(model) as report:
        for layer in model.layers:
            y = checkpoint(layer, x, use_reentrant=False)
        y.sum().backward()
    assert (report.table()["rows"] == 5).all()


# --- what is seen -------------------------------------------------------------------------------


@pytest.mark.parametrize("train", [False, True])
def test_weights_that_a_module_returns_are_measured_too(train):
    torch.manual_seed(0)
    model = nn.MultiheadAttention(32, HEADS, dropout=0.3, batch_first=True).train(train)
    x, y = foreign.vectors(), foreign.vectors(5, seed=4)
    arguments = {"key_padding_mask": foreign.PADDING, "average_attn_weights": False}
    torch.manual_seed(1)
    expected = [*model(y, x, x, **arguments), torch.rand(())]
    torch.manual_seed(1)
    with probe(model) as report:
        watched = [*model(y, x, x, **arguments), torch.rand(())]
    assert all(map(torch.equal, watched, expected))
    with probe(model.eval()) as without:
        model(y, x, x, need_weights=False, key_padding_mask=foreign.PADDING)
    assert report.to_json() == without.to_json()


def test_another_scale_is_entered_after_the_probe():
    with rescale(alpha=2.0):
        with pytest.raises(RuntimeError, match=r"enter probe first, with probe\(model\) as report"):
            probe(Caller()).__enter__()
        Caller()(*(draw(1, 2, 5, 4, seed=i) for i in range(3)))


# --- what is not seen is named ------------------------------------------------------------------


def raised(model, run):
    with pytest.raises(RuntimeError, match="no attention in") as caught, probe(model):
        run()
    return str(caught.value)


class AutocorrelationAttention(nn.Module):
    def forward(self, x):
        return torch.fft.irfft(torch.fft.rfft(x, dim=1).abs(), dim=1)


def test_a_module_that_has_run_is_named_where_nothing_is_seen():
    model = AutocorrelationAttention()
    assert f"model ({type(model).__name__}) ran" in raised(model, lambda: model(draw(1, 6, 4)))


class LinearAttention(nn.Module):
    def forward(self, x):
        return x @ (x.mT @ x)


class KernelAttention(nn.Module):
    def forward(self, x):
        return 2.0 * torch.from_numpy(x.detach().numpy().copy())


class SelfAttention(nn.Module):
    def forward(self, x):
        return functional.scaled_dot_product_attention(x, x, x)


class Mixed(nn.Module):
    def __init__(self, other):
        super().__init__()
        self.self_attention = Caller()
        self.other = other
        self.unused_attention = LinearAttention()

    def forward(self, x):
        return self.other(self.self_attention(x, x, x))


@pytest.mark.filterwarnings("ignore:`torch.jit.script")
@pytest.mark.parametrize(
    ("other", "why"),
    [
        (LinearAttention, "(LinearAttention): no softmax stands between"),
        (lambda: torch.jit.script(SelfAttention()), "(SelfAttention): its attention is inside"),
        (KernelAttention, "(KernelAttention) ran without calling"),
    ],
)
def test_what_is_not_seen_among_what_is_gives_a_warning(other, why):
    model = Mixed(other())
    with pytest.warns(UserWarning, match="not measured") as caught, probe(model) as report:
        model(draw(1, 2, 5, 4))
    (warning,) = caught
    assert f"not measured: other {why}" in str(warning.message)
    assert warning.filename == __file__
    assert len(report.table()) == 2


def test_a_part_that_is_compiled_runs_as_it_is_written():
    model, x = nn.Sequential(SelfAttention(), SelfAttention()), draw(1, 2, 5, 4)
    model[1].compile(backend="aot_eager", fullgraph=True)
    expected = model(x)
    for _ in range(2):
        with probe(model) as r:
            torch.testing.assert_close(model(x), expected)
        assert list(r.table()["layer"]) == ["0", "0", "1", "1"]
    with torch.compiler.set_stance("force_eager"), probe(model) as report:
        model(x)
    assert list(report.table()["layer"]) == ["0", "0", "1", "1"]
    whole = torch.compile(model, backend="eager")
    with pytest.raises(RuntimeError, match="that was given to"):
        probe(whole).__enter__()
    torch.compiler.reset()


def test_a_model_that_did_not_run_here():
    model, x = Caller(), draw(1, 2, 5, 4)
    assert "call the model itself" in raised(model, lambda: None)
    assert "call the model itself" in raised(model, lambda: Caller()(x, x, x))
    thread = threading.Thread(target=model, args=(x, x, x))
    assert "it ran in another thread" in raised(model, lambda: (thread.start(), thread.join()))
    with pytest.raises(TypeError, match=r"model must be a torch\.nn\.Module, got a type"):
        probe(Caller).__enter__()


# --- numbers ------------------------------------------------------------------------------------


def test_numbers_that_are_not_finite_show():
    q, k = draw(1, 2, 4, 3), draw(1, 2, 4, 3, seed=1)
    k[0, 1, 2] = math.nan
    model = Caller()
    warned = pytest.warns(UserWarning, match="NaN or infinity in Caller: so")
    with warned as caught, probe(model) as report:
        for _ in range(2):
            model(q, k, k)
    assert caught[0].filename == __file__
    assert report.not_finite == ["Caller"]
    assert report.table()["collision_probability"].isna().tolist() == [False, True]
    assert json.loads(report.to_json())["heads"][1]["alpha"] is None


# --- random scores ------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def random_report():
    """Random queries, keys and values in 16 dimensions at α = 1.5; 400 sequences of 24, causal."""
    torch.manual_seed(0)
    with probe(model := Caller()) as report:
        model(*torch.randn(3, 400, 2, 24, 16).unbind(0), is_causal=True, scale=1.5 / 4)
    return report


def test_the_theory_is_that_of_the_library(random_report):
    line, law, n = random_report.table().loc[0], DotProduct(16), np.arange(2, 25)
    alpha = line["alpha"]
    y = exact.collision_probability(law, alpha, n).mean()
    expected = {
        "random_collision_probability": y,
        "random_effective_keys": 1 / y,
        "random_entropy": exact.entropy(law, alpha, n).mean(),
        "random_gradient": exact.gradient(law, alpha, n).mean(),
        "gradient_share": line["gradient"] / exact.gradient_limit(law, n).mean(),
        "critical_alpha": freezing.critical_alpha(n).mean(),
        "random_output_std": line["value_std"] * math.sqrt(y),
    }
    for name, value in expected.items():
        assert line[name] == pytest.approx(value, rel=1e-9), name


# --- the report ---------------------------------------------------------------------------------


def test_the_table_has_all_columns_and_json_holds_it(random_report):
    table = random_report.table()
    assert list(table.columns) == list(DEFINITIONS)
    assert list(table[["layer", "head"]].itertuples(index=False)) == [("Caller", 0), ("Caller", 1)]
    assert (table["rows"] == 400 * 23).all()  # the first query of each sees one key
    content = json.loads(random_report.to_json())
    assert content["definitions"] == {**DEFINITIONS, "random": RANDOM}
    assert content["heads"] == table.to_dict("records")


def test_the_example_of_the_readme_runs(capsys):
    text = (ROOT / "README.md").read_text("utf-8")
    (code,) = (
        code for code in re.findall(r"```python\n(.*?)```", text, re.DOTALL) if "probe" in code
    )
    exec(code, {"model": foreign.torch_encoder(), "x": foreign.vectors()})
    assert "layers.1.self_attn" in capsys.readouterr().out
