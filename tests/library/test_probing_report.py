"""The probe around a model: nothing changes, nothing is passed over in silence; its report."""

import copy
import json
import math
import re
import threading

import matplotlib.pyplot as plt
import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as npst
from scipy import stats
from scipy.integrate import quad
from torch import nn
from torch.nn import functional
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils.checkpoint import checkpoint

from attnlib import attention, exact, freezing
from attnlib.attention import rescale
from attnlib.probing import DEFINITIONS, RANDOM, measure, probe, random_scores
from attnlib.probing.random_scores import RandomScores
from attnlib.scores import DotProduct
from tests.books import ROOT
from tests.library import foreign
from tests.library.test_probing import Caller, draw

HEADS = 4


def encoder(dropout=0.0, layers=2):
    torch.manual_seed(0)
    layer = nn.TransformerEncoderLayer(32, HEADS, 48, dropout=dropout, batch_first=True)
    return nn.TransformerEncoder(layer, layers, enable_nested_tensor=False)


# --- nothing changes ----------------------------------------------------------------------------


@pytest.mark.parametrize("train", [False, True], ids=["evaluation", "training"])
@pytest.mark.parametrize("name", foreign.MODELS)
def test_outputs_gradients_and_random_numbers_are_those_without_it(name, train):
    model, run = foreign.MODELS[name]()
    model.train(train)

    def results():
        torch.manual_seed(3)
        model.zero_grad()
        output = run()
        output.square().sum().backward()
        gradients = [p.grad.clone() for p in model.parameters() if p.grad is not None]
        return [output.detach(), *gradients, torch.get_rng_state()]

    expected = results()
    with probe(model):
        found = results()
    assert len(found) > 10
    assert all(map(torch.equal, found, expected))


def test_everything_is_put_back():
    model = encoder()
    asked = torch.overrides.has_torch_function
    hooks = torch.nn.modules.module._global_forward_hooks.copy()
    with pytest.raises(AssertionError, match="embedding dimension"), probe(model), probe(model):
        model(torch.zeros(1, 3, 5))
    assert torch.overrides.has_torch_function is asked
    assert torch.nn.modules.module._global_forward_hooks == hooks
    assert torch.overrides._get_current_function_mode_stack() == []
    assert not any(module._forward_hooks for module in model.modules())


def test_a_model_that_fails_leaves_no_trace_in_the_names():
    class Sometimes(nn.Module):
        def __init__(self):
            super().__init__()
            self.attention = Caller()
            self.fails = True

        def forward(self, x):
            if self.fails:
                self.attention(x, x, x[..., :1])
                raise ZeroDivisionError
            return self.attention(x, x, x)

    model = Sometimes()
    with probe(model) as report:
        with pytest.raises(ZeroDivisionError):
            model(torch.ones(1, 2, 3, 4))
        model.fails = False
        model(torch.ones(1, 2, 3, 4))
    assert list(report.table()["layer"]) == ["attention"] * 2
    assert list(report.table()["call"]) == [0, 0]


def test_a_backward_pass_that_runs_the_model_again_counts_once():
    model, x = encoder().train(), torch.randn(1, 5, 32, requires_grad=True)
    with probe(model) as report:
        for layer in model.layers:
            y = checkpoint(layer, x, use_reentrant=False)
        y.sum().backward()
    assert (report.table()["rows"] == 5).all()


# --- what is seen -------------------------------------------------------------------------------


@pytest.mark.parametrize("options", [{}, {"average_attn_weights": False}])
@pytest.mark.parametrize("train", [False, True])
def test_weights_that_a_module_returns_are_measured_too(options, train):
    torch.manual_seed(0)
    model = nn.MultiheadAttention(32, HEADS, dropout=0.3, batch_first=True).train(train)
    x, y = foreign.vectors(), foreign.vectors(5, seed=4)
    arguments = {"key_padding_mask": foreign.PADDING, **options}
    torch.manual_seed(1)
    expected = model(y, x, x, **arguments)
    torch.manual_seed(1)
    with probe(model) as report:
        found = model(y, x, x, **arguments)
        after = torch.rand(())
    torch.manual_seed(1)
    model(y, x, x, **arguments)
    assert torch.equal(torch.rand(()), after)
    assert all(map(torch.equal, found, expected))
    with probe(model.eval()) as without:
        model(y, x, x, need_weights=False, key_padding_mask=foreign.PADDING)
    assert report.to_json() == without.to_json()


