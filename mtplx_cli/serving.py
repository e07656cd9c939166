"""Starting a server: everything that can be refused is, before the model is loaded."""

import dataclasses
import logging
import os
import shlex
import sys
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, NoReturn

from mtplx.config import Config
from mtplx.contracts.errors import (
    INTERRUPTED_EXIT_CODE,
    HeadMissingError,
    InvalidRequestError,
    MTPLXError,
    UsageError,
)
from mtplx.opening import Loader, choose_folder, open_model
from mtplx.profiles import profile_options
from mtplx.runtime.server.config import ServerConfig
from mtplx.runtime.server.keys import ApiKeys
from mtplx.screen import Screen
from mtplx.tuned import Tuning, depth_choice, use_tuning
from mtplx.version import __version__

if TYPE_CHECKING:
    from starlette.types import ASGIApp

    from mtplx.runtime.model import Model
    from mtplx.runtime.scheduler.model_backend import ModelBackend
    from mtplx.runtime.scheduler.owner import Owner
    from mtplx.runtime.server.served import ServedModel

# The 256 tokens of `run` would cut the answers of coding agents, which often name no limit.
DEFAULT_MAX_TOKENS: Final = 4096

_PACKAGES: Final = ("starlette", "uvicorn", "llguidance", "prometheus_client")

_UNITS: Final = {"": 1, "K": 2**10, "M": 2**20, "G": 2**30}


@dataclass(frozen=True, slots=True, kw_only=True)
class ServeRequest:
    """What the user said; `settings` are flags that are settings too, None where nothing was said."""

    settings: Mapping[str, object]
    aliases: tuple[str, ...]
    allowed_hosts: tuple[str, ...]
    cors_origins: tuple[str, ...]
    queue_size: int
    deadline_s: float | None
    watchdog_s: float
    stop_grace_s: float
    prefix_cache: str
    max_body: str
    mtp: bool | None
    verify_hashes: bool
    log_prompts: bool
    as_json: bool
    quiet: bool


