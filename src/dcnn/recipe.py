"""What is trained when nothing else is said, and files of settings that say something else.

``Config()`` is the network that the paper has for SST, and trains it alone. ``DEFAULT`` is what
``dcnn train``, ``DCNNClassifier`` and all that goes with them start from: chosen on the training
parts of fourteen corpora, see docs/languages.md. The rows of one wide network are its ensemble.
"""

import json
import tomllib
from pathlib import Path

from dcnn.config import Config, DCNNConfig, TrainingConfig
from dcnn.errors import ConfigError

NETWORK = DCNNConfig(dim=96, widths=(7,), maps=(8,), k_top=2)
DEFAULT = Config(model=NETWORK, training=TrainingConfig(members=8))


def load_toml(path: Path) -> Config:
    """Read a config file; what it leaves out is as in ``DEFAULT``."""
    try:
        values = tomllib.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        raise ConfigError(f"{path}: no such file") from None
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigError(f"{path} cannot be read as UTF-8 text ({error})") from error
    except (ValueError, RecursionError) as error:
        raise ConfigError(f"{path} is not valid TOML: {error}") from error
    return DEFAULT.with_tables(values, str(path))


def to_toml(config: Config) -> str:
    """The text of a config file that ``load_toml`` reads as an equal config."""
    sections = [
        "\n".join(
            [
                f"[{name}]",
                *(
                    f"{key} = {json.dumps(value, ensure_ascii=False)}"
                    for key, value in values.items()
                ),
            ]
        )
        for name, values in config.to_dict().items()
    ]
    return "\n\n".join(sections) + "\n"