def test_a_module_that_is_used_again_has_a_line_for_each_call():
    class Shared(nn.Module):
        def __init__(self):
            super().__init__()
            self.layer = Caller()

        def forward(self, x):
            for _ in range(3):
                x = x + self.layer(x, x, x)
            return x

    model, x = Shared(), draw(2, 1, 6, 4)
    with probe(model) as report:
        model(x)
        model(x)
    table = report.table()
    assert list(table["layer"]) == ["layer"] * 3
    assert list(table["call"]) == [0, 1, 2]
    assert list(table["rows"]) == [24] * 3
    assert table["alpha"].nunique() == 3


def test_the_operator_itself_and_the_root_are_seen():
    class Root(nn.Module):
        def forward(self, x):
            return torch.ops.aten.scaled_dot_product_attention(x, x, x)

    with probe(model := Root()) as report:
        model(draw(1, 2, 6, 4))
    assert list(report.table()["layer"]) == ["Root", "Root"]


def test_the_scale_of_another_rule_is_measured_from_outside():
    model, x = encoder(), foreign.vectors()
    with probe(model) as plain:
        model(x)
    with probe(model) as report, rescale(alpha=2.0):
        model(x)
    first = slice(0, HEADS)
    np.testing.assert_allclose(
        report.table()["alpha"][first], 2.0 * plain.table()["alpha"][first], rtol=1e-5
    )
    np.testing.assert_allclose(
        report.table()["score_std"][first], plain.table()["score_std"][first], rtol=1e-5
    )
    with rescale(alpha=2.0):
        with pytest.raises(RuntimeError, match=r"enter probe first, with probe\(model\) as report"):
            probe(model).__enter__()
        model(x)


# --- what is not seen is named ------------------------------------------------------------------


def test_attention_that_is_written_out_is_named():
    from transformers import GPT2Config, GPT2Model

    config = GPT2Config(vocab_size=9, n_embd=8, n_layer=5, n_head=2, bos_token_id=0, eos_token_id=0)
    config._attn_implementation = "eager"
    model = GPT2Model(config)
    with (
        pytest.raises(RuntimeError, match="no attention in GPT2Model") as caught,
        probe(model) as report,
    ):
        model(torch.zeros(1, 4, dtype=torch.long))
    message = str(caught.value)
    assert "h.0.attn (GPT2Attention), h.1.attn (GPT2Attention)" in message
    assert "and 2 more ran without calling scaled_dot_product_attention" in message
    assert "attn_implementation='sdpa'" in message
    assert report.empty


class LinearAttention(nn.Module):
    def forward(self, x):
        return x @ (x.mT @ x)


class Mixed(nn.Module):
    def __init__(self, other=None):
        super().__init__()
        self.self_attention = Caller()
        self.other = LinearAttention() if other is None else other
        self.unused_attention = LinearAttention()

    def forward(self, x):
        return self.other(self.self_attention(x, x, x))


def test_what_is_not_seen_among_what_is_gives_a_warning():
    model = Mixed()
    with pytest.warns(UserWarning, match="not measured") as caught, probe(model) as report:
        model(draw(1, 2, 5, 4))
    (warning,) = caught
    assert "other (LinearAttention) ran without calling" in str(warning.message)
    assert "unused" not in str(warning.message)
    assert warning.filename == __file__
    assert len(report.table()) == 2


def test_a_part_that_is_compiled_is_named():
    class Attention(nn.Module):
        def forward(self, x):
            return functional.scaled_dot_product_attention(x, x, x)

    model, x = nn.Sequential(Attention(), Attention()), draw(1, 2, 5, 4)
    model[1].compile(backend="aot_eager", fullgraph=True)
    expected = model(x)
    for _ in range(2):
        with pytest.warns(UserWarning, match="a part is compiled.*force_eager"), probe(model) as r:
            assert torch.equal(model(x), expected)
        assert list(r.table()["layer"]) == ["0", "0"]
    with torch.compiler.set_stance("force_eager"), probe(model) as report:
        model(x)
    assert list(report.table()["layer"]) == ["0", "0", "1", "1"]
    whole = torch.compile(model, backend="eager")
    with pytest.raises(RuntimeError, match="that was given to"):
        probe(whole).__enter__()
    torch.compiler.reset()


