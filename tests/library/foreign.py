"""Small models that nobody here wrote, with random parameters, and what to call them with.

Each entry of `MODELS` makes a model in evaluation mode and returns it with a function that runs it
on a batch of two sequences. Where it says "padding", the second sequence is shorter.
"""

import torch
from torch import nn
from torch.nn import functional

from experiments.compatibility import tiny

WIDTH, HEADS, LENGTH, SHORT = 32, 4, 12, 7
PADDING = torch.arange(LENGTH) >= torch.tensor([[LENGTH], [SHORT]])


def tokens():
    return torch.randint(0, 60, (2, LENGTH), generator=torch.Generator().manual_seed(1))


def vectors(length=LENGTH, seed=2):
    return torch.randn(2, length, WIDTH, generator=torch.Generator().manual_seed(seed))


def sharpened(model):
    """Return the model with larger queries and keys, so that attention is uneven."""
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            if "in_proj" in name:
                parameter.mul_(3.0)
    return model.eval()


def torch_encoder(dropout=0.1):
    torch.manual_seed(0)
    layer = nn.TransformerEncoderLayer(WIDTH, HEADS, 48, dropout=dropout, batch_first=True)
    return sharpened(nn.TransformerEncoder(layer, 2))


def encoder():
    model = torch_encoder()
    return model, lambda: model(vectors())


def encoder_with_padding():
    model = torch_encoder()
    return model, lambda: model(vectors(), src_key_padding_mask=PADDING)


def decoder_with_padding():
    torch.manual_seed(0)
    layer = nn.TransformerDecoderLayer(WIDTH, HEADS, 48, batch_first=True)
    model = sharpened(nn.TransformerDecoder(layer, 2))
    causal = nn.Transformer.generate_square_subsequent_mask(9)
    return model, lambda: model(
        vectors(9, seed=3), vectors(), tgt_mask=causal, memory_key_padding_mask=PADDING
    )


def llama(**options):
    return tiny("Llama", "sdpa", **options)


def llama_with_padding():
    model = llama()
    return model, lambda: model(tokens(), attention_mask=(~PADDING.flip(1)).long())[0]


def save_tokenizer(path, words):
    """Save a tokenizer of these words in a folder, and return how many tokens it knows."""
    from tokenizers import Tokenizer, models, pre_tokenizers
    from transformers import PreTrainedTokenizerFast

    numbers = {word: number for number, word in enumerate(["?", *dict.fromkeys(words)])}
    tokenizer = Tokenizer(models.WordLevel(numbers, unk_token="?"))
    tokenizer.pre_tokenizer = pre_tokenizers.Whitespace()
    PreTrainedTokenizerFast(tokenizer_object=tokenizer, unk_token="?").save_pretrained(path)
    return len(numbers)


class XCA(nn.Module):
    """Attention of 4 heads of 8, fused or written out; nothing in its name says what it does."""

    num_heads = 4

    def __init__(self, way="matmul", scale=8**-0.5, *, mask=None, sharper=1.0):
        super().__init__()
        torch.manual_seed(0)
        self.wqkv, self.way, self.scale = nn.Linear(WIDTH, 3 * WIDTH), way, scale
        self.mask, self.sharper = mask, sharper

    def forward(self, x):
        q, k, v = self.wqkv(x).unflatten(-1, (3, 4, 8)).permute(2, 0, 3, 1, 4)
        q = q * self.sharper
        mask = 0.0 if self.mask is None else self.mask.to(q)
        if self.way == "fused":
            z = functional.scaled_dot_product_attention(
                q, k, v, None if self.mask is None else mask, scale=self.scale
            )
        elif self.way == "einsum":
            logits = torch.einsum("bhid,bhjd->bhij", q, k) * self.scale + mask
            z = torch.einsum("bhij,bhjd->bhid", torch.softmax(logits, dim=-1), v)
        else:
            z = (q @ k.mT * self.scale + mask).softmax(-1) @ v
        return x + z.transpose(1, 2).flatten(2)


class Core(nn.Module):
    def forward(self, q, k, v):
        return functional.scaled_dot_product_attention(q, k, v, enable_gqa=True)


class Packed(nn.Module):
    """Attention whose projections have any name and order, and whose core is a part of it."""

    def __init__(self, order, name="wqkv", keys=2):
        super().__init__()
        torch.manual_seed(0)
        self.order, self.name, self.keys, self.core = order, name, keys, Core()
        if order == "apart":
            self.to_q, self.to_kv = nn.Linear(32, 32), nn.Linear(32, 16 * keys)
        else:
            setattr(self, name, nn.Linear(32, 8 * (4 + 2 * keys)))

    def forward(self, x):
        if self.order == "apart":
            q, (k, v) = self.to_q(x).unflatten(-1, (4, 8)), self.to_kv(x).chunk(2, -1)
            k, v = k.unflatten(-1, (-1, 8)), v.unflatten(-1, (-1, 8))
        elif self.order == "queries first":
            heads = getattr(self, self.name)(x).unflatten(-1, (-1, 8))
            q, k, v = heads.split((4, self.keys, self.keys), -2)
        else:
            by_key = getattr(self, self.name)(x).unflatten(-1, (self.keys, -1, 8))
            q, k, v = by_key[..., :-2, :].flatten(-3, -2), by_key[..., -2, :], by_key[..., -1, :]
        q, k, v = (part.transpose(1, 2) for part in (q, k, v))
        return x + self.core(q, k, v).transpose(1, 2).flatten(2)


class Performer(nn.Module):
    """Attention without a softmax."""

    def forward(self, x):
        weights = (x @ x.mT).exp()
        return weights / weights.sum(-1, keepdim=True) @ x


MODELS = {
    "torch encoder": encoder,
    "torch encoder, padding": encoder_with_padding,
    "torch decoder, padding": decoder_with_padding,
}