class Serving:
    """One run of `mtplx serve`.

    Making it checks everything but the port and the model. Raises UsageError for what is wrong.
    """

    def __init__(self, request: ServeRequest, load: Loader | None) -> None:
        from mtplx.runtime.scheduler.lanes import make_lane

        _require_packages()
        self._request = request
        self._load_model = load
        self._screen = Screen(quiet=request.quiet or request.as_json)
        self._settings = Config.load(**request.settings)
        self._is_depth_given = request.settings.get("depth") is not None
        if request.mtp is False and request.settings.get("depth") not in (None, "0", "auto"):
            raise UsageError(
                f"--no-mtp and --depth {request.settings['depth']} contradict each other",
                hint="Leave one of the two out.",
            )
        if request.settings.get("profile") is not None:
            self._tell_overridden()
        self._lane = make_lane(self._settings.scheduler_mode, request.queue_size)
        self._bank_bytes = parse_size("prefix_cache_bytes", request.prefix_cache)
        self._config = _server_config(request, self._settings)
        self._folder = choose_folder(self._screen, self._settings.model)
        self._options: dict[str, Any] = {}
        self._tuning = Tuning({}, {"status": "none"})

    def run(self) -> None:
        """Serve until told to stop. Raises what the start fails with."""
        from mtplx.runtime.scheduler.owner import Owner
        from mtplx.runtime.server.listening import Listener, bind

        listener = bind(self._config)
        port = listener.getsockname()[1]
        self._config = dataclasses.replace(self._config, port=port)
        owner = Owner(self._open_backend, self._lane, watchdog_s=self._request.watchdog_s)
        with ExitStack() as stack:
            stack.enter_context(_logging(quiet=self._screen.quiet))
            server = Listener(
                self._config,
                listener,
                load=lambda: self._make_app(owner, stack),
                on_ready=self._tell_ready,
                drain=lambda: owner.stop(self._config.stop_grace_s),
                on_force=lambda: _leave(stack, INTERRUPTED_EXIT_CODE),
            )
            owner.start()
            server.run()
            if not owner.stop(0.0):
                # A thread inside of MLX cannot be ended, and must not meet the interpreter's end.
                is_loading = owner.backend is None
                _leave(stack, INTERRUPTED_EXIT_CODE if is_loading else 0)
        self._screen.note("stopped")

    def _tell_overridden(self) -> None:
        """Note which options of the profile that was asked for are set to something else."""
        origins = self._settings.origins(**self._request.settings)
        for key, wanted in profile_options(self._settings.profile).items():
            found = getattr(self._settings, key)
            if found != wanted and origins[key].kind != "flag":
                self._screen.note(
                    f"{key} is {found} by {origins[key]}, not {wanted} by the profile"
                )

    def _open_backend(self) -> "ModelBackend":
        """Load the model; on the owner's thread, which alone may use it."""
        from mtplx.runtime.scheduler.model_backend import ModelBackend

        model = open_model(
            self._load_model,
            self._screen,
            str(self._folder),
            mtp=self._request.mtp,
            kv_bits=self._settings.kv_cache_bits,
            verify_hashes=self._request.verify_hashes,
        )
        self._options = self._request_options(model)
        chosen = depth_choice(self._settings, self._request.settings, mtp=self._request.mtp)
        self._tuning = use_tuning(model, self._screen, chosen=chosen, mtp=self._request.mtp)
        self._options |= self._tuning.options
        if model.has_head and self._options["depth"] == "auto":
            # Measured now, or the first request would wait for it.
            model.costs()
        return ModelBackend(
            model,
            bank_bytes=self._bank_bytes if self._lane.uses_bank else 0,
            context_length=self._settings.context_window,
        )

    def _request_options(self, model: "Model") -> dict[str, Any]:
        """The options of a request that says nothing."""
        settings = self._settings
        can_draft = model.has_head and self._request.mtp is not False
        if self._is_depth_given and settings.depth not in ("auto", 0) and not can_draft:
            raise HeadMissingError(
                f"--depth {settings.depth} needs an MTP head, and {self._folder} has none.",
                hint="Leave --depth out to decode plainly, or choose a model with a head.",
            )
        is_limit_said = settings.origins(**self._request.settings)["max_tokens"].kind != "default"
        said = {
            "max_tokens": settings.max_tokens if is_limit_said else DEFAULT_MAX_TOKENS,
            "depth": settings.depth if can_draft else "auto",
            "mtp": self._request.mtp is not False,
            "acceptance": settings.acceptance,
            "prefill_chunk": settings.prefill_chunk,
            "temperature": settings.temperature,
            "top_p": settings.top_p,
            "top_k": settings.top_k,
        }
        return {key: value for key, value in said.items() if value is not None}

    def _make_app(self, owner: "Owner", stack: ExitStack) -> "ASGIApp":
        """The application, once the model is there. Raises what loading failed with."""
        # Before anything is imported: transformers cannot be by two threads at once.
        backend = owner.wait_loaded()
        from mtplx.runtime.decode.options import GenerationOptions
        from mtplx.runtime.server.app import build_app
        from mtplx.runtime.server.metrics import Metrics
        from mtplx.runtime.server.service import Service
        from mtplx.runtime.server.state_file import announced

        model = self._describe(backend.model)  # type: ignore[attr-defined]  # made by `_open_backend`
        config = dataclasses.replace(self._config, tuning=self._tuning.report)
        service = Service(
            owner=owner,
            model=model,
            config=config,
            metrics=Metrics(),
            defaults=GenerationOptions(**self._options),
        )
        self._served = model
        # Those of the model itself were told when it was loaded.
        for warning in model.warnings[len(backend.model.warnings) :]:  # type: ignore[attr-defined]  # made by `_open_backend`
            self._screen.warn(warning)
        try:
            stack.enter_context(announced(config.port, config.url, model.name, __version__))
        except (MTPLXError, OSError) as error:
            self._screen.warn(f"{error} `mtplx status` and `mtplx stop` will not find this server.")
        return build_app(service)

    def _describe(self, model: "Model") -> "ServedModel":
        from mtplx.runtime.server.served import describe

        window = self._settings.context_window
        return describe(model, aliases=self._request.aliases, context_length=window)

    def _tell_ready(self) -> None:
        from mtplx.runtime.diagnostics.last_failure import forget_failure

        with suppress(OSError):  # doctor has a check for the folder
            forget_failure("serve")
        model, config = self._served, self._config
        curl = curl_command(
            config.url,
            model.name,
            needs_key=config.keys is not None,
            has_chat=model.has_chat_template,
        )
        if self._request.as_json:
            ready = {
                "url": config.url,
                "pid": os.getpid(),
                "model": model.name,
                "aliases": list(model.aliases),
                "scheduler_mode": self._lane.mode.value,
                "tuning": self._tuning.report,
                "curl": curl,
            }
            self._screen.write_json(ready)
            return
        self._screen.write(f"ready: {config.url} serves {model.name}\n{curl}\n")


