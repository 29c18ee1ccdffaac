"""fairseq's commands for tests, each in a process of its own: a fresh one, or the fork of one that has the libraries.

Most of a command's time goes into importing torch and fairseq. A server imports them once and forks for each command;
the fork then runs the module as `python -m` does: arguments, environment, folder, streams, logging and random numbers
are as in a fresh process, and the plugin is imported by `--user-dir`, or is there already where the caller says so.
Settings of options are made quickly (settings.py). What only a fresh process shows: what is printed while torch and
fairseq are imported, and variables that they or Python read then (`OMP_NUM_THREADS`, `PYTHONWARNINGS`).
"""

import atexit
import functools
import gc
import importlib.util
import logging
import os
import random
import runpy
import signal
import subprocess
import sys
import tempfile
import threading
from collections.abc import Sequence
from dataclasses import dataclass
from multiprocessing import Pipe
from multiprocessing.connection import Connection
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent

# What fairseq's commands import, but for `fairseq_cli`, whose modules are run and not imported, and the plugin.
LIBRARIES = (
    "fairseq.benchmark",
    "fairseq.checkpoint_utils",
    "fairseq.data",
    "fairseq.dataclass.initialize",
    "fairseq.distributed.utils",
    "fairseq.model_parallel.megatron_trainer",
    "fairseq.options",
    "fairseq.quantization_utils",
    "fairseq.sequence_generator",
    "fairseq.sequence_scorer",
    "fairseq.token_generation_constraints",
    "fairseq.trainer",
    "hydra.experimental",
    "torch._dynamo",  # of every optimiser
)

# These set logging up before they import the part of fairseq that logs something while it is imported, which sets
# logging up in Python's plain way for the other commands. tests/test_commands.py compares them all with fresh ones.
LOGGING_FIRST = {"fairseq_cli.train", "fairseq_cli.validate"}


@dataclass(frozen=True)
class Request:
    """A command for the server: the module and its arguments, its streams' files, and where it runs."""

    arguments: Sequence[str]
    environment: dict[str, str]
    folder: str
    streams: tuple[str, str, str]
    has_plugin: bool


class ForkServer:
    """Runs modules one after the other, in forks of a process that has imported torch and fairseq."""

    def __init__(self) -> None:
        self.connection, theirs = Pipe()
        command = [sys.executable, "-m", __name__, str(theirs.fileno())]
        self.process = subprocess.Popen(command, cwd=ROOT, pass_fds=[theirs.fileno()])
        theirs.close()
        atexit.register(self.close)

    def close(self) -> None:
        """Ends the server, which has no command running.

        Closing the connection would not do: workers of this process that load data have it open, too.
        """
        self.process.kill()
        self.process.wait()

    def run(
        self,
        arguments: Sequence[str],
        *,
        env: dict[str, str],
        cwd: Path | None,
        input: str | None,
        timeout: float,
        has_plugin: bool,
    ) -> subprocess.CompletedProcess[str]:
        """As `subprocess.run` does with `capture_output` and `text`; `arguments` are those of Python after `-m`."""
        with tempfile.TemporaryDirectory() as folder:
            stdin, stdout, stderr = (Path(folder, name) for name in ("stdin", "stdout", "stderr"))
            stdin.write_text(input or "")
            streams = (str(stdin), str(stdout), str(stderr))
            self.connection.send(Request(arguments, env, str(cwd or Path.cwd()), streams, has_plugin))
            number = self.connection.recv()
            late = not self.connection.poll(timeout)
            if late:
                os.kill(number, signal.SIGKILL)
            process = subprocess.CompletedProcess(
                [sys.executable, "-m", *arguments], self.connection.recv(), stdout.read_text(), stderr.read_text()
            )
        if late:
            raise subprocess.TimeoutExpired(process.args, timeout, process.stdout, process.stderr)
        return process


@functools.cache
def fork_server() -> ForkServer:
    """The server of this process, started when it is first asked for."""
    return ForkServer()


