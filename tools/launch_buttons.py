"""Sphinx extension: buttons over each chapter that lead to services where it can be run.

Every chapter has a link into the JupyterLite site beside the book (tools/build_lite.py). Binder,
Colab and JupyterHub have to fetch the repository, so their buttons appear only if _config.yml has
its public address, `repository_url`.
"""

from __future__ import annotations

from pathlib import PurePosixPath
from typing import Any

LITE = "lite/notebooks/index.html"
PLACES = ("binderhub_url", "colab_url", "jupyterhub_url")


def usable(options: dict[str, Any]) -> dict[str, Any]:
    """Theme options whose launch buttons all lead somewhere.

    The theme fails on launch buttons without a repository, and warns of Colab for a repository
    that is not on GitHub, which Colab cannot read.
    """
    repository = options.get("repository_url") or ""
    if not repository:
        dropped = ("launch_buttons", "repository_url", "repository_branch")
        return {name: value for name, value in options.items() if name not in dropped}
    places = {name: url for name, url in options.get("launch_buttons", {}).items() if url}
    if "github.com/" not in repository:
        places.pop("colab_url", None)
    return options | {"launch_buttons": places}


def read_settings(app: Any, config: Any) -> None:
    config.html_theme_options = usable(config.html_theme_options)


def add_button(app: Any, pagename: str, template: str, context: dict[str, Any], tree: Any) -> None:
    """A link that opens the chapter with a kernel in the reader's browser."""
    if tree is None or not str(app.env.doc2path(pagename)).endswith(".ipynb"):
        return
    notebook = f"{PurePosixPath(pagename).name}.ipynb"
    context["header_buttons"].insert(
        0,
        {
            "type": "link",
            "url": f"{context['pathto'](LITE, 1)}?path={notebook}",
            "text": "Run",
            "icon": "fas fa-play",
            "tooltip": "Run this chapter in your browser; you need not install anything",
            "label": "run-in-browser",
        },
    )


def setup(app: Any) -> dict[str, Any]:
    app.connect("config-inited", read_settings, priority=100)  # before the theme reads them
    app.connect("html-page-context", add_button, priority=502)  # after the theme's own buttons
    return {"version": "1", "parallel_read_safe": True, "parallel_write_safe": True}
