"""Facts about source files, read by `ast` without importing them: signatures, constants and imports.

The plan needs the knobs of every stage and piece, and the set of files whose change can change a stage's result, in
well under half a second; importing torch alone takes longer.
"""

from __future__ import annotations

import ast
import hashlib
import io
import os
import re
import tokenize
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass, field, replace
from functools import cache, cached_property, partial
from pathlib import Path
from typing import Any

from tasks.core.at_rest import once_at_rest
from tasks.core.errors import UserError
from tasks.core.paths import CODE, KIND_OF, PACKAGES, own, package_of
from tasks.core.paths import folders as places
from tasks.planning import facts
from tasks.planning.pieces import locate

# Modules that run, show and record a stage but cannot change a byte of its output: editing them re-runs no stage.
PLUMBING = {
    f"tasks/{name}.py"
    for name in (
        # tables.py is not listed: it writes the bytes
        "core/errors core/paths run runtime/dvc runtime/termination runtime/process runtime/progress runtime/ranks runtime/stage "
        "runtime/cluster runtime/processes runtime/ray_tasks "
        "core/config planning/code planning/facts planning/former planning/pieces planning/plan planning/resolve "
        "runtime/prefect_shim results/promote tracking/episodes tracking/observe tracking/spool"
    ).split()
}


@dataclass(frozen=True)
class Knob:
    """One keyword-only argument with a literal default. `piece` is the folder of a `Piece(...)` or `Pieces(...)`
    annotation, `many` is True for the latter, `place` is True for the annotation `Place()`, `own` the knobs of an
    annotation `Own(...)`, `about` is its text in the
    section `Args` of the function's docstring, `home` the file that declares it. If the default is a call of a frozen
    class (tasks/planning/settings.py), `kind` is that class as module:name, `fields` are its fields and `default` maps
    each to its default."""

    name: str
    default: Any
    annotation: ast.expr | None
    home: Path
    piece: str = ""
    many: bool = False
    about: str = ""
    kind: str = ""
    fields: Mapping[str, Knob] = field(default_factory=dict)
    place: bool = False
    own: tuple[str, ...] = ()


@dataclass(frozen=True)
class Source:
    """One file: the `digest` of its bytes, and the facts read from it, which are parsed if the cache does not hold
    them. The syntax tree is parsed on demand."""

    path: Path
    digest: str
    data: bytes = field(repr=False, compare=False)
    facts: facts.Facts

    @cached_property
    def tree(self) -> ast.Module:
        return _tree(self.path, self.data)

    @property
    def modules(self) -> frozenset[str]:
        return self.facts.modules

    @property
    def folders(self) -> frozenset[str]:
        return self.facts.folders

    @property
    def names(self) -> frozenset[str]:
        return self.facts.names

    @cached_property
    def constants(self) -> dict[str, ast.expr]:
        """The constants of the module, by name."""
        return facts.constants(self.tree) if self.facts.constants else {}


def parse(data: bytes | str, **how: Any) -> Any:
    """`ast.parse`, with a second try after a spurious failure: CPython counts the recursion depth of all threads
    together (python/cpython#106905), and under Prefect other threads parse too."""
    for _ in range(9):
        try:
            return ast.parse(data, **how)
        except SystemError:
            continue
    return ast.parse(data, **how)


@cache
def _parsed(path: Path, stamp: tuple[int, int]) -> Source:
    data = path.read_bytes()
    digest = hashlib.sha256(data).hexdigest()
    known = facts.known(digest)
    if known is not None:
        return Source(path, digest, data, known)
    tree = _tree(path, data)
    out = Source(path, digest, data, facts.learn(digest, tree))
    out.__dict__["tree"] = tree  # parsed once
    return out


def _tree(path: Path, data: bytes) -> ast.Module:
    try:
        return parse(data, filename=str(path))
    except (SyntaxError, ValueError) as e:
        raise UserError(
            f"{path}, line {getattr(e, 'lineno', None) or 1}: not valid Python ({getattr(e, 'msg', e)})"
        ) from None


@once_at_rest
def source(path: Path) -> Source:
    return _parsed(path, _stamp(path))


@once_at_rest
def _stamp(path: Path) -> tuple[int, int]:
    stat = path.stat()
    return stat.st_mtime_ns, stat.st_size


