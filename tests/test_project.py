"""The project's outside: the lock, the Makefile, what the pages say, and which package may import which."""

import ast
import importlib.metadata
import os
import re
import shlex
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
import typer
from packaging.markers import default_environment
from packaging.requirements import Requirement
from packaging.version import Version

from pipelines.commands.main import app
from pipelines.config.registry import SHIPPED as DOMAINS

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

ROOT = Path(__file__).resolve().parent.parent
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
PYTHONS = ("3.10", "3.11", "3.12", "3.13")
PAGES = [ROOT / "README.md", ROOT / "CHANGELOG.md", *sorted((ROOT / "docs").rglob("*.md"))]
PACKAGES = ("quartet", "pipelines", *DOMAINS)
LEFT_OUT = {".git", ".venv", "build", "dist", "runs", "node_modules", "__pycache__"}  # not of the project, or made by it
DISTRIBUTIONS = {"mlflow": "mlflow-skinny", "yaml": "pyyaml", "pydantic_core": "pydantic",
                 "sklearn": "scikit-learn", "PIL": "pillow", "tensorflow_datasets": "tensorflow-datasets",
                 "keras_tuner": "keras-tuner", "keras_rs": "keras-rs", "grpc": "grpcio", "tensorflow_serving": "tensorflow-serving-api",
                 "opentelemetry": "opentelemetry-sdk"}
# IPython in its own kernel alone, what keras-hub brings with it, TensorFlow's protobuf, and the files beside answer.py in an export
BROUGHT = {"ipython", "kagglehub", "huggingface-hub", "google", "decode", "runtimes"}
HOSTS = ("pypi." + "org", "pythonhosted", "anaconda." + "org", "conda-" + "forge", "index-" + "url")


def tree() -> Iterator[Path]:
    """Every file of the project."""
    for folder, inner, files in os.walk(ROOT):
        inner[:] = sorted(name for name in inner if name not in LEFT_OUT and not name.endswith((".egg-info", "_cache")))
        yield from (Path(folder) / name for name in sorted(files) if name != ".git")  # a file in a worktree


def modules(package: str) -> list[Path]:
    return sorted((ROOT / package).rglob("*.py"))