@pytest.mark.filterwarnings("ignore:`torch.jit.script` is")
def test_a_part_that_is_scripted_is_named():
    class SelfAttention(nn.Module):
        def forward(self, x):
            return functional.scaled_dot_product_attention(x, x, x)

    model = Mixed(torch.jit.script(SelfAttention()))
    with pytest.warns(UserWarning, match=r"other \(SelfAttention\) ran without"), probe(model):
        model(draw(1, 2, 5, 4))


def raised(model, run):
    with pytest.raises(RuntimeError, match="no attention in") as caught, probe(model):
        run()
    return str(caught.value)


@pytest.mark.filterwarnings("ignore:The PyTorch API of nested tensors")
def test_why_a_call_could_not_be_measured():
    model, x = Caller(), draw(3, 2, 5, 4)
    assert "torch.func" in raised(model, lambda: torch.vmap(model)(x, x, x))
    meta = x.to("meta")
    assert "no numbers" in raised(model, lambda: model(meta, meta, meta))
    assert "no queries or no keys" in raised(model, lambda: model(x[:, :, :0], x, x))
    nested = torch.nested.nested_tensor([x[0, 0], x[1, 0, :3]], layout=torch.jagged)
    nested = nested.unflatten(-1, (2, 2)).transpose(1, 2)
    assert "NestedTensor" in raised(model, lambda: model(nested, nested, nested))


def test_a_model_that_did_not_run_here():
    model, x = Caller(), draw(1, 2, 5, 4)
    assert "call the model itself" in raised(model, lambda: None)
    assert "call the model itself" in raised(model, lambda: Caller()(x, x, x))
    thread = threading.Thread(target=model, args=(x, x, x))
    assert "in the same thread" in raised(model, lambda: (thread.start(), thread.join()))


@pytest.mark.parametrize("model", [None, "gpt2", Caller, lambda x: x])
def test_a_model_must_be_a_module(model):
    with pytest.raises(TypeError, match=r"model must be a torch\.nn\.Module, got a"):
        probe(model).__enter__()


# --- numbers ------------------------------------------------------------------------------------

NUMBERS = st.floats(-1e4, 1e4, width=32)


@settings(max_examples=60)
@given(st.data())
def test_every_row_is_within_its_bounds(data):
    queries, keys = data.draw(st.integers(1, 4)), data.draw(st.integers(1, 5))
    q = data.draw(npst.arrays(np.float32, (1, queries, 2), elements=NUMBERS))
    k = data.draw(npst.arrays(np.float32, (1, keys, 2), elements=NUMBERS))
    mask = data.draw(npst.arrays(np.bool_, (queries, keys)))
    q, k, mask = map(torch.from_numpy, (q, k, mask))
    call = measure.Call(q, k, k, mask, scale=data.draw(st.floats(-2.0, 2.0)))
    rows = measure.measure(call, q).rows
    counted = rows.keys >= 2
    n = rows.keys[counted]
    assert (rows.keys == mask.sum(-1).numpy()).all()
    for field in rows:
        assert np.isfinite(field[counted]).all()
    y, entropy = rows.collision_probability[counted], rows.entropy[counted]
    assert (y * n > 1 - 1e-5).all()
    assert (y < 1 + 1e-6).all()
    assert (entropy >= 0).all()
    assert (entropy < np.log(n) + 1e-5).all()
    assert (rows.log_complement[counted] < 0).all()
    assert (rows.variance[counted] >= 0).all()


def test_numbers_that_are_not_finite_show():
    q, k = draw(1, 2, 4, 3), draw(1, 2, 4, 3, seed=1)
    k[0, 1, 2] = math.nan
    model = Caller()
    with pytest.warns(UserWarning, match="NaN or infinity in Caller"), probe(model) as report:
        model(q, k, k)
    assert report.not_finite == ["Caller"]
    table = report.table()
    assert table["collision_probability"].isna().tolist() == [False, True]
    assert json.loads(report.to_json())["heads"][1]["alpha"] is None