def digest(path: Path) -> str:
    """The digest of a file's bytes, and of the files beside it that it names in BESIDE: code that it reads and that is
    not Python."""
    beside = [(path.parent / name).read_bytes() for name in constant(path, "BESIDE", ())]
    return hashlib.sha256(path.read_bytes() + b"".join(beside)).hexdigest() if beside else source(path).digest


def digest_of_statements(path: Path) -> str:
    """As `digest`, without comments, docstrings and blank lines: what it says of a file changes only with what the file does."""
    beside = [(path.parent / name).read_bytes() for name in constant(path, "BESIDE", ())]
    return hashlib.sha256(statements(source(path).data).encode() + b"".join(beside)).hexdigest()


def statements(data: bytes) -> str:
    """Python source without comments, docstrings and blank lines; its lines are otherwise as they were, so that every version of
    Python gives the same text."""
    lines = data.decode().splitlines()
    for node in ast.walk(parse(data)):
        if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
            if ast.get_docstring(node, clean=False) is not None:
                doc = node.body[0]
                for at in range(doc.lineno - 1, doc.end_lineno or doc.lineno):
                    lines[at] = ""
    for token in tokenize.generate_tokens(io.StringIO(data.decode()).readline):
        if token.type == tokenize.COMMENT:
            row, column = token.start
            lines[row - 1] = lines[row - 1][:column]
    return "\n".join(line.rstrip() for line in lines if line.strip())


def constant(path: Path, name: str, default: Any) -> Any:
    """The literal value of a module's constant, or `default` if it has none. `frozenset({...})` and `set(...)` count
    as literals."""
    of_file = source(path)
    if name not in of_file.facts.constants:
        return default
    node = of_file.constants[name]
    if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id in ("frozenset", "set"):
        return set(ast.literal_eval(node.args[0])) if node.args else set()
    return _literal(node, path, name)


def defines(path: Path, name: str) -> bool:
    """Whether a module has a function of this name."""
    return name in source(path).facts.functions


def _literal(node: ast.expr, path: Path, name: str) -> Any:
    try:
        return ast.literal_eval(node)
    except ValueError:
        raise UserError(
            f"{path}, line {node.lineno}: {name} must be a literal (the plan reads it without importing the file)"
        ) from None


def knobs(path: Path) -> dict[str, Knob]:
    """Name -> Knob, for the function named as the file. A keyword-only argument without a default is no knob: the code
    passes it. Knobs are read once for each state of the files that declare them."""
    known = _declared(path)
    return known | {name: _fresh(knob) for name, knob in known.items() if isinstance(knob.default, list | dict)}


@once_at_rest
def _declared(path: Path) -> dict[str, Knob]:
    """The knobs that a file declares: to be read, not to be changed."""
    known, stamps = _KNOWN.get(path, ({}, {}))
    if not stamps or any(_stamp(file) != stamp for file, stamp in stamps.items()):
        known = _knobs(path)
        homes = {path, *(one.home for _, one in leaves(known))}
        _KNOWN[path] = known, {file: _stamp(file) for file in homes}
    return known


_KNOWN: dict[Path, tuple[dict[str, Knob], dict[Path, tuple[int, int]]]] = {}  # and the stamps of the files they are in


def _fresh(knob: Knob) -> Knob:
    """The knob with a copy of its default, which the reader may change."""
    fields = {n: _fresh(one) if isinstance(one.default, list | dict) else one for n, one in knob.fields.items()}
    return replace(knob, default=_plain(knob.default), fields=fields)


def _knobs(path: Path) -> dict[str, Knob]:
    tree = source(path).tree
    function = next(
        (n for n in tree.body if isinstance(n, ast.FunctionDef | ast.ClassDef) and n.name == path.stem), None
    )
    if isinstance(function, ast.ClassDef):
        function = next((n for n in function.body if isinstance(n, ast.FunctionDef) and n.name == "__init__"), None)
    if function is None:
        raise UserError(f"{path} defines no function {path.stem!r}: a stage or piece is a function named as its file")
    out, about = {}, entries(ast.get_docstring(function) or "", "Args")
    for arg, default in zip(function.args.kwonlyargs, function.args.kw_defaults, strict=True):
        if default is not None:
            out[arg.arg] = _knob(arg.arg, arg.annotation, default, path, about.get(arg.arg, ""))
    return out


def leaves(known: Mapping[str, Knob]) -> Iterator[tuple[str, Knob]]:
    """(dotted name, knob) of all knobs that hold a value or pieces: `steps`, `optimizer.lr`."""
    for name, knob in known.items():
        if knob.fields:
            yield from ((f"{name}.{inner}", one) for inner, one in knob.fields.items())
        else:
            yield name, knob


