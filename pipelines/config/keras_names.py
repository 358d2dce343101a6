"""Public names of Keras modules, read from the installed package's files, because importing Keras takes seconds."""

import ast
import importlib.util
from functools import cache
from pathlib import Path


@cache
def keras_names(module: str) -> tuple[str, ...]:
    """Classes and functions that `module` ("keras.optimizers", "keras.applications") exports, but for its submodules.

    Empty where Keras is not installed or is laid out otherwise; the name is then checked when it is used.
    """
    package, _, rest = module.partition(".")
    spec = importlib.util.find_spec(package)
    if spec is None or not spec.submodule_search_locations:
        return ()
    source = Path(spec.submodule_search_locations[0], *rest.split("."), "__init__.py")
    try:
        tree = ast.parse(source.read_text(encoding="utf-8"))
    except (OSError, SyntaxError):
        return ()
    imports = [node for node in ast.walk(tree) if isinstance(node, ast.ImportFrom) and (node.module or "").startswith(f"{package}.src")]
    return tuple(alias.asname or alias.name for node in imports for alias in node.names if alias.name[:1].isupper())
