"""Exact multi-token-prediction decoding for local language models on MLX.

    import mtplx

    model = mtplx.load("path/to/model")
    for event in model.stream("Write a haiku about rain.", depth=3, temperature=0.7, seed=1):
        print(event.text, end="", flush=True)

    result = model.generate("def fib(n):", raw=True, max_tokens=64)
    print(result.text, result.stats)

`load` opens a model folder; `Model.stream` yields an `Event` for each piece of text and ends with
one that carries the whole `Generation`; `Model.session` keeps a conversation. The options of all
three are the fields of `GenerationOptions`. Every error is an `MTPLXError`.

Importing the package is cheap: MLX is loaded when one of these names is first used.
"""

import importlib
from typing import TYPE_CHECKING

from mtplx.version import __version__

if TYPE_CHECKING:
    from mtplx.contracts.errors import MTPLXError
    from mtplx.runtime.decode.options import GenerationOptions
    from mtplx.runtime.decode.result import Event, Generation
    from mtplx.runtime.loading.folder import load
    from mtplx.runtime.model import Model

__all__ = [
    "Event",
    "Generation",
    "GenerationOptions",
    "MTPLXError",
    "Model",
    "__version__",
    "load",
]

_HOMES = {
    "Event": "mtplx.runtime.decode.result",
    "Generation": "mtplx.runtime.decode.result",
    "GenerationOptions": "mtplx.runtime.decode.options",
    "MTPLXError": "mtplx.contracts.errors",
    "Model": "mtplx.runtime.model",
    "load": "mtplx.runtime.loading.folder",
}


def __getattr__(name: str) -> object:
    if name not in _HOMES:
        raise AttributeError(f"module 'mtplx' has no attribute {name!r}")
    home = _HOMES[name]
    if home.startswith("mtplx.runtime."):
        # Without a back end `import mlx` fails in words that help nobody.
        from mtplx.kernels.backend import ensure_backend

        ensure_backend()
    value: object = getattr(importlib.import_module(home), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
