"""Settings of the documentation: sphinx-build -c docs . build/docs, from the repository's root.

The sources are the whole repository, so that the pages of docs/, the experiments' reports and the
notebooks link to each other, and to files, as they do there.
"""

import json
import os
import re
import typing
from pathlib import Path

from docutils.nodes import SkipNode, Text, math
from docutils.utils.math import MathError
from docutils.utils.math.latex2mathml import tex2mathml
from sphinx import addnodes
from sphinx.errors import ExtensionError
from sphinx.util import logging

# jaxtyping then writes Float[Array, '...'] in place of Float[jaxlib._jax.Array, '...'].
typing.GENERATING_DOCUMENTATION = "bnp_models"

from bnp_models import __version__  # noqa: E402
from bnp_models.report.json_schemas import SCHEMAS, json_schema  # noqa: E402

project = "bnp-models"
author = "the bnp-models contributors"
copyright = author
release = version = __version__
root_doc = "docs/index"
language = "en"

extensions = [
    "myst_nb",
    "sphinx.ext.autodoc",
    "sphinx.ext.napoleon",
    "sphinxarg.ext",
]
include_patterns = [
    "docs/**",
    "experiments/**/*.md",
    "notebooks/README.md",
    "notebooks/*.ipynb",
    "bnp_models/datasets/README.md",
    "CHANGELOG.md",
    "CONTRIBUTING.md",
]
exclude_patterns = ["docs/_templates"]
templates_path = ["_templates"]

# Markdown as on the repository's pages: anchors of headings, tables, formulas.
myst_enable_extensions = ["colon_fence", "deflist", "dollarmath"]
myst_heading_anchors = 4
myst_dmath_allow_digits = False
myst_dmath_allow_space = False
nb_execution_mode = "off"
nb_merge_streams = True

autodoc_member_order = "bysource"
autodoc_typehints = "signature"
autodoc_typehints_format = "short"
napoleon_google_docstring = False
napoleon_use_param = False
napoleon_use_rtype = False
napoleon_use_ivar = True
maximum_signature_line_length = 80
toc_object_entries_show_parents = "hide"

default_role = "literal"
highlight_language = "none"

# Types are words or arrays with shapes, often of other packages: they need no link.
nitpicky = True
nitpick_ignore_regex = [("py:class", ".*"), ("py:obj", r"typing\.Annotated\[.*")]

html_theme = "furo"
html_title = "bnp-models"
html_static_path = ["_static"]
html_css_files = ["tables.css"]
html_additional_pages = {"index": "to_docs.html"}
html_show_sourcelink = False
html_copy_source = False
html_show_copyright = False
html_math_renderer = "mathml"


def write_math(as_block):
    """Visitor of formulas: MathML, which browsers show without a network."""

    def visit(translator, node):
        try:
            formula = tex2mathml(node.astext(), as_block=as_block)
            if "after" in node:
                formula = f'<span class="in-one-line">{formula}{node["after"]}</span>'
            translator.body.append(formula)
        except MathError as error:
            text = f"formula {node.astext()!r}: {error}"
            logging.getLogger(__name__).warning(text, location=node, type="math")
        raise SkipNode

    return visit


def keep_together(app, doctree):
    """Make the full stop or comma after a formula a part of it, so that it is in the same line."""
    for formula in [*doctree.findall(math)]:
        following = formula.parent.index(formula) + 1
        for after in formula.parent[following : following + 1]:
            if isinstance(after, Text) and after.startswith((".", ",", ";", ":", ")")):
                formula["after"] = after[0]
                formula.parent[following] = Text(after[1:])


def include_sections(app, docname, source):
    """Put a section of another file where a page has a comment, as <!-- FILE: ## HEADING -->."""

    def section(comment):
        path, heading = Path(app.srcdir, comment[1]), comment[2]
        app.env.note_dependency(str(path))
        text = path.read_text(encoding="utf-8")
        rest = rf"^{re.escape(heading)}\n(.*?)(?=^##? |\Z)"
        found = re.search(rest, text, flags=re.DOTALL | re.MULTILINE)
        if found is None:
            raise ExtensionError(f"{docname}: {comment[1]} has no section {heading!r}")
        return re.sub(r"\]\((?!https?:|#)([^)]+)\)", relinked(path.parent), found[1].strip())

    def relinked(folder):
        here = Path(app.srcdir, docname).parent
        return lambda link: f"]({os.path.relpath(folder / link[1], here)})"

    source[0] = re.sub(r"^<!-- (\S+): (#.*) -->$", section, source[0], flags=re.MULTILINE)


