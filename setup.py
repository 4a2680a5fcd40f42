"""The C extension of nodectl; everything else stands in pyproject.toml.

The extension keeps to CPython's stable ABI, so that one wheel serves every version from 3.11 on.
"""

from setuptools import Extension, setup

STABLE_ABI_OF_3_11 = "0x030B0000"

setup(
    ext_modules=[
        Extension(
            "nodectl._kernel",
            sources=["nodectl/_kernel.c"],
            define_macros=[("Py_LIMITED_API", STABLE_ABI_OF_3_11)],
            extra_compile_args=["-std=gnu11", "-Wall", "-Wextra"],
            py_limited_api=True,
        )
    ],
    options={"bdist_wheel": {"py_limited_api": "cp311"}},
)