def test_a_model_without_a_row_of_two_keys_has_lines_without_numbers():
    with probe(model := Caller()) as report:
        model(*(draw(1, 2, 1, 4, seed=i) for i in range(3)))
    table = report.table()
    assert list(table["rows"]) == [0, 0]
    assert table["alpha"].isna().all()
    assert len(report.rows()) == 0
    assert str(report)
    plt.close(report.plot())


def test_memory_is_linear_in_the_number_of_keys(monkeypatch):
    largest = []

    class Sizes(TorchDispatchMode):
        def __torch_dispatch__(self, func, types, args=(), kwargs=None):
            result = func(*args, **(kwargs or {}))
            tensors = result if isinstance(result, tuple | list) else [result]
            sizes = [
                t.numel() for t in tensors if isinstance(t, torch.Tensor) and t.is_contiguous()
            ]
            largest.extend(sizes)
            return result

    monkeypatch.setitem(measure.BLOCK, "cpu", 2**11)
    n = 512
    tensors = [draw(1, 1, n, 4, seed=i) for i in range(3)]
    mask = torch.ones(1, n, dtype=torch.bool)
    for options in ({}, {"is_causal": True}, {"mask": mask}, {"mask": mask.float()}):
        with Sizes():
            measure.measure(measure.Call(*tensors, **options), None)
    assert max(largest) <= len(measure._Sums._fields) * n  # those sums of each row


# --- random scores ------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def random_report():
    """Random queries, keys and values in 16 dimensions at α = 1.5; 400 sequences of 24, causal."""
    torch.manual_seed(0)
    with probe(model := Caller()) as report:
        for _ in range(400):
            q, k, v = torch.randn(3, 1, 2, 24, 16).unbind(0)
            model(q, k, v, is_causal=True, scale=1.5 / 4)
    return report


def test_random_scores_agree_with_the_exact_theory(random_report):
    table, rows = random_report.table(), random_report.rows()
    for head in range(2):
        line = table.loc[head]
        assert line["alpha"] == pytest.approx(1.5, abs=0.02)
        ours = rows[rows["head"] == head]
        for column, theirs in [
            ("collision_probability", "random_collision_probability"),
            ("entropy", "random_entropy"),
            ("gradient", "random_gradient"),
        ]:
            # Sequences are independent, rows of one sequence are not.
            means = ours.groupby("sequence")[column].mean()
            error = means.std() / math.sqrt(len(means))
            # The α that the theory is given is measured too; it moves the mean by about as much.
            assert abs(means.mean() - line[theirs]) < 4.5 * error, column
            assert error < 0.02 * means.mean()
        assert line["output_std"] == pytest.approx(line["random_output_std"], rel=0.02)
        assert line["value_std"] == pytest.approx(1.0, rel=0.02)


def test_the_theory_is_that_of_the_library(random_report):
    line, law, n = random_report.table().loc[0], DotProduct(16), np.arange(2, 25)
    alpha = line["alpha"]
    expected = {
        "random_collision_probability": exact.collision_probability(law, alpha, n).mean(),
        "random_effective_keys": 1 / exact.collision_probability(law, alpha, n).mean(),
        "random_entropy": exact.entropy(law, alpha, n).mean(),
        "random_gradient": exact.gradient(law, alpha, n).mean(),
        "gradient_share": line["gradient"] / exact.gradient_limit(law, n).mean(),
        "critical_alpha": freezing.critical_alpha(n).mean(),
    }
    expected["random_output_std"] = line["value_std"] * math.sqrt(
        expected["random_collision_probability"]
    )
    for name, value in expected.items():
        assert line[name] == pytest.approx(value, rel=1e-9), name


def test_the_share_of_random_rows_that_freeze():
    rng = np.random.default_rng(0)
    n, counts = np.array([2.0, 3.0, 10.0]), (5, 3, 2)
    random = RandomScores(6, tuple(n), counts)
    found = random.columns(np.array([0.0, 1.5, 3.0]))["random_wide"]
    drawn = np.array([rng.standard_normal((200_000, 6)) for _ in n])
    for alpha, value in zip([0.0, 1.5, 3.0], found, strict=True):
        shares = []
        for q, size in zip(drawn, n.astype(int), strict=True):
            spread = rng.chisquare(size - 1, len(q)) / (size - 1)
            std = alpha * np.sqrt((q**2).mean(axis=1) * spread)
            shares.append((std >= math.sqrt(2 * math.log(size))).mean())
        assert value == pytest.approx(np.average(shares, weights=counts), abs=0.004)


