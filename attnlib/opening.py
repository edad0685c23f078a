"""Open somebody else's model as data: none of its code runs, and there is a limit to its size.

A folder of transformers may name Python files to run, its weights may be a pickle, which runs what
it likes, and a short configuration may ask for any number of layers.
"""

import os
import pickle
import warnings
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.modules import module as torch_module

MOST_LAYERS = 10_000
"""The deepest model that anybody trains has a thousand; configurations list something for each."""

MOST_MODULES = 100_000
"""Of the largest models with an expert apiece as a module some have 60,000."""

UNKNOWN_MEMORY = 2**40
"""What a machine may have that does not say."""


def open_model(
    name: str, *, trust_remote_code: bool = False, language: bool = False
) -> tuple[Any, Any]:
    """Return the tokenizer and the model of a name on Hugging Face, of a folder, or of a GGUF file.

    A file that ends in .gguf is read by transformers with the packages gguf and accelerate.
    With `language` the model is one that says the next token, and has a loss. Code that the model
    brings is run with `trust_remote_code` only. Weights are read from safetensors, from GGUF, or
    from a pickle of tensors and nothing else. Raises ValueError, with the reason in a line, for
    what cannot be opened, and for a configuration of more than 10⁴ layers, of 10⁵ modules, or of
    more parameters than memory holds; warns where weights are missing.
    """
    import transformers

    transformers.logging.set_verbosity_error()
    transformers.logging.disable_progress_bar()
    where, options = name, dict[str, Any](trust_remote_code=trust_remote_code)
    if name.endswith(".gguf"):
        where, options["gguf_file"] = os.path.split(os.path.abspath(name))
    try:
        _check_layers(transformers.PreTrainedConfig.get_config_dict(where, **options)[0])
        tokenizer = transformers.AutoTokenizer.from_pretrained(where, **options)
        with _bounded():
            kind = transformers.AutoModelForCausalLM if language else transformers.AutoModel
            model, found = kind.from_pretrained(
                where,
                attn_implementation="sdpa",
                weights_only=True,
                output_loading_info=True,
                **options,
            )
    except Exception as error:  # its loaders raise whatever their parts raise
        raise ValueError(f"{name} cannot be loaded: {_reason(error)}") from error
    missing = sorted(found["missing_keys"])
    if missing:
        warnings.warn(
            f"{len(missing)} weights are not in the files of {name} and are random, "
            f"{missing[0]} among them",
            stacklevel=2,
        )
    return tokenizer, model.eval()


def _reason(error: Exception) -> str:
    """Return why a model cannot be opened. PyTorch and transformers advise to trust it."""
    text = str(error)
    if "trust_remote_code" in text:
        return "it brings code of its own, which is not run; --trust-remote-code would run it"
    if isinstance(error, pickle.UnpicklingError):
        return "its weights are a pickle of more than tensors, or broken; safetensors are data only"
    if "ignore_mismatched_sizes" in text:
        return "its weights do not have the shapes that its configuration asks for"
    return next(iter(text.splitlines()), type(error).__name__)


def _check_layers(config: Any) -> None:
    """Refuse a number of layers too large to list."""
    for name, value in config.items() if isinstance(config, dict) else ():
        if isinstance(value, dict):
            _check_layers(value)
        elif "layer" in name and isinstance(value, int) and value > MOST_LAYERS:
            raise ValueError(f"{name} must be at most {MOST_LAYERS}, its configuration has {value}")


@contextmanager
def _bounded() -> Iterator[None]:
    """Stop a model that is built in this context before it is too large."""
    modules, size, most = 0, 0, _memory()
    counted: set[tuple[int, str]] = set()

    def count_module(*_: Any) -> None:
        nonlocal modules
        modules += 1
        if modules > MOST_MODULES:
            raise ValueError(f"its configuration asks for more than {MOST_MODULES} modules")

    def count_tensor(module: nn.Module, name: str, tensor: Tensor | None) -> None:
        nonlocal size
        if tensor is None or (id(module), name) in counted:  # loaded in place of an empty one
            return
        counted.add((id(module), name))
        size += tensor.numel() * tensor.element_size()
        if size > most:
            raise ValueError(
                f"its configuration asks for more than {most / 1e9:.0f} GB of parameters, "
                "which is all memory"
            )

    with ExitStack() as hooks:
        for register, count in (
            (torch_module.register_module_module_registration_hook, count_module),
            (torch_module.register_module_parameter_registration_hook, count_tensor),
            (torch_module.register_module_buffer_registration_hook, count_tensor),
        ):
            hooks.callback(register(count).remove)
        yield


def _memory() -> int:
    """Return the bytes of memory of this machine."""
    try:
        return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    except (AttributeError, ValueError, OSError):  # Windows
        return UNKNOWN_MEMORY


def is_finite(outputs: Any) -> bool:
    """Return whether the tensors that a model of transformers has returned hold only numbers."""
    return all(
        bool(torch.isfinite(one).all())
        for one in outputs.values()
        if isinstance(one, Tensor) and one.is_floating_point()
    )
