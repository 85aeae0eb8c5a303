"""Functions with a span around each call: plain ones, coroutines, and generators of both kinds.

The span of a generator is current while the generator runs, and not while its consumer does.
"""

from __future__ import annotations

import inspect
from collections.abc import AsyncGenerator, Callable, Generator
from contextlib import AbstractContextManager
from functools import wraps
from typing import Any, Protocol

from otel_gym.tracing.pipeline import active_pipeline

Function = Callable[..., Any]


class CallScope(AbstractContextManager[Any], Protocol):
    """What is put around one call of a function."""

    def _returned(self, value: Any) -> None: ...

    def _suspended(self) -> AbstractContextManager[None]: ...


class Scope(Protocol):
    """Makes one for each call."""

    def _of_call(self, function: Function, arguments: tuple[Any, ...], named: dict[str, Any]) -> CallScope: ...


def decorated(scope: Scope, function: Function) -> Function:
    return next(decorate for is_one, decorate in _KINDS if is_one(function))(scope, function)


def _coroutine(scope: Scope, function: Function) -> Function:
    @wraps(function)
    async def traced(*arguments: Any, **named: Any) -> Any:
        if active_pipeline() is None:
            return await function(*arguments, **named)
        with scope._of_call(function, arguments, named) as own:
            value = await function(*arguments, **named)
            own._returned(value)
            return value

    return traced


def _plain(scope: Scope, function: Function) -> Function:
    @wraps(function)
    def traced(*arguments: Any, **named: Any) -> Any:
        if active_pipeline() is None:
            return function(*arguments, **named)
        with scope._of_call(function, arguments, named) as own:
            value = function(*arguments, **named)
            own._returned(value)
            return value

    return traced


def _generator(scope: Scope, function: Function) -> Function:
    @wraps(function)
    def traced(*arguments: Any, **named: Any) -> Generator[Any, Any, Any]:
        with scope._of_call(function, arguments, named) as own:
            generator = function(*arguments, **named)
            step, value = generator.send, None
            while True:
                try:
                    made = step(value)
                except StopIteration as stop:
                    return stop.value
                try:
                    with own._suspended():
                        value = yield made
                    step = generator.send
                except GeneratorExit:
                    generator.close()
                    raise
                except BaseException as error:
                    step, value = generator.throw, error

    return traced


def _async_generator(scope: Scope, function: Function) -> Function:
    @wraps(function)
    async def traced(*arguments: Any, **named: Any) -> AsyncGenerator[Any, Any]:
        with scope._of_call(function, arguments, named) as own:
            generator = function(*arguments, **named)
            step, value = generator.asend, None
            while True:
                try:
                    made = await step(value)
                except StopAsyncIteration:
                    return
                try:
                    with own._suspended():
                        value = yield made
                    step = generator.asend
                except GeneratorExit:
                    await generator.aclose()
                    raise
                except BaseException as error:
                    step, value = generator.athrow, error

    return traced


def _is_coroutine_function(function: Function) -> bool:
    return inspect.iscoroutinefunction(function) or inspect.iscoroutinefunction(type(function).__call__)


_KINDS: tuple[tuple[Callable[[Function], bool], Callable[[Scope, Function], Function]], ...] = (
    (inspect.isasyncgenfunction, _async_generator),
    (inspect.isgeneratorfunction, _generator),
    (_is_coroutine_function, _coroutine),
    (callable, _plain),
)
