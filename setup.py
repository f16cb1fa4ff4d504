"""Builds the fast G-convolution, where there is a C compiler; everything else about the package is in pyproject.toml.

Without a compiler, or on a processor without the instructions it needs, the package works all the same, with dense convolutions.
"""

import importlib.util
import platform
from pathlib import Path

from setuptools import Extension, setup
from setuptools.command.build_ext import build_ext

KERNELS = Path(__file__).parent / "src" / "dsfcnn" / "kernels"


class BuildKernels(build_ext):
    """Writes banks.h by kernels/bank.py, which needs nothing but Python, and compiles."""

    def build_extension(self, ext: Extension) -> None:
        spec = importlib.util.spec_from_file_location("bank", KERNELS / "bank.py")
        bank = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(bank)
        shared = self.build_temp
        folder = Path(shared) / ext.name  # objects of the same files, for other processors
        folder.mkdir(parents=True, exist_ok=True)
        (folder / "banks.h").write_text(bank.write_banks())
        ext.include_dirs, self.build_temp = [str(folder)], str(folder)
        try:
            super().build_extension(ext)
        finally:
            self.build_temp = shared

    def get_export_symbols(self, ext: Extension) -> list[str]:
        return []  # loaded by ctypes: there is no Python module inside


# AVX2 and FMA, and AVX-512; the loader asks the processor before it uses them. Elsewhere what the compiler takes for granted. Tuned for
# the first processors with AVX-512, the second is 4 to 6 % faster on small maps than tuned for none, also on later ones of another maker.
X86 = {"_gconv": ["-march=x86-64-v3"], "_gconv_avx512": ["-march=x86-64-v4", "-mtune=skylake-avx512"]}
ARCHITECTURES = X86 if platform.machine() in ("x86_64", "AMD64") else {"_gconv": []}

setup(
    ext_modules=[
        Extension(
            f"dsfcnn.kernels.{name}",
            sources=[f"src/dsfcnn/kernels/{source}.c" for source in ("gconv", "fields", "weights", "pool", "threads")],
            depends=[f"src/dsfcnn/kernels/{header}" for header in ("bank.py", "vectors.h", "threads.h", "weights.h")],
            # Never -ffast-math: it changes the rounding of the whole process.
            extra_compile_args=["-O3", "-ffp-contract=fast", "-std=gnu11", "-pthread", *architecture],
            extra_link_args=["-pthread"],
            optional=True,
        )
        for name, architecture in ARCHITECTURES.items()
    ],
    cmdclass={"build_ext": BuildKernels},
)
