"""Compiled kernels: ordinary Python files in Cython's pure-Python mode.

Each module here is compiled to an extension at install; the same source runs uncompiled, and tests/twins compares
both. A kernel owns no socket and no clock, does no I/O, and never calls another kernel: a stage hands arrays from one
to the next. Kernels that read octets from peers check every bound.

Uncompiled is a visible mode: `is_compiled` is shown by every stage's status.
"""

import functools
import inspect
from importlib import import_module
from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path

NAMES = tuple(sorted(path.stem for path in Path(__file__).parent.glob("*.py") if path.name != "__init__.py"))


def is_compiled() -> bool:
    """Tell whether every kernel runs compiled."""
    return all(not (import_module(f"{__name__}.{name}").__file__ or ".py").endswith(".py") for name in NAMES)


def uncompiled(name: str):
    """Return a fresh copy of kernel module `name` that runs from its source, whatever is installed (for twin tests)."""
    spec = spec_from_file_location(f"{__name__}._uncompiled_{name}", Path(__file__).with_name(f"{name}.py"))
    module = module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def view_arguments(namespace: dict) -> None:
    """Make the public functions of an uncompiled kernel see memoryviews where they are given numpy arrays.

    A kernel calls this at its end when it runs uncompiled. Items of a memoryview are plain Python integers, so
    arithmetic does not wrap or promote as that of numpy scalars does.
    """
    for name, thing in list(namespace.items()):
        if inspect.isclass(thing) and thing.__module__ == namespace["__name__"]:
            for method_name, method in list(vars(thing).items()):
                if inspect.isfunction(method) and (method_name == "__init__" or not method_name.startswith("_")):
                    setattr(thing, method_name, _viewing(method))
        elif inspect.isfunction(thing) and thing.__module__ == namespace["__name__"] and not name.startswith("_"):
            namespace[name] = _viewing(thing)


def _viewing(function):
    import numpy as np

    @functools.wraps(function)
    def call(*arguments, **named):
        return function(
            *(memoryview(value) if isinstance(value, np.ndarray) else value for value in arguments),
            **{key: memoryview(value) if isinstance(value, np.ndarray) else value for key, value in named.items()},
        )

    return call
