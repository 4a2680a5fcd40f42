"""The C extensions of nodectl; everything else stands in pyproject.toml.

They keep to CPython's stable ABI, so that one wheel serves every version from 3.11 on.
"""

import os
import tempfile

from setuptools import Extension, setup
from setuptools.command.build_ext import build_ext

STABLE_ABI_OF_3_11 = "0x030B0000"
WARNINGS = ["-std=gnu11", "-Wall", "-Wextra", "-Wshadow"]
KERNEL_C = "nodectl/kernel/c"
SPANK_C = "nodectl/spank/c"
COMMAND_C = "nodectl/client/c"
LAUNCH_C = "nodectl/launch/c"
COMMAND = ["main", "step", "python", "request", "program", "cluster", "job", "words", "wire", "json", "buffer"]
KERNEL = [
    "kernel", "lanes", "lane", "launch", "move", "operation", "operation_bind", "operation_open", "operation_confine",
    "operation_report", "system", "trace", "clock", "shared", "socket", "confine", "devices",
]  # fmt: skip
SPANK_HOST = [
    "host", "load", "container", "walk", "link", "libslurm", "job", "message", "option", "environment", "item",
    "python", "hook", "guard", "handle", "kernel", "memory",
]  # fmt: skip
# The releases of libslurm that plugins are linked with: Slurm 20.11 to 26.05.
LIBSLURM_RELEASES = range(36, 46)


class BuildAll(build_ext):
    """The extensions, and what else a compiler makes: two commands, and the stand-ins."""

    def run(self) -> None:
        """Each into the place where its kind is built."""
        super().run()
        self._build_command()
        self._build_hand_over()
        self._build_stand_ins()

    def _build_command(self) -> None:
        """`nodectl`, which stands beside the command in Python."""
        sources = [f"{COMMAND_C}/{name}.c" for name in COMMAND]
        objects = self.compiler.compile(sources, output_dir=self.build_temp, extra_postargs=WARNINGS)
        place = self.get_finalized_command("build_scripts").build_dir
        self.compiler.link_executable(objects, "nodectl", output_dir=place, extra_postargs=["-Wl,-z,now"])

    def _build_hand_over(self) -> None:
        """`hand_over`, which tasks execute with --preload."""
        sources = [f"{LAUNCH_C}/hand_over.c"]
        objects = self.compiler.compile(sources, output_dir=self.build_temp, extra_postargs=WARNINGS)
        package = os.path.dirname(os.path.dirname(self.get_ext_fullpath("nodectl.kernel._kernel")))
        place = os.path.join(package, "launch", "c")
        self.compiler.link_executable(objects, "hand_over", output_dir=place, extra_postargs=["-Wl,-z,now"])

    def _build_stand_ins(self) -> None:
        """libslurm/libslurm.so.N: libraries with nothing but that name, for plugins linked with one that is not
        installed.
        """
        package = os.path.dirname(self.get_ext_fullpath("nodectl.spank._spank_host"))
        os.makedirs(os.path.join(package, "libslurm"), exist_ok=True)
        with tempfile.TemporaryDirectory() as scratch:
            source = os.path.join(scratch, "empty.c")
            with open(source, "w", encoding="ascii") as file:
                file.write("typedef int nothing;\n")
            objects = self.compiler.compile([source], output_dir=scratch, extra_postargs=["-fPIC"])
            for release in LIBSLURM_RELEASES:
                name = f"libslurm.so.{release}"
                arguments = ["-nostdlib", f"-Wl,-soname,{name}"]
                self.compiler.link_shared_object(
                    objects, os.path.join(package, "libslurm", name), extra_postargs=arguments
                )


setup(
    ext_modules=[
        Extension(
            "nodectl.kernel._kernel",
            sources=[f"{KERNEL_C}/{name}.c" for name in KERNEL],
            depends=[
                f"{KERNEL_C}/{name}.h" for name in ("kernel", "kernel_calls", "launch", "system", "operation", "raw")
            ],
            define_macros=[("Py_LIMITED_API", STABLE_ABI_OF_3_11)],
            extra_compile_args=WARNINGS,
            # A task that shares its parent's memory must not run the linker in it.
            extra_link_args=["-Wl,-z,now"],
            py_limited_api=True,
        ),
        Extension(
            "nodectl.kernel._namespace",
            sources=[f"{KERNEL_C}/{name}.c" for name in ("namespace", "system")],
            depends=[f"{KERNEL_C}/system.h"],
            define_macros=[("Py_LIMITED_API", STABLE_ABI_OF_3_11)],
            extra_compile_args=WARNINGS,
            py_limited_api=True,
        ),
        Extension(
            "nodectl.spank._spank_host",
            sources=[f"{SPANK_C}/{name}.c" for name in SPANK_HOST],
            depends=[f"{SPANK_C}/host.h", f"{KERNEL_C}/kernel_calls.h"],
            include_dirs=["nodectl/include", KERNEL_C],
            define_macros=[("Py_LIMITED_API", STABLE_ABI_OF_3_11)],
            extra_compile_args=[*WARNINGS, "-fvisibility=hidden"],
            # It is preloaded: Python's functions must not be asked for before they are called.
            extra_link_args=["-Wl,-z,lazy"],
            py_limited_api=True,
        ),
    ],
    cmdclass={"build_ext": BuildAll},
    options={"bdist_wheel": {"py_limited_api": "cp311"}},
)
