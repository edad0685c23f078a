"""Record what attnlib does with the models of transformers, family by family.

    python -m experiments.compatibility

takes some minutes of one core, and goes on where it was stopped. Each family is a small model of
two layers with random weights, from a configuration. Attention is written out once more, in
float64, and put in the place of the model's own; each tool must give what that gives, or say in a
line why it does not. When all is recorded the page `compatibility` is written.

Predicted before the first run: every cell is right or refused. That prediction failed in three
places, which are mended: a model that writes attention out, made with the name of a policy, lost
its mask in silence (Bloom); one that does so in some of its layers was changed in the others only
(LongT5); and advice to use sdpa was given to models that refuse it (Gemma 2, GPT-OSS, GPT-J).
"""

from experiments.compatibility.models import (
    FACTOR,
    FAMILIES,
    LENGTH,
    MORE,
    by_hand,
    given,
    mask,
    tiny,
    tokens,
)

__all__ = ["FACTOR", "FAMILIES", "LENGTH", "MORE", "by_hand", "given", "mask", "tiny", "tokens"]