def lookup(values: Mapping[str, Any], name: str) -> Any:
    """The value of a dotted name; None if it does not exist."""
    value: Any = values
    for part in name.split("."):
        value = value.get(part) if isinstance(value, Mapping) else None
    return value


def _knob(name: str, annotation: ast.expr | None, default: ast.expr, path: Path, about: str) -> Knob:
    if isinstance(default, ast.Name):  # a constant of the module, itself a literal
        default = source(path).constants.get(default.id, default)
    if isinstance(default, ast.Call) and isinstance(default.func, ast.Name) and not default.args:
        settings = _class(default.func.id, path)
        if settings is not None:
            return _nested(name, annotation, default, settings, path, about)
    folder, many = _piece(annotation)
    called = annotation.func.id if isinstance(annotation, ast.Call) and isinstance(annotation.func, ast.Name) else ""
    place, own = called == "Place", ()
    if called == "Own":
        assert isinstance(annotation, ast.Call)
        own = tuple(ast.literal_eval(one) for one in annotation.args)
    value = _plain(_literal(default, path, f"the default of {name}"))
    annotation = ast.Name(type(value).__name__) if place else ast.Name("dict") if own else annotation
    return Knob(
        name=name,
        default=value,
        annotation=annotation,
        home=path,
        piece=folder,
        many=many,
        about=about,
        place=place,
        own=own,
    )


def _nested(
    name: str, annotation: ast.expr | None, call: ast.Call, settings: tuple[Path, ast.ClassDef], path: Path, about: str
) -> Knob:
    """The knob whose default is a call of a class: the fields of the class, with the defaults that the call gives."""
    home, node = settings
    fields = _fields(home, node)
    for given in call.keywords:
        if given.arg not in fields:
            raise UserError(f"{path}, line {call.lineno}: {node.name} has no field {given.arg!r}")
        value = _plain(_literal(given.value, path, f"the default of {name}.{given.arg}"))
        fields[given.arg] = replace(fields[given.arg], default=value)
    for inner, one in fields.items():
        if one.default is ...:
            raise UserError(
                f"{path}, line {call.lineno}: {node.name} has no default for {inner}: write {node.name}({inner}=...)"
            )
    return Knob(
        name=name,
        default={inner: one.default for inner, one in fields.items()},
        annotation=annotation,
        home=path,
        about=about,
        kind=f"{_module(home)}:{node.name}",
        fields=fields,
    )


def _fields(path: Path, node: ast.ClassDef) -> dict[str, Knob]:
    """The fields of a class and of its base classes; `...` is the default of a field without one."""
    out: dict[str, Knob] = {}
    for base in node.bases:
        above = _class(base.id, path) if isinstance(base, ast.Name) else None
        out |= _fields(*above) if above else {}
    about = entries(ast.get_docstring(node) or "", "Args")
    for line in node.body:
        if isinstance(line, ast.AnnAssign) and isinstance(line.target, ast.Name):
            name, default = line.target.id, line.value or ast.Constant(value=...)
            out[name] = _knob(name, line.annotation, default, path, about.get(name, ""))
    return out


def _class(name: str, path: Path) -> tuple[Path, ast.ClassDef] | None:
    """A class that is defined in this file or imported from another one of ours, with the file that defines it."""
    for place in (path, *_exporters(name, path)):
        for node in source(place).tree.body:
            if isinstance(node, ast.ClassDef) and node.name == name:
                return place, node
    return None


def _exporters(name: str, path: Path) -> Iterator[Path]:
    """The files that this one imports a name from."""
    for node in source(path).tree.body:
        if isinstance(node, ast.ImportFrom) and any(a.name == name and not a.asname for a in node.names):
            yield from _files_of(node.module or "")


def _module(path: Path) -> str:
    """The module that a file is imported as."""
    if path.is_relative_to(CODE):
        return ".".join(path.relative_to(CODE).with_suffix("").parts)
    return f"{package_of(path.parent.name)}.{path.stem}"


def section(doc: str, title: str) -> str:
    """The indented lines below `title:` of a docstring."""
    match = re.search(rf"^{title}:\n((?:[ ]+.*\n?|\n(?=[ ]))*)", doc, re.M)
    return match.group(1).rstrip() if match else ""


