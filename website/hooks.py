"""Pages of docs/ read alike on GitHub and on the site.

They link to other files of the repository, as GitHub needs it. On the site, each of these files is a page of its own,
so that no link leads outside. Figures with many panels are small beside two columns, so a figure is a link to itself.
Doctests are highlighted as what they are: sessions.
"""

import posixpath
import re
from pathlib import Path

from mkdocs.config.defaults import MkDocsConfig
from mkdocs.structure.files import File, Files
from mkdocs.structure.pages import Page

FENCE = re.compile(r"(^```.*?^```$)", re.MULTILINE | re.DOTALL)
LINK = re.compile(r"(\]\()([^)\s#:]+)((?:#[^)\s]*)?\))")
FIGURE = re.compile(r"^!\[[^\]]*\]\(([^)\s]+\.svg)\)$", re.MULTILINE)
SESSION = re.compile(r"^```python\n(?=>>> )", re.MULTILINE)
PLACES = {"README.md": "index.md", "CONTRIBUTING.md": "contributing.md"}
"""Where files outside of docs/ have their pages, if not in repository/."""


def on_files(files: Files, config: MkDocsConfig) -> Files:
    """Add a page for every file outside of docs/ that a page links to."""
    root = Path(config.config_file_path).parent
    ours = "CONTRIBUTING.md"
    pages = {f"docs/{page.src_uri}": page.content_string for page in files.documentation_pages()}
    pages[ours] = (root / ours).read_text()
    left = [path for source, content in pages.items() for path in linked(content, source)]
    for path in dict.fromkeys([ours, *(path for path in left if not path.startswith("docs/"))]):
        at = root / path
        inside = sorted(f"{path}/{one.name}" for one in at.iterdir() if one.suffix == ".py") if at.is_dir() else []
        for each in [path, *inside]:
            uri = place_of(each)
            if files.get_file_from_path(uri) is None:
                files.append(File.generated(config, uri, content=page_of(root / each, each, inside)))
    return files


def on_page_markdown(markdown: str, *, page: Page, config: MkDocsConfig, files: Files) -> str:
    """Point links at pages of the site, and mark sessions."""
    source = next((path for path, uri in PLACES.items() if uri == page.file.src_uri and uri != "index.md"), None)
    source = source or f"docs/{page.file.src_uri}"
    here = posixpath.dirname(page.file.src_uri)

    def point(link: re.Match[str]) -> str:
        path = posixpath.normpath(posixpath.join(posixpath.dirname(source), link[2]))
        return f"{link[1]}{posixpath.relpath(place_of(path), here or '.')}{link[3]}"

    if not page.file.src_uri.startswith("repository/"):
        markdown = FIGURE.sub(r"[\g<0>](\g<1>)", markdown)
        parts = FENCE.split(markdown)
        markdown = "".join(part if FENCE.fullmatch(part) else LINK.sub(point, part) for part in parts)
    return SESSION.sub("```pycon\n", markdown)


def linked(markdown: str, source: str) -> list[str]:
    """Return what a page links to inside the repository, as paths from its root."""
    folder = posixpath.dirname(source)
    return [posixpath.normpath(posixpath.join(folder, link[2])) for link in LINK.finditer(FENCE.sub("", markdown))]


def place_of(path: str) -> str:
    """Return where the site has a file or a folder of the repository."""
    if path.startswith("docs/"):
        return path.removeprefix("docs/")
    return PLACES.get(path, f"repository/{path}.md")


def page_of(file: Path, path: str, inside: list[str]) -> str:
    """Return the page of a file or of a folder."""
    if file.suffix == ".md":
        return file.read_text()
    if file.is_dir():
        folder = posixpath.basename(path)
        content = "\n".join(f"- [{one.rsplit('/', 1)[-1]}]({folder}/{one.rsplit('/', 1)[-1]}.md)" for one in inside)
    else:
        content = f"```{file.suffix.removeprefix('.')}\n{file.read_text()}```"
    return f"---\nsearch:\n  exclude: true\n---\n\n# {path}\n\n{content}\n"
