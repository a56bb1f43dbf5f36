"""The package's build hook: compile the native backend into the wheel or the checkout.

It serves wheels and editable installs alike. Where there is no compiler, or it fails, the package
is built all the same, for any platform, and one line says so: the other backends do the work.
"""

import importlib.util
import sysconfig
from pathlib import Path
from typing import Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface


class NativeBuildHook(BuildHookInterface):
    """Runs ``native/build.py`` before files are collected."""

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:  # noqa: ARG002
        """Compile, and add what was compiled to ``build_data``."""
        root = Path(self.root)
        specification = importlib.util.spec_from_file_location("build", root / "native/build.py")
        assert specification is not None and specification.loader is not None  # noqa: S101, PT018
        native = importlib.util.module_from_spec(specification)
        specification.loader.exec_module(native)
        try:
            library = native.build()
        except (native.BuildError, OSError) as error:
            self.app.display_warning(f"dcnn is installed without its native backend: {error}")
            return
        self.app.display_info(f"built {library.name}")
        # The library is ignored by git, and files that are ignored stay out unless named.
        build_data["artifacts"] += [
            f"src/dcnn/ops/{library.name}",
            f"src/dcnn/ops/{library.with_suffix('.crc32').name}",
        ]
        # It talks to any Python through ctypes: the wheel is bound to the platform alone.
        platform = sysconfig.get_platform().replace("-", "_").replace(".", "_")
        build_data["pure_python"] = False
        build_data["tag"] = f"py3-none-{platform}"
