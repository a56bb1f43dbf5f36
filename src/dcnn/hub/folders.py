"""A folder as the place where models are shared: a network drive, or a test's own."""

import shutil
from dataclasses import dataclass
from pathlib import Path

from dcnn import artifact as model_folder
from dcnn.errors import ModelFolderError, StorageError, UserError
from dcnn.files import write_folder_atomically


@dataclass(frozen=True)
class SharedFolder:
    """A model folder that others can read."""

    path: Path

    def put(self, files: dict[str, bytes], message: str) -> str:  # noqa: ARG002
        """Write the files as a model folder, whole or not at all; returns where they are.

        Raises:
            UserError: something else than a model folder is there.
            StorageError: the disk refused; what was there is untouched.
        """
        model_folder.check_destination(self.path, overwrite=True)
        with write_folder_atomically(self.path) as folder:
            for name, content in files.items():
                (folder / name).write_bytes(content)
        return str(self.path)

    def get(self, into: Path) -> str:
        """Copy the files of a model folder, and no others; returns where they are from.

        Raises:
            ModelFolderError: there is no such folder, or no model in it.
            StorageError: a file cannot be copied.
        """
        if not self.path.is_dir():
            raise ModelFolderError(f"{self.path}: no such model folder")
        if not (self.path / model_folder.CONFIG).is_file():
            raise ModelFolderError(
                f"{self.path} holds no model: {model_folder.CONFIG} is missing; "
                "name a folder that `dcnn train` or `dcnn push` has written"
            )
        for name in model_folder.FILES:
            if (self.path / name).is_file():
                try:
                    shutil.copyfile(self.path / name, into / name)
                except OSError as error:
                    raise StorageError(
                        f"{self.path / name} cannot be copied ({error.strerror}); try again"
                    ) from error
        return str(self.path)


def check_options(
    path: Path, revision: str | None, private: bool, message: str | None = None
) -> None:
    """Refuse what only the hub can do.

    Raises:
        UserError: a revision, privacy or a message is asked of a folder, which has no commits.
    """
    asked = {
        "--revision": revision is not None,
        "--private": private,
        "--message": message is not None,
    }
    for option, given in asked.items():
        if given:
            raise UserError(
                f"{option} is for the Hugging Face hub and {path} is a folder; leave it out, or "
                "name OWNER/NAME"
            )