def entries(doc: str, title: str) -> dict[str, str]:
    """`name: meaning` entries of a docstring section; a line that is indented further continues the entry above it."""
    out: dict[str, str] = {}
    for line in section(doc, title).splitlines():
        name, _, text = line.strip().partition(": ")
        if line.startswith("     "):  # deeper than the four blanks of an entry
            last = next(reversed(out))
            out[last] += f" {line.strip()}"
        else:
            out[name] = text
    return out


def _plain(value: Any) -> Any:
    """A copy as JSON would hold it: tuples become lists."""
    if isinstance(value, dict):
        return {k: _plain(v) for k, v in value.items()}
    return [_plain(v) for v in value] if isinstance(value, list | tuple) else value


def _piece(annotation: ast.expr | None) -> tuple[str, bool]:
    for node in ast.walk(annotation) if annotation is not None else ():
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name | ast.Attribute):
            name = node.func.attr if isinstance(node.func, ast.Attribute) else node.func.id
            if name in ("Piece", "Pieces") and node.args and isinstance(node.args[0], ast.Constant):
                return str(node.args[0].value), name == "Pieces"
    return "", False


def mismatch(annotation: ast.expr | None, value: Any, path: Path) -> str:
    """ "" if `value` fits the annotation, else what was expected. Annotations that are not spelled with built-in names
    fit everything."""
    wanted = alternatives(annotation, path)
    if wanted is None or any(_fits(w, value, path) for w in wanted):
        return ""
    return " or ".join(ast.unparse(w) for w in wanted)


def odd_entry(knob: Knob, value: Any) -> str:
    """ "" if the entries of a list are texts (numbers) where those of the knob's default are, else what is wrong. Where the annotation is a
    number or a list, entries are numbers; where the default is empty or of several kinds, nothing is said of entries."""
    wanted = alternatives(knob.annotation, knob.home) or []
    known = knob.default if isinstance(knob.default, list | tuple) else []
    numbers = any(isinstance(w, ast.Name) and w.id in ("int", "float") for w in wanted)
    for kind, name in ("float", "a number"), ("str", "a text, in quotes where YAML would read something else"):
        fits = partial(_fits, ast.Name(kind), path=knob.home)
        if kind == "float" and numbers or known and all(fits(v) for v in known):
            entries = value if isinstance(value, list) else []
            return next((f"[{i}] must be {name}, not {v!r}" for i, v in enumerate(entries) if not fits(v)), "")
    return ""


def counts(annotation: ast.expr | None) -> bool:
    """Whether the knob is a count: true of all knobs annotated with plain `int`."""
    return isinstance(annotation, ast.Name) and annotation.id == "int"


def alternatives(node: ast.expr | None, path: Path) -> list[ast.expr] | None:
    if node is None:
        return None
    if isinstance(node, ast.Constant) and isinstance(node.value, str):  # a quoted annotation
        return alternatives(parse(node.value, mode="eval").body, path)
    if isinstance(node, ast.BinOp) and isinstance(node.op, ast.BitOr):
        sides = [alternatives(node.left, path), alternatives(node.right, path)]
        return None if None in sides else [*sides[0], *sides[1]]  # type: ignore[misc]
    if isinstance(node, ast.Name) and node.id not in {"int", "float", "str", "bool", "list", "dict", "tuple"}:
        return _alias(node.id, path)
    return [node]


def _alias(name: str, path: Path) -> list[ast.expr] | None:
    """The annotation behind an alias such as `Aggregate = Literal[...]`, in this file or in the one it is imported
    from."""
    for place in (path, *_exporters(name, path)):
        if name in source(place).constants:
            return alternatives(source(place).constants[name], place)
    return None


def _fits(node: ast.expr, value: Any, path: Path) -> bool:
    if isinstance(node, ast.Constant):
        return value is None if node.value is None else value == node.value
    head = node.value if isinstance(node, ast.Subscript) else node
    name = head.id if isinstance(head, ast.Name) else head.attr if isinstance(head, ast.Attribute) else ""
    if name == "Literal" and isinstance(node, ast.Subscript):
        options = node.slice.elts if isinstance(node.slice, ast.Tuple) else [node.slice]
        return any(isinstance(o, ast.Constant) and o.value == value and type(o.value) is type(value) for o in options)
    if name in ("list", "tuple", "Sequence"):
        inner = (
            node.slice.elts[0]
            if isinstance(node, ast.Subscript) and isinstance(node.slice, ast.Tuple)
            else node.slice
            if isinstance(node, ast.Subscript)
            else None
        )
        return isinstance(value, list) and all(not mismatch(inner, v, path) for v in value)
    if name in ("dict", "Mapping"):
        return isinstance(value, dict)
    if name == "float":
        return isinstance(value, int | float) and not isinstance(value, bool)
    kinds = {"int": int, "str": str, "bool": bool}
    return name not in kinds or (isinstance(value, kinds[name]) and not (name == "int" and isinstance(value, bool)))