def imported(file: Path) -> set[str]:
    """The top packages that a file imports, anywhere in it."""
    found: set[str] = set()
    for node in ast.walk(ast.parse(file.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            found.update(alias.name.partition(".")[0] for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            assert not node.level, f"{file}:{node.lineno}: relative imports are not used here, and this check does not follow them"
            found.add((node.module or "").partition(".")[0])
    return found


def markers(python: str) -> dict[str, str]:
    here = {name: str(value) for name, value in default_environment().items()}
    return {**here, "python_version": python, "python_full_version": f"{python}.5", "sys_platform": "linux", "extra": ""}


# what is installed

def lock_lines() -> list[str]:
    lines = (ROOT / "requirements.lock").read_text(encoding="utf-8").splitlines()
    return [line for line in lines if line.strip() and not line.lstrip().startswith("#")]


def test_lock_pins_names_and_holds_no_address() -> None:
    for line in lock_lines():
        assert re.fullmatch(r"[a-z0-9][a-z0-9._-]*==[A-Za-z0-9.+!]+( ; .+)?", line), line
    text = (ROOT / "requirements.lock").read_text(encoding="utf-8").lower()
    assert not [sign for sign in ("http:", "https:", "://", "file:", "git+", "--") if sign in text.replace("via the following command", "")]


@pytest.mark.parametrize("python", PYTHONS)
def test_lock_is_one_version_of_everything_that_pyproject_asks_for(python: str) -> None:
    here = markers(python)
    pinned: dict[str, Version] = {}
    for line in lock_lines():
        requirement = Requirement(line)
        if requirement.marker is None or requirement.marker.evaluate(here):
            assert requirement.name not in pinned, f"{requirement.name} twice for Python {python}"
            pinned[requirement.name] = Version(next(iter(requirement.specifier)).version)
    wanted = [Requirement(text) for text in [*PROJECT["dependencies"], *PROJECT["optional-dependencies"]["dev"]]]
    for requirement in wanted:
        if requirement.marker is None or requirement.marker.evaluate(here):
            name = requirement.name.lower().replace("_", "-")
            assert name in pinned, f"{name} is not locked for Python {python}: make lock"
            assert requirement.specifier.contains(pinned[name]), f"{name} {pinned[name]} is locked, {requirement} asked for: make lock"


def test_every_library_that_the_code_imports_is_declared() -> None:
    extras = [text for name, texts in PROJECT["optional-dependencies"].items() if name not in ("dev", "bench") for text in texts]
    declared = {Requirement(text).name.lower().replace("_", "-") for text in [*PROJECT["dependencies"], *extras]}
    for package in PACKAGES:
        for file in modules(package):
            outside = imported(file) - set(PACKAGES) - set(sys.stdlib_module_names)
            wanted = {DISTRIBUTIONS.get(name, name.lower().replace("_", "-")) for name in outside}
            assert wanted <= declared | BROUGHT, f"{file.relative_to(ROOT)} imports {wanted - declared}: pyproject.toml does not name it"


def test_version_stands_in_one_place() -> None:
    version = PROJECT["version"]
    installed = [each.version for each in importlib.metadata.distributions(name="keras-quartet")]
    assert set(installed) <= {version}
    said = re.compile(rf"(?<![\d.]){re.escape(version)}(?![\d.])")
    changes = ROOT / "CHANGELOG.md"
    assert not [file for file in tree() if file.suffix in (".py", ".md", ".yaml") and file != changes and said.search(text_of(file))]
    sections = [name for name in re.findall(r"^## \[(.+?)\]", text_of(changes), re.M) if name != "Unreleased"]
    assert sections[0] == version, "the newest released section of CHANGELOG.md is this version's"
    assert not [file for package in PACKAGES for file in modules(package) if "__version__ =" in text_of(file)]


# who imports whom

@pytest.mark.parametrize("package", PACKAGES)
def test_imports_run_from_the_domains_to_pipelines_only(package: str) -> None:
    others = set(DOMAINS) - {package}
    for file in modules(package):
        assert not imported(file) & others, f"{file.relative_to(ROOT)} imports {imported(file) & others}"
        assert "tests" not in imported(file) and "benchmarks" not in imported(file), file


def test_the_command_line_starts_without_tensorflow() -> None:
    heavy = "{'tensorflow', 'keras', 'tensorflow_datasets', 'sklearn', 'scipy', 'matplotlib', 'pyarrow'}"
    done = subprocess.run([sys.executable, "-c", f"import sys, pipelines.commands.main; print(sorted({heavy} & set(sys.modules)))"],
                          cwd=ROOT, capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


# what the pages say

def text_of(file: Path) -> str:
    return file.read_text(encoding="utf-8", errors="replace")


def prose(page: Path) -> str:
    """A page without its blocks of code."""
    return re.sub(r"^```.*?^```", "", text_of(page), flags=re.M | re.S)


def shell_lines(page: Path) -> list[str]:
    """The command lines of a page's sh blocks, and of its inline code; continued lines joined."""
    text = text_of(page).replace("\\\n", " ")
    blocks = re.findall(r"^```(?:sh|bash|console)\n(.*?)^```", text, re.M | re.S)
    inline = re.findall(r"`([^`\n]+)`", prose(page))
    return [line.strip() for line in [*"\n".join(blocks).splitlines(), *inline] if line.strip()]


def called(page: Path, name: str) -> list[list[str]]:
    """The words after each call of a command on a page."""
    found = []
    for line in shell_lines(page):
        try:
            words = shlex.split(line, comments=True)
        except ValueError:
            continue
        while words and (re.fullmatch(r"[A-Z_]+=.*", words[0]) or words[0] in ("time", "$")):
            words = words[1:]
        if words and Path(words[0]).name == name:
            found.append(words[1:])
    return found


def test_commands_on_the_pages_exist_with_their_options() -> None:
    group = typer.main.get_command(app)
    known = {name: {option for parameter in command.params for option in (*parameter.opts, *parameter.secondary_opts)}
             for name, command in group.commands.items()}  # type: ignore[attr-defined]
    seen = set()
    for page in PAGES:
        for words in called(page, "quartet"):
            if not words or words[0] == "--help":
                continue
            assert words[0] in known, f"{page.name}: quartet {' '.join(words)}"
            seen.add(words[0])
            for word in words[1:]:
                option = word.partition("=")[0]
                assert not option.startswith("-") or option in known[words[0]] | {"--help"}, f"{page.name}: quartet {' '.join(words)}"
    assert seen == set(known), f"no page shows {set(known) - seen}"


def test_modules_and_make_targets_on_the_pages_exist() -> None:
    makefile = text_of(ROOT / "Makefile")
    targets = set(re.search(r"^\.PHONY: (.*)", makefile, re.M)[1].split())  # type: ignore[index]
    assert targets <= set(re.findall(r"^([a-z-]+):", makefile, re.M))
    for page in PAGES:
        for words in called(page, "make"):
            assert {word for word in words if "=" not in word} <= targets, f"{page.name}: make {' '.join(words)}"
        for words in called(page, "python"):
            if words[:1] == ["-m"] and words[1].partition(".")[0] in (*PACKAGES, "benchmarks"):
                file = ROOT / Path(*words[1].split(".")).with_suffix(".py")
                assert file.is_file() or (file.with_suffix("") / "__main__.py").is_file(), f"{page.name}: python -m {words[1]}"


def test_ci_calls_the_test_command_of_the_readme() -> None:
    script = text_of(ROOT / ".ci" / "run").splitlines()
    assert "make test" in script and "make lint" in script
    assert ["test"] in called(ROOT / "README.md", "make") and ["demo"] in called(ROOT / "README.md", "make")
    assert os.access(ROOT / ".ci" / "run", os.X_OK)


def test_the_readme_is_short() -> None:
    assert len(text_of(ROOT / "README.md").splitlines()) <= 150


def test_every_page_is_in_the_index() -> None:
    index = text_of(ROOT / "docs/README.md")
    for page in PAGES:
        if page.parent == ROOT / "docs" and page.name != "README.md":
            assert f"]({page.name})" in index, page.name


def test_every_shipped_experiment_is_on_a_page_and_every_named_one_is_shipped() -> None:
    text = "\n".join(text_of(page) for page in PAGES)
    folders = [ROOT / "configs", *(ROOT / "extensions").glob("*/configs")]
    shipped = {file.relative_to(folder).with_suffix("").as_posix() for folder in folders for file in folder.rglob("*.yaml")}
    assert shipped
    for name in shipped:
        assert re.search(rf"\b{name}\b", text), f"{name} is on no page"
    for page in PAGES:
        for words in [*called(page, "quartet"), *([words[2:] for words in called(page, "python") if words[1:2] == ["vision.train"]])]:
            for word in words:
                if re.fullmatch(rf"({'|'.join(DOMAINS)})/[a-z0-9_]+", word):
                    assert word in shipped, f"{page.name}: {word}"


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_links_lead_somewhere(page: Path) -> None:
    for target in re.findall(r"\]\(([^)\s]+)\)", prose(page)):
        if "://" in target:
            continue
        name, _, anchor = target.partition("#")
        file = (page.parent / name) if name else page
        assert file.exists(), f"{page.name}: {target}"
        if anchor:
            heads = re.findall(r"^#+ (.*)", text_of(file), re.M)
            assert anchor in {re.sub(r"[^\w\- ]", "", head.lower()).replace(" ", "-") for head in heads}, f"{page.name}: {target}"


def test_nothing_names_a_machine_or_a_registry() -> None:
    signs = re.compile("|".join([r"(?<![\w.])/" + "work/", r"(?<![\w.])/" + "farm", *map(re.escape, HOSTS)]), re.I)
    for file in tree():
        if file.suffix in (".png", ".jpg", ".npz", ".keras") or file == Path(__file__) or file.name == "Makefile":
            continue
        found = signs.search(text_of(file))
        assert not found, f"{file.relative_to(ROOT)}: {found[0]}"  # type: ignore[index]


# the Makefile

@pytest.fixture
def checkout(tmp_path: Path) -> Path:
    """A folder with the Makefile and a Python that notes what it is asked to install, and installs nothing."""
    folder = tmp_path / "a folder"
    folder.mkdir()
    for name in ("Makefile", "pyproject.toml", "requirements.lock"):
        (folder / name).write_text(text_of(ROOT / name), encoding="utf-8")
    stand_in = folder / "python"
    stand_in.write_text(f"""#!{sys.executable}
import os, pathlib, sys
given = sys.argv[1:]
if given[:1] == ["-c"]:
    sys.argv = given[1:] or [""]
    exec(given[1])
else:
    with open("calls.txt", "a") as log:
        print(*given, file=log)
    if os.path.exists("broken"):
        sys.exit(1)
    if given[:2] == ["-m", "venv"]:
        binary = pathlib.Path(given[-1], "bin")
        binary.mkdir(parents=True, exist_ok=True)
        (binary / "python").unlink(missing_ok=True)
        (binary / "python").symlink_to(os.path.abspath("python"))
""", encoding="utf-8")
    stand_in.chmod(0o755)
    return folder


def make(checkout: Path, *arguments: str) -> tuple[int, list[str]]:
    """The exit status, and what was asked of Python since the last call."""
    log = checkout / "calls.txt"
    log.unlink(missing_ok=True)
    outer = ("PYTHON", "ARGS", "RUNS", "MAKEFLAGS", "MAKELEVEL", "MAKEOVERRIDES", "MFLAGS")
    environment = {name: value for name, value in os.environ.items() if name not in outer}
    done = subprocess.run(["make", *arguments], cwd=checkout, capture_output=True, text=True, check=False, env=environment)
    calls = text_of(log).splitlines() if log.exists() else []
    return done.returncode, [re.sub(r" --(quiet|disable-pip-version-check)", "", call) for call in calls]


SET_UP = ["-m venv --clear .venv", "-m pip install --requirement requirements.lock",
          "-m pip install --no-deps --no-build-isolation --editable ."]


def test_set_up_is_done_once_and_again_when_the_lock_has_changed(checkout: Path) -> None:
    assert make(checkout, "setup", "PYTHON=./python") == (0, SET_UP)
    command = "-m pytest --numprocesses=auto --maxprocesses=4 --dist=loadfile --no-loadscope-reorder --max-worker-restart=0"
    assert make(checkout, "test") == (0, [command])
    assert make(checkout, "test-fast", "ARGS=tests/data") == (0, ["-m pytest tests/data -m not slow --durations=5"])
    assert make(checkout, "demo") == (0, ["-m vision.train vision/digits --runs runs"])
    later = (checkout / ".venv" / "ready").stat().st_mtime + 5
    os.utime(checkout / "requirements.lock", (later, later))
    assert make(checkout, "setup") == (0, SET_UP[1:])


def test_a_half_made_environment_is_made_anew(checkout: Path) -> None:
    assert make(checkout, "setup", "PYTHON=./python")[0] == 0
    later = (checkout / ".venv" / "ready").stat().st_mtime + 5
    os.utime(checkout / "pyproject.toml", (later, later))
    (checkout / "broken").touch()
    status, calls = make(checkout, "test")
    assert status and calls == SET_UP[1:2]
    (checkout / "broken").unlink()
    assert make(checkout, "setup", "PYTHON=./python") == (0, SET_UP)
    (checkout / ".venv" / "bin" / "python").unlink()
    assert make(checkout, "setup", "PYTHON=./python") == (0, SET_UP)


def test_a_moved_folder_gets_an_environment_of_its_own(checkout: Path) -> None:
    assert make(checkout, "setup", "PYTHON=./python")[0] == 0
    moved = checkout.rename(checkout.with_name("moved"))
    (moved / ".venv" / "bin" / "python").unlink()
    (moved / ".venv" / "bin" / "python").symlink_to(moved / "python")
    assert make(moved, "setup", "PYTHON=./python") == (0, SET_UP)
