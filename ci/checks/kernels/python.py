"""Prints the files of this Python that a program needs: the interpreter, and the modules that the program imports, but
not those in the program's own folder.

usage: ci/checks/kernels/python.py PROGRAM
"""

import ast
import importlib
import importlib.util
import os
import pathlib
import sys


def imports(program):
    """Returns the names of the modules that a program imports."""
    names = set()
    for node in ast.walk(ast.parse(program.read_text())):
        if isinstance(node, ast.Import):
            names |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            names.add(node.module)
    return names


def main():
    program = pathlib.Path(sys.argv[1]).resolve()
    sys.path.insert(0, str(program.parent))
    sys.dont_write_bytecode = True
    # An error message needs the last one.
    for name in [*imports(program), "traceback"]:
        importlib.import_module(name)
    # The interpreter is the first; some modules have two names.
    files = [os.path.realpath(sys.executable)]
    for module in list(sys.modules.values()):
        file = getattr(module, "__file__", None)
        if file and module.__name__ != "__main__" and pathlib.Path(file).parent != program.parent:
            files += [file, importlib.util.cache_from_source(file)]
    print("\n".join(dict.fromkeys(file for file in files if os.path.exists(file))))


main()
