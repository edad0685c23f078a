"""Open a saved model of any origin as data, without running its code.

A model's folder may name Python files to run, and its weights may be a pickle, which can run any
code.
"""

import os
import pickle
import warnings
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from typing import Any
from unittest import mock


def open_model(
    name: str, *, trust_remote_code: bool = False, language: bool = False, words: bool = True
) -> tuple[Any, Any]:
    """Return the tokenizer and the model of a name on Hugging Face, a folder, or a GGUF file.

    - `name`: the name or the path. A file whose name ends in .gguf is read by transformers with
      the packages gguf and accelerate.
    - `trust_remote_code`: True runs code that the model brings. By default none is run.
    - `language`: True opens a model that predicts the next token, and has a loss.
    - `words`: False leaves out the tokenizer.

    Returns the tokenizer (None without `words`) and the model, in evaluation mode. Weights are read
    from safetensors, from GGUF, or from a pickle that has only tensors. Warns if weights are
    missing. Raises ValueError, with the reason in a line, for a model that cannot be opened.
    """
    import transformers

    transformers.logging.set_verbosity_error()
    transformers.logging.disable_progress_bar()
    folder, options = name, dict[str, Any](trust_remote_code=trust_remote_code)
    if name.endswith(".gguf"):
        folder, options["gguf_file"] = os.path.split(os.path.abspath(name))
    if name.startswith((".", "/", "~")) and not os.path.exists(name):
        raise ValueError(f"{name} cannot be loaded: no such folder")
    try:
        with _use_cache_if_offline(folder):
            load = transformers.AutoTokenizer.from_pretrained
            tokenizer = load(folder, **options) if words else None
            auto = transformers.AutoModelForCausalLM if language else transformers.AutoModel
            model, loading = auto.from_pretrained(
                folder,
                weights_only=True,
                output_loading_info=True,
                **options,
            )
    except Exception as error:  # its loaders raise whatever their parts raise
        raise ValueError(f"{name} cannot be loaded: {_reason(error)}") from error
    missing = sorted(loading["missing_keys"])
    if missing:
        warnings.warn(
            f"{len(missing)} weights are not in the files of {name} and are random, "
            f"{missing[0]} among them",
            stacklevel=2,
        )
    return tokenizer, model.eval()


@contextmanager
def _use_cache_if_offline(folder: str) -> Iterator[None]:
    """Use only the cache inside the context, unless `folder` exists or the hub answers.

    The hub's client would ask six times for each file.
    """
    import huggingface_hub as hub

    timeout = hub.constants.DEFAULT_ETAG_TIMEOUT
    with ExitStack() as stack:
        if not os.path.exists(folder) and not hub.constants.HF_HUB_OFFLINE:
            try:
                hub.get_session().head(hub.constants.ENDPOINT, timeout=timeout)
            except Exception:  # of httpx or of requests, by its version
                stack.enter_context(mock.patch.object(hub.constants, "HF_HUB_OFFLINE", True))
        yield


def _reason(error: Exception) -> str:
    """Return one line on why a model cannot be opened, in place of the loader's long message."""
    text = str(error)
    if "trust_remote_code" in text:
        return "it brings code of its own, which is not run; --trust-remote-code would run it"
    if isinstance(error, pickle.UnpicklingError):
        return "its weights are a pickle of more than tensors, or broken; safetensors are data only"
    if "ignore_mismatched_sizes" in text:
        return "its weights do not have the shapes that its configuration asks for"
    lines = [line.strip() for line in text.splitlines()] or [type(error).__name__]
    return " ".join(lines) if lines[0].endswith(":") else lines[0]