def test_many_lengths_are_interpolated(monkeypatch):
    n = np.arange(2.0, 700.0)
    random = RandomScores(32, tuple(n), (1,) * n.size)
    alphas = np.array([0.5, 2.0, 5.0])
    few, limit = random.columns(alphas), random.gradient_limit
    monkeypatch.setattr(random_scores, "NODES", 1000)
    for name, values in random.columns(alphas).items():
        np.testing.assert_allclose(few[name], values, rtol=2e-7, err_msg=name)
    assert limit == pytest.approx(random.gradient_limit, rel=1e-7)


def test_no_theory_beyond_its_range():
    with probe(model := Caller()) as report:
        model(*(draw(1, 1, 4, 4, seed=i) for i in range(3)), scale=1e5)
    line = report.table().loc[0]
    assert line["alpha"] > 1e4
    assert math.isnan(line["random_entropy"])
    assert "nan" not in str(report)
    assert json.loads(report.to_json())["heads"][0]["random_entropy"] is None


# --- the report ---------------------------------------------------------------------------------


def test_the_table_has_one_line_for_each_layer_and_head(random_report):
    table = random_report.table()
    assert list(table.columns) == list(DEFINITIONS)
    assert list(table[["layer", "head"]].itertuples(index=False)) == [("Caller", 0), ("Caller", 1)]
    assert (table["rows"] == 400 * 23).all()  # the first query of each sees one key
    assert random_report.definitions == {**DEFINITIONS, "random": RANDOM}


def test_the_rows_give_the_table(random_report):
    table, rows = random_report.table(), random_report.rows()
    groups = rows.groupby("head")
    for name in ("collision_probability", "entropy", "gradient", "keys"):
        np.testing.assert_allclose(groups[name].mean(), table[name], rtol=1e-12)
    np.testing.assert_allclose(groups["gradient"].median(), table["gradient_median"], rtol=1e-12)
    np.testing.assert_allclose(
        np.sqrt((rows["alpha"] ** 2).groupby(rows["head"]).mean()), table["alpha"]
    )
    assert rows["sequence"].nunique() == 400
    assert (rows["keys"] == rows["query"] + 1).all()


def test_json_holds_the_table(random_report):
    content = json.loads(random_report.to_json())
    assert content["definitions"] == random_report.definitions
    for line, row in zip(content["heads"], random_report.table().to_dict("records"), strict=True):
        assert line == row


def test_what_is_printed_says_what_it_is(random_report):
    text = str(random_report)
    words = " ".join(text.split())
    assert RANDOM in words
    assert "entropy is −Σ p log p in nats" in words
    (line,) = [line for line in text.splitlines() if line.startswith("Caller")]
    table = random_report.table()
    for name in ("alpha", "entropy", "random_entropy", "gradient", "random_gradient"):
        assert f"{table[name].mean():.2f}" in line
    for word in ("should", "better", "too ", "recommend"):
        assert word not in text


def test_the_figure_shows_each_head(random_report):
    figure = random_report.plot()
    axes, bar = figure.axes
    table = random_report.table()
    (dots,) = (drawn for drawn in axes.collections if drawn.get_array() is not None)
    np.testing.assert_allclose(dots.get_offsets()[:, 1], table["effective_keys"])
    across = table["alpha"] / table["critical_alpha"]
    np.testing.assert_allclose(dots.get_offsets()[:, 0], across)
    assert "layer" in bar.get_ylabel()
    assert "keys" in axes.get_ylabel()
    assert "α" in axes.get_xlabel()
    assert (axes.get_xscale(), axes.get_yscale()) == ("log", "log")
    curves = [line.get_xdata() for line in axes.lines if line.get_linestyle() == "-"]
    for curve in curves:  # of random scores: from below the first head to beyond freezing
        assert (np.diff(curve) > 0.0).all()
        assert curve[-1] > 1.0
    assert min(map(min, curves)) < across.min()
    assert max(map(max, curves)) > across.max()
    plt.close(figure)


