"""``OTEL_CONFIG_FILE``: the provider that a configuration file describes, made by opentelemetry-configuration.

It is the provider of others: our processor joins it. What the file says of limits, ids and sampling holds.
"""

from __future__ import annotations

import os

from opentelemetry import trace
from opentelemetry.sdk.trace import TracerProvider

from otel_gym.settings import say_once

CONFIG_FILE = "OTEL_CONFIG_FILE"


def configure_from_file() -> bool:
    """Sets up what the file describes, where one is named and nothing is set up yet; False: it turns tracing off.

    A file that cannot be used is said once, and counts as none.
    """
    path = os.environ.get(CONFIG_FILE)
    if not path or isinstance(trace.get_tracer_provider(), TracerProvider):
        return True
    try:
        from opentelemetry.configuration import configure_sdk, load_config_file
    except ImportError:
        say_once(f"{CONFIG_FILE} is not read: pip install opentelemetry-configuration")
        return True
    try:
        configuration = load_config_file(path)
        configure_sdk(configuration)
    except Exception as error:  # its own errors have no common base beside this one
        say_once(f"{CONFIG_FILE}={path} cannot be used: {type(error).__name__}: {error}")
        return True
    if configuration.disabled:
        say_once(f"disabled: true in {CONFIG_FILE}={path}: OTEL_GYM is off")
    return not configuration.disabled
