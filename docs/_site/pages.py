"""What the site has besides the files of docs/; MkDocs calls it (``hooks`` in mkdocs.yml).

- Four pages are made: the first one from README.md, two from CONTRIBUTING.md and CHANGELOG.md, and
  the reference of the commands from their help texts, so that none of them is written twice.
- A link that leads out of docs/, to a result or a benchmark, works where the repository is read.
  The site does not hold these files, so there the path is told instead; with ``repo_url`` in
  mkdocs.yml it is a link again.
"""

import sys
from pathlib import Path
from typing import Any

from mkdocs.config.defaults import MkDocsConfig
from mkdocs.structure.files import File, Files
from mkdocs.structure.pages import Page

sys.path.append(str(Path(__file__).parent))

from command_reference import command_reference
from links import FROM_ROOT, from_root, without_outside_links

ROOT = Path(__file__).parents[2]


def on_files(files: Files, config: MkDocsConfig) -> Files:
    """Add the pages that are made."""
    for source, name in FROM_ROOT.items():
        content = (ROOT / source).read_text(encoding="utf-8")
        files.append(File.generated(config, name, content=from_root(content)))
    files.append(File.generated(config, "commands.md", content=command_reference()))
    return files


def on_page_markdown(markdown: str, page: Page, config: MkDocsConfig, **_: Any) -> str:
    """Tell the path where a link leads out of docs/."""
    return without_outside_links(markdown, page.file.src_uri, config.repo_url)
