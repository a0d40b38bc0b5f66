"""Builds the natives; all else is in pyproject.toml."""

from sysconfig import get_config_var

from setuptools import Extension, setup

# One library for every Python from 3.11 on, but for those without a GIL, which have no
# limited API that old: each of them gets its own.
LIMITED = not get_config_var("Py_GIL_DISABLED")

setup(
    ext_modules=[
        Extension(
            "dlx_check._natives",
            ["src/dlx_check/natives.c"],
            define_macros=[("Py_LIMITED_API", "0x030B0000")] if LIMITED else [],
            extra_link_args=["-pthread"],
            py_limited_api=LIMITED,
        )
    ],
    options={"bdist_wheel": {"py_limited_api": "cp311"}} if LIMITED else {},
)