def include_schemas(app, docname, source):
    """Put a JSON Schema where a page has a comment, as <!-- JSON Schema: risk.json -->.

    $defs stands for what the schemas share, which is left out of each.
    """

    def schema(comment):
        schemas = {name: json_schema(name) for name in SCHEMAS}
        shared = {}
        for each in schemas.values():
            shared |= each.pop("$defs")
        found = schemas[comment[1]] if comment[1] in schemas else dict(sorted(shared.items()))
        return f"```json\n{json_lines(found)}\n```"

    source[0] = re.sub(r"^<!-- JSON Schema: (\S+) -->$", schema, source[0], flags=re.MULTILINE)


def json_lines(value, indent=""):
    """JSON in which what fits into a line is in one line."""
    line = json.dumps(value, ensure_ascii=False)
    if not isinstance(value, dict | list) or len(indent) + len(line) < 100:
        return line
    if isinstance(value, list):
        parts = [json_lines(part, indent + "  ") for part in value]
    else:
        pairs = value.items()
        parts = [f"{json.dumps(name)}: {json_lines(part, indent + '  ')}" for name, part in pairs]
    start, *_, end = line
    return f"{start}\n{indent}  " + f",\n{indent}  ".join(parts) + f"\n{indent}{end}"


def complete_tables(app, docname, source):
    """Give a title to the tables that experiments write, which are in no menu."""
    if docname.startswith("experiments/") and not docname.endswith("/README"):
        title = "" if source[0].startswith("# ") else f"# {docname.removeprefix('experiments/')}"
        source[0] = f"---\norphan: true\n---\n\n{title}\n\n{source[0]}"


def adapt_docstring(app, what, name, obj, options, lines):
    """Keep |b| from being a substitution, and types of attributes from being links."""
    if what in ("attribute", "property") and lines and lines[-1].startswith(":type: "):
        # Napoleon takes the words before a colon for a type.
        lines[0] = f"{lines[-1].removeprefix(':type: ')}: {lines[0]}"
        del lines[-1]
    text = re.sub(r"(?<!`)\|(\w+)\|", r"\\|\1\\|", "\n".join(lines))
    for attribute, kind in re.findall(r"^:vartype (\w+): (.*)$", text, flags=re.MULTILINE):
        text = text.replace(f":ivar {attribute}:", f":ivar {attribute}: (*{kind}*)")
    text = re.sub(r"\(\*[^*\n]+\*\)", lambda kind: re.sub(r"\b(?:\w+\.)+\b", "", kind[0]), text)
    lines[:] = re.sub(r"^:vartype .*\n?", "", text, flags=re.MULTILINE).split("\n")


def without_limits(kind):
    """Leave out of a type the limits of a number, which the schemas of the files have."""
    return re.sub(r"~typing\.Annotated\[(~?[\w.]+), [^]]*\]", r"\1", kind)


def adapt_signature(app, what, name, obj, options, signature, returned):
    """Leave out what is no Python: Sphinx shows such a signature with the modules of all types."""
    if signature is None:
        return None
    if signature == "(*args, **kwargs)":
        return "", returned
    signature = without_limits(signature)
    signature = re.sub(r"<class '(?:\w+\.)*(\w+)'>", r"\1", signature).replace("<factory>", "...")
    return signature.replace("~jax.jaxlib._jax.Array", "~jax.Array"), returned


def check_signatures(app, doctree):
    """Warn of signatures that name private modules, or objects of Python."""
    for signature in doctree.findall(addnodes.desc_signature):
        for part in [*signature.findall(Text)]:
            part.parent.replace(part, Text(without_limits(part)))
        found = re.search(
            r"jaxlib|jaxtyping|typing\.|collections\.|~|<|numpy\._", signature.astext()
        )
        if found:
            text = f"{found[0]!r} in the signature {signature.astext()!r}"
            logging.getLogger(__name__).warning(text, location=signature, type="signature")


def setup(app):
    """Hooks of the build."""
    app.connect("autodoc-process-signature", adapt_signature)
    app.connect("doctree-read", check_signatures)
    app.connect("doctree-read", keep_together)
    app.connect("autodoc-process-docstring", adapt_docstring, priority=900)
    app.add_html_math_renderer("mathml", (write_math(False), None), (write_math(True), None))
    app.connect("source-read", include_sections)
    app.connect("source-read", include_schemas)
    app.connect("source-read", complete_tables)
