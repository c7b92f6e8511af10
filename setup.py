"""Compiles the kernels: every file of common/kernels is one extension module (see common/kernels/__init__.py)."""

import os
from pathlib import Path

from Cython.Build import cythonize
from setuptools import Extension, setup

KERNELS = sorted(path for path in Path("common/kernels").glob("*.py") if path.name != "__init__.py")

setup(
    ext_modules=cythonize(
        [
            Extension(
                f"common.kernels.{path.stem}",
                [str(path)],
                extra_compile_args=["-O3", "-g0", "-fno-strict-aliasing", "-Wno-unused-function"],
            )
            for path in KERNELS
        ],
        nthreads=2,
        compiler_directives={
            "language_level": "3",
            "boundscheck": False,
            "wraparound": False,
            "initializedcheck": False,
            "cdivision": True,
            "infer_types": False,
        },
    ),
    options={"build_ext": {"parallel": os.cpu_count()}},
)