def test_a_copy_of_the_report_outlives_the_model(random_report):
    assert copy.deepcopy(random_report).to_json() == random_report.to_json()


def test_rescaling_is_asked_for_by_thread():
    assert not attention.is_rescaled()


def test_the_example_of_the_readme_runs(capsys):
    text = (ROOT / "README.md").read_text("utf-8")
    (code,) = (
        code for code in re.findall(r"```python\n(.*?)```", text, re.DOTALL) if "probe" in code
    )
    exec(code, {"model": encoder(), "x": foreign.vectors()})
    assert "layers.1.self_attn" in capsys.readouterr().out


@pytest.mark.parametrize("size", [24, 25])
def test_theory_at_the_longest_of_many_rows_is_not_interpolated(size):
    n = np.arange(2.0, 2.0 + size)
    longest = RandomScores(16, tuple(n), (*(0,) * (size - 1), 7))
    assert longest.gradient_limit == pytest.approx(
        float(exact.gradient_limit(DotProduct(16), n[-1])), rel=1e-12
    )
    before = RandomScores(16, tuple(n), (*(0,) * (size - 2), 5, 0))
    expected = float(exact.gradient_limit(DotProduct(16), n[-2]))
    assert before.gradient_limit == pytest.approx(expected, rel=1e-12 if size == 24 else 1e-6)


def test_queries_of_length_zero_have_no_curve_of_random_scores():
    k, v = draw(1, 2, 6, 4, seed=1), draw(1, 2, 6, 4, seed=2)
    with probe(model := Caller()) as report:
        model(torch.zeros_like(k), k, v)
    assert (report.table()["alpha"] == 0.0).all()
    figure = report.plot()
    assert [line for line in figure.axes[0].lines if line.get_linestyle() == "-"] == []
    plt.close(figure)


def test_what_was_read_is_brought_up_to_date():
    with probe(model := Caller()) as report:
        model(*(draw(1, 1, 4, 3, seed=i) for i in range(3)))
        first = report.table()["entropy"].tolist()
        model(*(draw(1, 1, 4, 3, seed=i) for i in range(3, 6)))
    assert report.table()["entropy"].tolist()[: len(first)] != first or len(report.table()) > 1


def test_theory_reaches_to_its_largest_scale():
    found = RandomScores(16, (2.0, 30.0), (1, 1)).columns(np.array([1e4, 10_001.0]))
    for name, values in found.items():
        assert np.isfinite(values).tolist() == [True, False], name


def test_random_keys_are_one_over_their_collisions():
    found = RandomScores(16, (2.0, 30.0), (1, 3)).columns(np.array([0.5, 4.0]))
    product = found["random_effective_keys"] * found["random_collision_probability"]
    np.testing.assert_allclose(product, 1.0, rtol=1e-14)


def test_layers_are_coloured_in_the_order_of_the_calls():
    class Two(nn.Module):
        def __init__(self):
            super().__init__()
            self.z, self.a = Caller(), Caller()

    model, inputs = Two(), [draw(1, 1, 4, 3, seed=i) for i in range(3)]
    with probe(model) as report:
        model.z(*inputs)
        model.a(*inputs)
    assert report.table()["layer"].tolist() == ["z", "a"]
    figure = report.plot()
    (dots,) = (one for one in figure.axes[0].collections if one.get_array() is not None)
    assert dots.get_array().tolist() == [0, 1]
    plt.close(figure)


@pytest.mark.parametrize(("d", "n", "alpha"), [(6, 10, 1.5), (16, 30, 2.0), (64, 300, 3.0)])
def test_the_share_that_freezes_is_an_integral_over_the_length_of_the_query(d, n, alpha):
    def share(square):
        wanted = (n - 1) * 2 * math.log(n) * d / (alpha**2 * square)
        return stats.chi2.pdf(square, d) * stats.chi2.sf(wanted, n - 1)

    expected, _ = quad(share, 0.0, np.inf, epsabs=1e-10)
    found = RandomScores(d, (float(n),), (1,)).columns(np.array([alpha]))["random_wide"]
    assert found == pytest.approx(expected, abs=5e-4)
