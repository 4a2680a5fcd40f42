"""Sphinx's settings for the site, as docs/site/stage.py puts it together."""

from nodectl import __version__

project = "nodectl"
version = release = __version__
html_title = "nodectl"
extensions = ["myst_parser"]
myst_enable_extensions = ["deflist"]
myst_heading_anchors = 4
smartquotes = False  # which would make one dash of the two of an option
html_theme = "furo"
html_css_files = ["site.css"]
html_static_path = ["_static"]
html_copy_source = False
html_show_sphinx = False
html_show_copyright = False
pygments_style = "friendly"
pygments_dark_style = "github-dark"
highlight_language = "text"
# Sources that are shown in part are lexed as far as they go.
suppress_warnings = ["misc.highlighting_failure"]
html_theme_options = {
    "light_css_variables": {"color-brand-primary": "#00695c", "color-brand-content": "#00695c"},
    "dark_css_variables": {"color-brand-primary": "#4db6ac", "color-brand-content": "#4db6ac"},
}
