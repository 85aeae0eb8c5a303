"""Times as others write them → UTC nanoseconds, exactly: never through a float of ours."""

from __future__ import annotations

from decimal import Decimal, localcontext

NANOSECONDS = {"s": 10**9, "ms": 10**6, "us": 10**3, "ns": 1}


def unix_nanoseconds(time: str | int | float | Decimal, unit: str = "s") -> int:
    """A time since 1970 in ``unit`` (s, ms, us, ns); what is finer than a nanosecond is rounded to even.

    A float stands for the shortest text that reads as it. ValueError if it is no finite number.
    """
    try:
        with localcontext() as context:
            context.prec = 60
            return int((Decimal(str(time)) * NANOSECONDS[unit]).to_integral_value())
    except (ArithmeticError, ValueError):  # not a number, not finite
        raise ValueError(f"{time!r} is no time") from None
