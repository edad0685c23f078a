"""What weights and their gradients tell of each head, beside the interception and differences."""

from typing import Any

import numpy as np
import pytest
import torch
from torch import nn

from attnlib.calibration import from_gradients, scale_gradient
from experiments.compatibility import given, tiny
from tests.library.foreign import Packed

SHARED_GAINS = {"Qwen3", "Gemma3Text", "Persimmon"}
FAMILIES = [
    *("Llama", "Gemma2", "DeepseekV3", "Olmo2", "Phi3", "Cohere", "GPTNeoX", "OPT", "GPT2"),
    *("GPTBigCode", "Bert", "Albert", "ModernBert", "DistilBert", "ViT", "T5", "Whisper"),
    *("Bloom", "GPTJ"),  # which write their softmax out
    *sorted(SHARED_GAINS),
]
X = torch.randn(2, 6, 32, generator=torch.Generator().manual_seed(1), dtype=torch.float64)


def loss(model: nn.Module, batch: Any) -> torch.Tensor:
    """Return a sum of what the model returns, each number with a weight of its own."""
    output = model(**batch) if isinstance(batch, dict) else model(batch)
    output = output if isinstance(output, torch.Tensor) else output[0]
    weights = torch.randn(output.shape, generator=torch.Generator().manual_seed(5))
    return (output * weights.to(output.dtype)).sum()


def prepared(model: nn.Module) -> Any:
    """Return the model in double precision, with gains and biases that are not 1 and 0."""
    with torch.no_grad():
        for weight in model.parameters():
            if weight.ndim == 1:
                weight.add_(0.3 * torch.randn_like(weight))
    return model.double()


def of_family(family: str, **options: Any) -> tuple[Any, Any]:
    batch = given(family, padded=False).items()
    double = {name: x.double() if x.is_floating_point() else x for name, x in batch}
    return prepared(tiny(family, **options)), double


def agree(model: nn.Module, batch: Any, summed: bool = False) -> None:
    """Assert that both ways give the same, and that `check` leaves the gradients as they were."""
    torch.manual_seed(7)  # of the dropout
    loss(model, batch).backward()
    before = {weight: weight.grad for weight in model.parameters()}
    estimate = from_gradients(model, check=(batch, loss))
    assert all(weight.grad is gradient for weight, gradient in before.items())
    torch.manual_seed(7)
    expected = scale_gradient(model, [batch], loss)
    value = expected.value
    rows = [
        next(i for i, own in enumerate(estimate.layers) if f"{name}.".startswith(f"{own}."))
        for name in expected.layers
    ]
    assert estimate.summed == (tuple(estimate.layers) if summed else ())
    if summed:
        value = np.where(np.arange(value.shape[1]) == 0, value.sum(axis=1, keepdims=True), np.nan)
    np.testing.assert_allclose(estimate.value[rows], value, rtol=1e-6, atol=1e-6 * np.nanmax(value))


@pytest.mark.parametrize("family", FAMILIES)
def test_weights_tell_what_the_interception_measures(family):
    agree(*of_family(family), summed=family in SHARED_GAINS)


@pytest.mark.parametrize("keys", [4, 2, 1])
@pytest.mark.parametrize("order", ["queries first", "by key"])
def test_the_order_of_a_packed_matrix_is_found(keys, order):
    layer = Packed(order, "c_attn", keys)
    layer.n_head, layer.head_dim = 4, 8
    agree(nn.Sequential(layer).double(), X)


@pytest.mark.parametrize("options", [{}, {"kdim": 12}, {"bias": False}, {"add_bias_kv": True}])
def test_multi_head_attention(options):
    class Crossed(nn.Module):
        def __init__(self):
            super().__init__()
            self.attention = nn.MultiheadAttention(32, 4, dropout=0.3, batch_first=True, **options)

        def forward(self, x):
            keys = x.flip(1)[..., : self.attention.kdim]
            return self.attention(x, keys, x, need_weights=False)[0]

    agree(prepared(Crossed()), X)


@pytest.mark.filterwarnings("ignore::DeprecationWarning")
def test_products_of_shards_add_up_after_accumulated_gradients():
    model, batch = of_family("Llama")
    for row in (0, 1):
        loss(model, {name: x[row : row + 1] for name, x in batch.items()}).backward()
    weight = model.layers[1].self_attn.q_proj.weight
    product = sum((w * g)[8:16].sum() for w, g in zip(weight.T, weight.grad.T, strict=True))
    assert from_gradients(torch.compile(model)).value[1, 1] == pytest.approx(product.item())


# --- refusals ------------------------------------------------------------------------------------


class Lora(nn.Module):
    def __init__(self, base: nn.Linear) -> None:
        super().__init__()
        self.base_layer, self.weight = base, base.weight

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.base_layer(x)


def gated(part: Any, _: Any) -> None:
    part.q_proj.weight = nn.Parameter(torch.cat([part.q_proj.weight] * 2))
    part.q_proj.register_forward_hook(lambda _, __, output: output[..., :32])


def unused(part: Any, _: Any) -> None:
    part.forward = lambda hidden_states, **_: (hidden_states, None)


def renamed(part: Any, _: Any) -> None:
    part.hidden = part.q_proj
    del part.q_proj
    part.forward = lambda hidden_states, **_: (part.hidden(hidden_states), None)


@pytest.mark.parametrize(
    ("change", "says"),
    [
        (lambda part, other: setattr(part.q_proj, "weight", other.q_proj.weight), "one weight"),
        (lambda part, _: setattr(part, "k_proj", part.q_proj), "k_proj.weight are one weight"),
        (lambda part, _: setattr(part, "q_proj", Lora(part.q_proj)), "q_proj is a Lora, not a"),
        (lambda part, _: part.q_proj.requires_grad_(False), "q_proj.weight is frozen"),
        (unused, "q_proj.weight has no gradient: call this after a backward pass"),
        (gated, "64 channels are not 4 heads of 8: a gate"),
        (renamed, "what makes its queries has no name that is known"),
    ],
)
def test_changed_weights_are_refused_by_name(change, says):
    model, batch = of_family("Llama", num_key_value_heads=4)
    change(model.layers[1].self_attn, model.layers[0].self_attn)
    loss(model, batch).backward()
    with pytest.raises(RuntimeError, match=rf"self_attn \(LlamaAttention\): .*{says}"):
        from_gradients(model)


class Own(nn.Module):
    """Attention whose projections have names of its own."""

    n_head = 2

    def __init__(self) -> None:
        super().__init__()
        self.asks, self.answers, self.tells = (nn.Linear(8, 8) for _ in range(3))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        parts = self.asks(x), self.answers(x), self.tells(x)
        q, k, v = (part.unflatten(-1, (2, 4)).transpose(1, 2) for part in parts)
        return nn.functional.scaled_dot_product_attention(q, k, v)


def test_layers_of_other_names_are_asked_for_and_may_be_named():
    model, x = Own(), torch.randn(2, 5, 8, generator=torch.Generator().manual_seed(0))

    def squared(model: nn.Module, batch: torch.Tensor) -> torch.Tensor:
        return (10.0 * model(batch)).square().mean()

    squared(model, x).backward()
    with pytest.raises(
        RuntimeError, match=r"of queries q_proj, .*qkv.*query_projection and key_pr"
    ):
        from_gradients(model)
    model.query_projection, model.key_projection = "asks", "answers"
    estimate = from_gradients(model, check=(x, squared))
    assert estimate.value.shape == (1, 2)
    model.key_projection = "tells"
    with pytest.raises(RuntimeError, match="the weights of its queries give"):
        from_gradients(model)
