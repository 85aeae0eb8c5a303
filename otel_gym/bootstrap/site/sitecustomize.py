"""Runs at the start of every Python below ``otel-gym run``, of any version, and is all that stands before its packages.

It does no more than see which libraries are looked for; ``begin.py`` beside this folder does the rest, at the first one
that can be traced. Kept short, since it may be compiled anew each time.
"""

import os
import sys

# Top-level packages; those of `INSTRUMENTORS` are among them.
LIBRARIES = {
    "aiohttp",
    "anthropic",
    "fastapi",
    "httpx",
    "httpx2",
    "nemo_gym",
    "openai",
    "opentelemetry",
    "otel_gym",
    "requests",
    "starlette",
}


class Watch:
    """Stands among the finders of modules and finds none itself."""

    is_over = False

    def find_spec(self, name: str, path: object = None, target: object = None) -> object:
        if name not in LIBRARIES or self.is_over:
            return None
        if name != "otel_gym" and self._found(name, path, target) is None:
            return None  # a program that tries for what it has not got must not get it
        self.is_over = True
        try:
            self._begin()
        except Exception as error:  # the folder is gone, or cannot be read here: the program goes on
            if sys.stderr is not None:
                sys.stderr.write("otel_gym: {} is not traced: {}\n".format(sys.executable, error))  # noqa: UP032
        return self._found(name, path, target)

    def _begin(self) -> None:
        script = os.path.join(os.path.dirname(os.path.dirname(os.path.abspath(__file__))), "begin.py")
        with open(script) as file:
            exec(compile(file.read(), script, "exec"), {"__name__": "begin", "__file__": script})

    def _found(self, name: str, path: object, target: object) -> object:
        for finder in list(sys.meta_path):
            if not isinstance(finder, Watch) and hasattr(finder, "find_spec"):
                spec = finder.find_spec(name, path, target)  # type: ignore[arg-type]
                if spec is not None:
                    return spec
        return None


def run_next() -> None:
    """The sitecustomize that would have run without us, if there is one."""
    try:  # as they are loaded already; by their public names they cost a third of Python's own start
        from _frozen_importlib import module_from_spec
        from _frozen_importlib_external import PathFinder
    except ImportError:
        from importlib.machinery import PathFinder
        from importlib.util import module_from_spec
    here = os.path.dirname(os.path.abspath(__file__))
    spec = PathFinder.find_spec("sitecustomize", [path for path in sys.path if os.path.abspath(path or ".") != here])
    if spec is not None and spec.loader is not None:
        sys.modules["sitecustomize"] = module = module_from_spec(spec)
        spec.loader.exec_module(module)


if __name__ == "sitecustomize":
    if os.environ.get("OTEL_GYM", "").strip().lower() in ("1", "true", "yes", "on"):
        sys.meta_path.insert(0, Watch())  # type: ignore[arg-type]
    run_next()