def curl_command(url: str, model: str, *, needs_key: bool, has_chat: bool = True) -> str:
    """A first request, for a shell."""
    if has_chat:
        path = "chat/completions"
        body = f'{{"model": "{model}", "messages": [{{"role": "user", "content": "Hello"}}]}}'
    else:
        path = "completions"
        body = f'{{"model": "{model}", "prompt": "Hello", "max_tokens": 100}}'
    key = " -H 'authorization: Bearer KEY'" if needs_key else ""
    return f"curl {url}/v1/{path}{key} -H 'content-type: application/json' -d {shlex.quote(body)}"


def parse_size(key: str, text: str) -> int:
    """Bytes of a size like `512M`. Raises InvalidRequestError naming the flag."""
    number = text.strip().upper().removesuffix("IB").removesuffix("B")
    unit = number[-1:] if number[-1:] in _UNITS else ""
    digits = number.removesuffix(unit) if unit else number
    if not (digits.isascii() and digits.isdecimal()):
        flag = f"--{key.replace('_', '-')}"
        raise InvalidRequestError(
            f"{flag} is {text!r}, expected a size like 512M or 4G.",
            key=key,
            hint=f"For example: {flag} 512M",
        )
    return int(digits) * _UNITS[unit]


def _require_packages() -> None:
    """Refuse to start without the packages of the extra `server`."""
    missing = [name for name in _PACKAGES if find_spec(name) is None]
    if missing:
        raise UsageError(
            f"a server needs {', '.join(missing)}, which is not installed.",
            hint='Install it with: pip install "mtplx[server]"',
        )


def _server_config(request: ServeRequest, settings: Config) -> ServerConfig:
    if request.deadline_s is not None and not request.deadline_s > 0:
        raise InvalidRequestError(
            f"--deadline is {request.deadline_s:g}, expected seconds above 0.", key="deadline"
        )
    file = settings.api_key_file
    config = ServerConfig(
        host=settings.host,
        port=settings.port,
        keys=None if file is None else ApiKeys.read(Path(file).expanduser()),
        allowed_hosts=request.allowed_hosts,
        cors_origins=request.cors_origins,
        max_body_bytes=parse_size("max_body_bytes", request.max_body),
        deadline_s=request.deadline_s,
        stop_grace_s=request.stop_grace_s,
        log_prompts=request.log_prompts,
        version=__version__,
    )
    config.check()
    return config


@contextmanager
def _logging(*, quiet: bool) -> Iterator[None]:
    """While the block runs our lines and uvicorn's errors go to standard error."""
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(logging.Formatter("%(asctime)s %(levelname)s %(message)s"))
    levels = {"mtplx": logging.WARNING if quiet else logging.INFO, "uvicorn": logging.ERROR}
    for name, level in levels.items():
        logging.getLogger(name).addHandler(handler)
        logging.getLogger(name).setLevel(level)
    try:
        yield
    finally:
        for name in levels:
            logging.getLogger(name).removeHandler(handler)
            logging.getLogger(name).setLevel(logging.NOTSET)


def _leave(stack: ExitStack, code: int) -> NoReturn:
    """End the process now, with nothing left behind."""
    stack.close()
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(code)
