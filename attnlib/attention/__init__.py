"""Compute attention at any scale, on PyTorch's fused kernels.

- `attend` is scaled_dot_product_attention under a policy or an α of your choice, with a factor on
  the output.
- `rescale` is a context in which an existing model runs at another scale.
- `register` gives a model of transformers another scale for good.
- `is_rescaled` says whether a `rescale` context is active.

The logits are α q·k/√d, so that α = 1 is PyTorch's default, or α cos(q, k) with normalised queries
and keys. One α for all queries goes into the kernel's own `scale`; one for each query multiplies
the queries. So every kernel can be used, and no matrix of scores is kept. Numbers in half precision
are multiplied in float32 and rounded once.

Its modules: `options` checks the arguments of a call and its shapes, `by_query` computes the α of a
query that sees n keys, and `arithmetic` multiplies. `rescaling` and `registration` use these on the
calls that `attnlib.models` intercepts.

Chapter: scaling_rules.
"""

from attnlib.extras import extra_packages

with extra_packages("torch"):
    from attnlib.attention.arithmetic import attend
    from attnlib.attention.registration import register
    from attnlib.attention.rescaling import is_rescaled, rescale

__all__ = ["attend", "is_rescaled", "register", "rescale"]
