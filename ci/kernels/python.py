"""Prints the files of this Python that a program needs: the interpreter, and the modules that the program imports.

usage: ci/kernels/python.py PROGRAM
"""

import ast
import importlib
import importlib.util
import os
import pathlib
import sys


def imports(program):
    """Returns the names of the modules that a program imports by `import`."""
    tree = ast.parse(pathlib.Path(program).read_text())
    return {alias.name for node in ast.walk(tree) if isinstance(node, ast.Import) for alias in node.names}


def main():
    # An error message needs the last one.
    for name in [*imports(sys.argv[1]), "traceback"]:
        importlib.import_module(name)
    # The interpreter is the first; some modules have two names.
    files = [os.path.realpath(sys.executable)]
    for module in list(sys.modules.values()):
        if module.__name__ != "__main__" and getattr(module, "__file__", None):
            files += [module.__file__, importlib.util.cache_from_source(module.__file__)]
    print("\n".join(dict.fromkeys(file for file in files if os.path.exists(file))))


main()
