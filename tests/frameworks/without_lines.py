"""Runs a training script as it was before its lines for TTrace were added, which `ttrace check --auto` is for.

    python without_lines.py [with_bug.py FAMILY BUG] SCRIPT [options of the script]

What the lines do is taken out of the scripts' syntax trees when they are compiled; line numbers stay.
"""

from __future__ import annotations

import ast
import importlib.machinery
import sys
import tempfile
import types
from pathlib import Path

HERE = Path(__file__).resolve().parent
NAMES = ("tracer", "traced", "step")  # what the scripts call a tracer and its step
RECORDS = ("loss", "data", "scalar", "attach", "attach_trainer")
PASSES_ON = ("precision", "dtype", "watch_loss")  # return what they get


def _called(node: ast.AST) -> tuple[str, str]:
    """("ttrace", "attach") of `ttrace.attach(...)`, ("tracer", "step") of `self.tracer.step(...)`."""
    if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute):
        owner = node.func.value
        name = owner.id if isinstance(owner, ast.Name) else owner.attr if isinstance(owner, ast.Attribute) else ""
        return name, node.func.attr
    return "", ""


def _is_ours(node: ast.AST, names: tuple[str, ...]) -> bool:
    owner, method = _called(node)
    return owner in ("ttrace", *NAMES) and method in names


class _WithoutLines(ast.NodeTransformer):
    def visit_Import(self, node: ast.Import) -> ast.AST:
        return ast.Pass() if [alias.name for alias in node.names] == ["ttrace"] else node

    def visit_Call(self, node: ast.Call) -> ast.AST:
        names_function = _is_ours(node.func, ("region",))  # region("attention")(function)
        self.generic_visit(node)
        return node.args[0] if names_function or _is_ours(node, PASSES_ON) else node

    def visit_Expr(self, node: ast.Expr) -> ast.AST:
        self.generic_visit(node)
        return ast.Pass() if _is_ours(node.value, RECORDS) else node

    def visit_Assign(self, node: ast.Assign) -> ast.AST:
        self.generic_visit(node)
        if _is_ours(node.value, RECORDS):
            node.value = ast.Constant(None)
        return node

    def visit_With(self, node: ast.With) -> ast.AST | list[ast.AST]:
        self.generic_visit(node)
        ours = [item for item in node.items if _is_ours(_plain(item.context_expr), ("step",))]
        node.items = [item for item in node.items if item not in ours]
        unset = [ast.Assign([item.optional_vars], ast.Constant(None)) for item in ours if item.optional_vars]
        return [*unset, node] if node.items else [*unset, *node.body]

    def visit_FunctionDef(self, node: ast.FunctionDef) -> ast.AST:
        node.decorator_list = [one for one in node.decorator_list if not _is_ours(one, ("region",))]
        self.generic_visit(node)
        return node


def _plain(expression: ast.AST) -> ast.AST:
    """Of `A if condition else B`, B."""
    return expression.orelse if isinstance(expression, ast.IfExp) else expression


def transformed(source: bytes | str, path: str) -> types.CodeType:
    tree = _WithoutLines().visit(ast.parse(source, path))
    return compile(ast.fix_missing_locations(tree), path, "exec", dont_inherit=True)


def main() -> None:
    words = sys.argv[1:]
    script = Path(words[0]).resolve()
    own = importlib.machinery.SourceFileLoader.source_to_code

    def source_to_code(loader, data, path, *args, **kwargs):
        ours = Path(path).resolve().is_relative_to(HERE) or Path(path).name == "train.py"
        return transformed(data, path) if ours else own(loader, data, path, *args, **kwargs)

    importlib.machinery.SourceFileLoader.source_to_code = source_to_code
    with tempfile.TemporaryDirectory() as folder:
        sys.pycache_prefix = folder  # scripts that were compiled before have the lines
        sys.argv = words
        sys.path.insert(0, str(script.parent))
        main_module = sys.modules["__main__"] = types.ModuleType("__main__")
        main_module.__file__ = str(script)
        exec(transformed(script.read_bytes(), str(script)), main_module.__dict__)


if __name__ == "__main__":
    main()
