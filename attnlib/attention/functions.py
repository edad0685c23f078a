"""Names of functions of PyTorch, by what they do to logits and weights, as patterns."""

import re

PRODUCTS = re.compile("__r?matmul__|matmul|linalg_matmul|bmm|baddbmm_?|einsum")
PLAIN = ("matmul", "__matmul__", "bmm")
SOFTMAXES = ("softmax", "_softmax", "special_softmax")
COMPOSED = re.compile("softmin|(?!log).*_softmax")
"""Functions that make weights of logits inside, where they cannot be changed."""
CONTRACTIONS = re.compile(
    f"{PRODUCTS.pattern}|(_?sparse_)?(add)?(mm|mv)|addbmm|tensordot|inner|linear|(linalg_)?(vec)?dot"
)
"""Functions that may average values with weights."""
KERNELS = re.compile("(?!flex_).*(attention|attn).*")
OPERANDS = ("input", "batch1", "batch2", "mat2", "other")
"""The names of a product's operands as keywords, in their order."""
ENDS = re.compile(
    "linear|conv.d|.*_norm|embedding|.*_loss|cross_entropy|grad|scaled_.*|(linalg_)?(svd|eigh?|qr)"
)
"""Functions whose results have no record."""
IN_PLACE = re.compile(".*[^_]_|__setitem__|__i(add|sub|mul|truediv|div|pow|and|or)__")
EXCHANGES = re.compile("transpose|permute|mT|T|swap.*|move.*|flip|roll|gather|index_select|take.*")
SCALES = re.compile("(__r?i?)?(mul|truediv|div|multiply|divide)_*")
RESHAPES = re.compile("view.*|reshape.*|.*flatten|.*squeeze")
KEEPS = re.compile(
    f"{RESHAPES.pattern}|{EXCHANGES.pattern}|(__r?i?)?(add|sub|masked_fill)_*|where|to|float|double|"
    "half|bfloat16|type.*|contiguous|__setitem__|cat|stack|pad|expand.*|dropout|clone|"
    "(__)?getitem(__)?"
)
"""Functions that leave the number that multiplies the product as it is."""
BROADCASTS = re.compile(
    f"{SCALES.pattern}|(__r?i?)?(add|sub|masked_fill)_*|where|to|float|double|half|bfloat16|clone"
)
"""Functions that change each logit by itself."""
SUMS = re.compile("(__r?i?)?(add|sub)_*")
JOINS = re.compile(f"{SUMS.pattern}|cat|concat|concatenate|[hv]?stack|where|__setitem__")
SQUARES = re.compile("square|(__)?pow(__)?|norm|linalg_(vector_)?norm")
FILLS = re.compile("__setitem__|masked_fill_*|where")
AFTER = re.compile(
    f"{RESHAPES.pattern}|to|float|double|half|bfloat16|type.*|contiguous|clone|expand.*|.*dropout.*|"
    "detach_?|data"
)
"""Functions that leave weights as the softmax has made them."""
EXPONENTIALS = re.compile("exp2?_?|expm1_?|__rpow__")
MIXES = re.compile("mul_?|multiply|__r?mul__")
"""Functions that multiply entry by entry."""
RANDOM = re.compile(
    "bernoulli_?|rrelu_?|multinomial|poisson|normal_?|(log_normal|uniform|exponential)_"
)
"""Functions that draw other numbers each time."""
FACTS = re.compile(
    "shape|dtype|device|layout|ndim|dim|size|numel|stride|is_.*|requires_grad|__len__"
)
"""Functions that describe a tensor and return none."""
ALIASES = re.compile(
    "data|__set__|data_ptr|numpy|__array__|.*storage|.*dlpack.*|__cuda_array_interface__"
)
"""Functions that give access to a tensor's memory, where a write does not change its version."""
REPEATS = re.compile(
    f"{KEEPS.pattern}|{SCALES.pattern}|{PRODUCTS.pattern}|{EXPONENTIALS.pattern}|tanh_?|sigmoid_?|"
    "clamp.*|relu.*|softplus|abs_?|neg_?|pow_?|sqrt_?|log_?|log1p_?|tri[lu]_?|max|min|amax|amin"
)
"""Functions that are known to return the same for the same arguments."""
SAME = re.compile(f"{RESHAPES.pattern}|{EXCHANGES.pattern}|masked_fill_*|to|float|contiguous")
NESTS = (list, tuple, dict)
"""Types of arguments that hold others."""