def run_module(
    arguments: Sequence[str],
    *,
    fresh: bool,
    env: dict[str, str],
    cwd: Path | None = None,
    input: str | None = None,
    timeout: float = 600,
    has_plugin: bool = False,
) -> subprocess.CompletedProcess[str]:
    """Runs `python -m ARGUMENTS`, in a fresh process or forked.

    Args:
        arguments: the module and its arguments.
        fresh: start Python anew.
        env: the whole environment.
        cwd: the folder to run it in; this one if not given.
        input: text for standard input, which is empty if not given.
        timeout: seconds until it is killed.
        has_plugin: whether a fork has the plugin from its beginning.

    Raises:
        subprocess.TimeoutExpired: if it took longer.
    """
    if not fresh:
        return fork_server().run(arguments, env=env, cwd=cwd, input=input, timeout=timeout, has_plugin=has_plugin)
    command = [sys.executable, "-m", *arguments]
    return subprocess.run(command, env=env, cwd=cwd, input=input or "", timeout=timeout, capture_output=True, text=True)


# --- in the server ---------------------------------------------------------------------------------------------------


def serve(connection: Connection, *, has_plugin: bool = False) -> Request:
    """Forks for each request and tells its process number, then how it ended. Returns in the forks alone."""
    client = os.getppid()
    with_plugin: Connection | None = None
    while True:
        while not connection.poll(10):
            if os.getppid() != client:  # it was killed, and one of its workers keeps the connection open
                os._exit(1)
        try:
            request = connection.recv()
        except EOFError:  # it was killed
            os._exit(1)
        if request.has_plugin and not has_plugin:
            if with_plugin is None:
                with_plugin, theirs = Pipe()
                if os.fork() == 0:
                    connection.close()
                    with_plugin.close()
                    importlib.import_module("fairseq_tiedemb.plugin")
                    gc.freeze()
                    return serve(theirs, has_plugin=True)
                theirs.close()
            with_plugin.send(request)
            connection.send(with_plugin.recv())
            connection.send(with_plugin.recv())
            continue
        number = os.fork()
        if number == 0:
            connection.close()
            return request
        connection.send(number)
        connection.send(os.waitstatus_to_exitcode(os.waitpid(number, 0)[1]))


def become(request: Request) -> None:
    """Makes a fork what a fresh process is when it starts to run a module."""
    flags = (os.O_RDONLY, os.O_WRONLY | os.O_CREAT, os.O_WRONLY | os.O_CREAT)
    for number, (path, flag) in enumerate(zip(request.streams, flags, strict=True)):
        opened = os.open(path, flag)
        os.dup2(opened, number)
        os.close(opened)
    os.chdir(request.folder)
    os.environ.clear()
    os.environ.update(request.environment)
    sys.argv = list(request.arguments)
    if request.has_plugin:  # which looks at the program's name when it is imported
        sys.argv[0] = importlib.util.find_spec(request.arguments[0]).origin
        sys.modules["fairseq_tiedemb.compat.refusals"].refusals_end_in_their_message()
    sys.path[0] = request.folder
    if request.arguments[0] in LOGGING_FIRST:
        logging.root.handlers.clear()
        logging.root.setLevel(logging.WARNING)
    random.seed()
    sys.modules["numpy"].random.seed()
    sys.modules["torch"].seed()


def run_to_the_end(module: str) -> None:
    """Runs a module as `python -m` does and ends this process, as Python does but for tearing down what is imported.

    That takes a while, since a fork has to copy what it changes; and a daemon thread of fairseq that wakes up meanwhile
    may abort the process ("terminate called without an active exception").
    """
    code: object = None
    try:
        runpy.run_module(module, run_name="__main__", alter_sys=True)
    except SystemExit as end:
        code = end.code
    except BaseException:
        code = 1
        try:
            sys.excepthook(*sys.exc_info())
        except SystemExit as end:  # which Python takes from it, too
            code = end.code
    if isinstance(code, str):
        print(code, file=sys.stderr)
        code = 1
    threading._shutdown()  # type: ignore[attr-defined]
    atexit._run_exitfuncs()
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(code or 0)  # type: ignore[arg-type]


def make_settings() -> None:
    """Makes the first settings of a process, which take long: their parts and lines are kept for the forks."""
    from fairseq import options
    from fairseq.dataclass.utils import convert_namespace_to_omegaconf

    from .settings import keep_what_is_parsed

    keep_what_is_parsed()
    train = ["--arch", "lstm", "--optimizer", "adam"]
    for parser, flags in ((options.get_training_parser(), train), (options.get_eval_lm_parser(), ["--path", "x"])):
        convert_namespace_to_omegaconf(options.parse_args_and_arch(parser, ["data", *flags]))


if __name__ == "__main__":
    for library in LIBRARIES:
        __import__(library)
    make_settings()
    gc.freeze()
    request = serve(Connection(int(sys.argv[1])))
    become(request)
    run_to_the_end(request.arguments[0])
