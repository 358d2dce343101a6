"""Public names of Keras modules and their arguments, read from the installed package's files, because importing Keras takes seconds."""

import ast
import importlib.util
from functools import cache
from pathlib import Path


@cache
def keras_names(module: str) -> tuple[str, ...]:
    """Classes and functions that `module` ("keras.optimizers", "keras.applications") exports, but for its submodules.

    Empty where Keras is not installed or is laid out otherwise; the name is then checked when it is used.
    """
    return tuple(_exported(module))


@cache
def keras_arguments(module: str, name: str) -> tuple[str, tuple[str, ...]] | None:
    """(name as in Keras, its constructor's arguments) of the class of `module` that `name` means in whatever case.

    None where there is none, or Keras is laid out otherwise.
    """
    plain = name.lower().replace("_", "")
    title, home = next((found for found in _exported(module).items() if found[0].lower() == plain), ("", ""))
    tree = _parsed(home, "") if home else None
    if tree is None:
        return None
    for node in tree.body:
        if isinstance(node, ast.ClassDef) and node.name == title:
            for method in node.body:
                if isinstance(method, ast.FunctionDef) and method.name == "__init__":
                    return title, tuple(one.arg for one in (*method.args.args, *method.args.kwonlyargs))
    return None


def _exported(module: str) -> dict[str, str]:
    """Name -> module that it is imported from."""
    package = module.partition(".")[0]
    tree = _parsed(module, "__init__")
    imports = [node for node in ast.walk(tree) if isinstance(node, ast.ImportFrom)] if tree else []
    return {alias.asname or alias.name: node.module for node in imports if node.module and node.module.startswith(f"{package}.src")
            for alias in node.names if alias.name[:1].isupper()}


def _parsed(module: str, file: str) -> ast.Module | None:
    """The parsed file of a module, or `file` in its folder."""
    package, _, rest = module.partition(".")
    spec = importlib.util.find_spec(package)
    if spec is None or not spec.submodule_search_locations:
        return None
    source = Path(spec.submodule_search_locations[0], *rest.split("."))
    try:
        return ast.parse((source / f"{file}.py" if file else source.with_suffix(".py")).read_text(encoding="utf-8"))
    except (OSError, SyntaxError):
        return None
