"""Methods that take one keyword for each control of an explorer."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from functools import update_wrapper
from typing import Any


class takes_settings:
    """Decorator: one keyword for each control of the explorer, for help and tab completion."""

    def __init__(self, method: Callable[..., Any]) -> None:
        self.method = method
        self.__doc__ = method.__doc__

    def __get__(self, explorer: Any, owner: Any = None) -> Any:
        if explorer is None:
            return self.method

        def call(**settings: Any) -> Any:
            return self.method(explorer, **settings)

        update_wrapper(call, self.method)
        keyword = inspect.Parameter.KEYWORD_ONLY
        parameters = [
            inspect.Parameter(name, keyword, default=value)
            for name, value in explorer.settings.items()
        ]
        call.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]
        return call
