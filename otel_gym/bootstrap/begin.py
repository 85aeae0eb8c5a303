"""What the hook of ``otel-gym run`` does at the first library that can be traced, in a Python of any version.

Our packages are put behind the program's own, and tracing begins; or it is said why not. Executed by its path, before
any of ours can be imported.
"""

import os
import sys

OLDEST_PYTHON = (3, 11)

_INSTALLERS = ("pip", "uv", "venv", "virtualenv", "ensurepip")
# Ray's own processes and its workers, which come and go by dozens.
_RAY = ("/ray/_private/", "/ray/dashboard/", "/ray/autoscaler/", "/ray/util/client/")
_TRACKERS = ("multiprocessing.resource_tracker", "multiprocessing.semaphore_tracker")


def is_helper(words: "list[str]") -> bool:
    """Whether a command line is that of an installer, of Ray, or of Python's own bookkeeping."""
    option, program = _program(words[1:])
    if option == "-m":
        return program.split(".")[0] in _INSTALLERS
    if option == "-c":
        return any(tracker in program for tracker in _TRACKERS)
    path = program.replace(os.sep, "/")
    name = path.rsplit("/", 1)[-1]
    return name.rstrip("0123456789.") in _INSTALLERS or name == "_in_process.py" or any(part in path for part in _RAY)


def _program(words: "list[str]") -> "tuple[str, str]":
    """What the interpreter was told to run: ("-m", module), ("-c", code) or ("", path)."""
    words = list(words)
    while words:
        word = words.pop(0)
        if word in ("-m", "-c"):
            return word, words[0] if words else ""
        if word in ("-W", "-X"):
            words = words[1:]
        elif not word.startswith("-"):
            return "", word
    return "", ""


def begin() -> None:
    if is_helper(getattr(sys, "orig_argv", sys.argv)):
        return
    if sys.version_info < OLDEST_PYTHON:
        _say("its Python is older than {}.{}".format(*OLDEST_PYTHON))
        return
    bundle = os.path.dirname(os.path.abspath(__file__))
    folders = [os.path.join(bundle, "packages")]
    if _asks_for_otlp():
        folders.append(os.path.join(bundle, "otlp"))
    sys.path.extend(folders)
    try:
        from otel_gym.bootstrap.child import start_in_child

        start_in_child(folders)
    except Exception as error:
        sys.path[:] = [folder for folder in sys.path if folder not in folders]
        _say(str(error) if type(error).__name__ == "MisfitError" else "{}: {}".format(type(error).__name__, error))  # noqa: UP032


def _asks_for_otlp() -> bool:
    return any(
        name.startswith("OTEL_EXPORTER_OTLP") or (name.endswith("S_EXPORTER") and "otlp" in value)
        for name, value in os.environ.items()
    )


def _say(problem: str) -> None:
    if sys.stderr is not None:
        sys.stderr.write("otel_gym: {} is not traced: {}\n".format(sys.executable, problem))  # noqa: UP032


if __name__ == "begin":
    begin()
