"""The module structure: imports point one way, and xDSL is imported in one place."""

from __future__ import annotations

import ast
import re
from functools import cache
from pathlib import Path

ROOT = Path(__file__).parents[2] / "dlc"
PAGE = (ROOT.parent / "docs" / "architecture.md").read_text()
FILES = sorted(ROOT.rglob("*.py"))


def module_name(path: Path) -> str:
    """`dlc/passes/base.py` → `passes.base`; the package itself is the empty name."""
    parts = path.relative_to(ROOT).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


@cache
def all_imports(path: Path) -> tuple[tuple[str, bool, bool], ...]:
    """Return the modules that a file imports, whether only for type checking, and whether within a function."""
    imported_names: list[tuple[str, bool, bool]] = []

    def visit(node: ast.AST, typing: bool, in_function: bool) -> None:
        if isinstance(node, ast.If) and ast.unparse(node.test) == "TYPE_CHECKING":
            typing = True
        if isinstance(node, ast.Import):
            imported_names.extend((alias.name, typing, in_function) for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module:
            imported_names.extend((f"{node.module}.{alias.name}", typing, in_function) for alias in node.names)
        elif isinstance(node, ast.stmt | ast.ExceptHandler | ast.match_case | ast.Module):
            # Expressions contain no imports.
            in_function = in_function or isinstance(node, ast.FunctionDef)
            for child in ast.iter_child_nodes(node):
                visit(child, typing, in_function)

    visit(ast.parse(path.read_text()), False, False)
    return tuple(imported_names)


def imports(path: Path) -> tuple[tuple[str, bool], ...]:
    """Return the modules that a file imports, and whether only for type checking."""
    return tuple((name, typing) for name, typing, _ in all_imports(path))


def within(name: str, unit: str) -> bool:
    return name == unit or name.startswith(unit + ".")


@cache
def tree() -> dict[str, str]:
    """Return the folders and files of dlc/ that the page shows, with their headings."""
    headings: dict[str, str] = {}
    for heading, block in re.findall(r"^(\w[^\n]*)\n\n```\ndlc/\n(.*?)```", PAGE, re.S | re.M):
        parents: list[str] = []
        for line in block.splitlines():
            name = line.split()[0]
            depth = (len(line) - len(line.lstrip())) // 2
            parents[depth - 1 :] = [name]
            headings["".join(parents)] = heading
    return headings


# Modules that any module may import; they import only each other.
LEAVES = {Path(name).stem for name, heading in tree().items() if heading.startswith("Leaf modules")}
# Each unit with the units that it may import, in addition to the leaves and itself.
ALLOWED = {
    "": set[str](),
    **{leaf: set[str]() for leaf in LEAVES},
    **{
        unit: set(re.findall(r"`([\w.]+)`", row))
        for unit, row in re.findall(r"^\| `(\w+)` \| (.*?) \|", PAGE.partition("## Import rules")[2], re.M)
    },
}


def runs_models(module: str) -> bool:
    """Return whether `dlc.load` may import a module: a part of the runtime or its dependencies, or a package around one."""
    return any(within(module, unit) or within(unit, module) for unit in {"runtime", *ALLOWED["runtime"], *LEAVES})


def test_imports_point_one_way() -> None:
    offenders: list[str] = []
    for path in FILES:
        name = module_name(path)
        unit = name.partition(".")[0]
        assert unit in ALLOWED, f"dlc/{unit} is new: add it to the tree and the import table of docs/architecture.md"
        allowed = {*ALLOWED[unit], *LEAVES, unit} - ({""} if unit else set())
        for imported, typing in imports(path):
            target = imported.removeprefix("dlc").removeprefix(".")
            if not typing and within(imported, "dlc") and not any(within(target, a) for a in allowed):
                offenders.append(f"{name or 'dlc'} imports {imported}")
    assert not offenders


def test_page_shows_the_tree() -> None:
    """The page shows all files of dlc/, its folders, and their subfolders if these are packages."""
    folders = {f"{p.relative_to(ROOT)}/" for p in ROOT.glob("*") if (p / "__init__.py").exists()}
    inner = {f"{p.parent.relative_to(ROOT)}/" for folder in folders for p in ROOT.glob(f"{folder}*/__init__.py")}
    assert set(tree()) == {*folders, *inner, *(p.name for p in ROOT.glob("*.py"))}


def test_packages_list_their_files() -> None:
    """A package whose docstring has a table of its files names every file in it, and no other file."""
    wrong: list[str] = []
    for package in ROOT.rglob("__init__.py"):
        text = ast.get_docstring(ast.parse(package.read_text())) or ""
        rows = re.findall(r"^(\w+\.py) {2,}", text, re.MULTILINE)
        names = {f.name for f in package.parent.glob("*.py")}
        wrong += [f"{package}: no file {row}" for row in rows if row not in names]
        missing = names - {*re.findall(r"\w+\.py", text), "__init__.py", "__main__.py"}
        wrong += [f"{package}: list {name}" for name in missing if rows]
    assert not wrong


def test_page_allows_what_is_imported() -> None:
    """Every entry of the import table is needed."""
    imported: dict[str, set[str]] = {unit: set() for unit in ALLOWED}
    for path in FILES:
        unit = module_name(path).partition(".")[0]
        imported[unit] |= {name.removeprefix("dlc.") for name, typing in imports(path) if not typing}
    unused = {
        (unit, name) for unit, names in ALLOWED.items() for name in names if not any(within(i, name) for i in imported[unit])
    }
    assert not unused


def test_frontends_are_independent() -> None:
    """Shared code of the frontends is in modules next to them, which import none of them."""
    frontends = {module_name(p) for p in (ROOT / "frontend").iterdir() if (p / "__init__.py").exists()}
    assert frontends == {"frontend.onnx", "frontend.tflite"}
    for path in (ROOT / "frontend").rglob("*.py"):
        others = {f for f in frontends if not within(module_name(path), f)}
        for imported, _ in imports(path):
            assert not any(within(imported.removeprefix("dlc."), f) for f in others), f"{module_name(path)} imports {imported}"


def test_shared_op_modules_are_independent_of_op_families() -> None:
    """Modules directly in `dialects/dl` are independent of its op families.

    The `__init__.py` of a family has only a docstring.
    """
    folder = ROOT / "dialects" / "dl"
    shared = {module_name(p) for p in folder.glob("*.py")} - {"dialects.dl"}
    for path in folder.glob("*.py"):
        named = {imported for imported, _ in imports(path) if within(imported, "dlc.dialects.dl")}
        if path.name != "__init__.py":
            assert not {n for n in named if not any(within(n, f"dlc.{s}") for s in shared)}, module_name(path)
    for path in folder.glob("*/__init__.py"):
        assert not imports(path), f"{module_name(path)}: names are exported by dlc/dialects/dl/__init__.py"


def test_operators_do_not_import_the_importer() -> None:
    """Converters of ONNX operators receive a node; the importer calls them and not the other way round."""
    onnx = ROOT / "frontend" / "onnx"
    callers = {f"dlc.{module_name(p)}" for p in onnx.glob("*.py")} - {
        f"dlc.frontend.onnx.{n}" for n in ("node", "registry", "tensors", "values")
    }
    callers.remove("dlc.frontend.onnx")
    for path in (onnx / "operators").rglob("*.py"):
        for imported, _ in imports(path):
            assert not any(within(imported, c) for c in callers), f"{module_name(path)} imports {imported}"


def test_xdsl_is_imported_in_one_place() -> None:
    importers = {module_name(path).partition(".")[0] for path in FILES for name, _ in imports(path) if within(name, "xdsl")}
    assert importers == {"ir", "xdsl_patches"}


def test_environment_is_read_in_one_place() -> None:
    readers = [module_name(p) for p in FILES if "os.environ" in p.read_text() or "getenv" in p.read_text()]
    assert readers == ["options"]


def test_imports_are_at_the_top() -> None:
    """Imports are at the top of modules; only public entry points may import lazily."""
    lazy = (
        "models.api",
        "models.model_files",
        "models.target_descriptions",
        "cli",
        "runtime.load",
        "language_models.language_model",
        "language_models.embedding_model",
    )
    offenders = [
        f"{module_name(path)}: {name}"
        for path in FILES
        if module_name(path) and not any(within(module_name(path), unit) for unit in lazy)
        for name, _, in_function in all_imports(path)
        if in_function
    ]
    assert not offenders


def test_compiled_models_run_without_the_compiler() -> None:
    """The commands that run models, and the functions that load language models, import the compiler on demand only."""
    paths = {module_name(path): path for path in FILES}
    pending = ["cli", "cli.run", "cli.generate", "cli.serve", "language_models.generation", "language_models.embedding_model"]
    pending += [name for name in paths if within(name, "serve")]
    seen: set[str] = set()
    while pending:
        name = pending.pop()
        if name in seen or name not in paths:
            continue
        seen.add(name)
        for imported, typing, in_function in all_imports(paths[name]):
            if typing or in_function:
                continue
            assert imported.partition(".")[0] not in ("xdsl", "llvmlite", "onnx"), f"{name} imports {imported}"
            if within(imported, "dlc"):
                # An import of a name also imports the packages around it.
                parts = imported.split(".")[1:]
                pending += [".".join(parts[:depth]) for depth in range(len(parts) + 1)]
    assert "runtime.load" in seen