@cache
def _below_code(path: Path) -> str | None:
    return path.relative_to(CODE).as_posix() if path.is_relative_to(CODE) else None


def name_of(path: Path) -> str:
    """A file's name in a plan: relative to the code, or to the folder of the user's own pieces; the same on every
    machine."""
    if (ours := _below_code(path)) is not None:
        return ours
    return next((f"own/{path.relative_to(p).as_posix()}" for p in own() if path.is_relative_to(p)), path.name)


def _files_of(module: str) -> list[Path]:
    """The files that importing `module` executes: those of its parent packages, and its own. [] for a module that is
    not part of this code."""
    parts = module.split(".")
    if parts[0] not in PACKAGES:
        return []
    above, file = ".".join(parts[:-1]), f"{parts[-1]}.py"
    files = [_python(place).get(file) for place in places(KIND_OF.get(above, above))]
    return [*_packages(module), *(p for p in files if p is not None)]


@once_at_rest
def _packages(dotted: str) -> tuple[Path, ...]:
    """The `__init__.py` of a package and of those that it lies in, the outermost first."""
    above = dotted.rpartition(".")[0]
    init = _python(CODE.joinpath(*dotted.split("."))).get("__init__.py")
    return (*(_packages(above) if above else ()), *([init] if init else ()))


@once_at_rest
def _python(folder: Path) -> dict[str, Path]:
    """Name -> path of the Python files of a folder, {} where there is none."""
    try:
        with os.scandir(folder) as entries:
            return {e.name: folder / e.name for e in entries if e.name.endswith(".py") and e.is_file()}
    except (FileNotFoundError, NotADirectoryError):
        return {}


@dataclass(frozen=True)
class Imports:
    """Look-ups shared by all closures of one plan; the next plan reads the disk again.

    of_file: file -> the files that it imports itself; of_module: module -> the files that importing it executes; of_start:
    the closures that were made."""

    of_file: dict[Path, list[Path]] = field(default_factory=dict)
    of_module: dict[str, list[Path]] = field(default_factory=dict)
    of_start: dict[frozenset[Path], frozenset[Path]] = field(default_factory=dict)


def closure(start: list[Path], known: Imports) -> frozenset[Path]:
    """`start` and every file of this code that it imports, directly or not. Imports of PLUMBING, and folders opened by
    computed names (see `opened`), are not followed."""
    begun = frozenset(start)
    if begun in known.of_start:
        return known.of_start[begun]
    seen: set[Path] = set()
    queue = list(start)
    while queue:
        path = queue.pop()
        if path in seen:
            continue
        seen.add(path)
        if path not in known.of_file:
            known.of_file[path] = imported(path, known)
        queue += known.of_file[path]
    known.of_start[begun] = frozenset(seen)
    return known.of_start[begun]


def imported(path: Path, known: Imports, without: Collection[str] = ()) -> list[Path]:
    """The files that `path` imports directly, except the modules `without` and PLUMBING."""
    out: set[Path] = set()
    for module in source(path).modules.difference(without):
        if module not in known.of_module:
            known.of_module[module] = [p for p in _files_of(module) if name_of(p) not in PLUMBING]
        out.update(known.of_module[module])
    return list(out)


def opened(files: set[Path], spoken: set[str], known: Imports) -> set[Path]:
    """`files` with those pieces of the folders that they open by computed names
    (`import_module(f"synth.verify.{name}")`) whose name is `spoken` by the code or parameters of some stage. A name
    that reaches a stage only through data is not seen here; a new file that nothing names re-runs no stage."""
    done: set[str] = set()
    while folders := {f for p in files for f in source(p).folders} - done:
        done |= folders
        for folder in folders:
            if folder.split(".")[0] in PACKAGES and folder != "tasks.stages":
                kind = KIND_OF.get(folder, folder)
                names = {p.stem for place in places(kind) for p in place.glob("[!_]*.py")}
                files = files | closure([locate(kind, n) for n in sorted(names & spoken)], known)
    return files
