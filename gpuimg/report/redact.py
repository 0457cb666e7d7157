"""Evidence that can be shown: identifiers of machines replaced, everything measured left as it is. Pure.

The same identifier gets the same replacement within one document, so that a reader still sees what belongs together.
"""

from __future__ import annotations

import re
from typing import Any

_UUID = re.compile(r"\b(GPU|MIG)-[0-9a-fA-F]{8}(?:-[0-9a-fA-F]{4}){3}-[0-9a-fA-F]{12}\b")
_MAC = re.compile(r"\b(?:[0-9a-fA-F]{2}:){5}[0-9a-fA-F]{2}\b")
_ADDRESS = re.compile(r"\b(?:\d{1,3}\.){3}\d{1,3}\b(?!\.)")
_SERIAL_KEYS = re.compile(r"(^|_)(serial|board_id|hostname|host_name|machine_id|boot_id|container_id|system_uuid)$")
_HEX_UUID = re.compile(r"^[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}$")


def redact(value: Any, *, hide: tuple[str, ...] = ()) -> Any:
    """A copy with GPU and system UUIDs, serials, host names, MAC and non-loopback IPv4 addresses replaced.

    ``hide``: further literal strings, such as this machine's name.
    """
    return _Redactor(hide).value(value)


class _Redactor:
    def __init__(self, hide: tuple[str, ...]) -> None:
        self._hide = tuple(h for h in hide if len(h) > 2)
        self._known: dict[str, str] = {}
        self._counts: dict[str, int] = {}

    def value(self, value: Any, key: str = "") -> Any:
        if isinstance(value, dict):
            return {k: self.value(v, str(k)) for k, v in value.items()}
        if isinstance(value, (list, tuple)):
            return [self.value(v, key) for v in value]
        if value and _SERIAL_KEYS.search(key.lower()):
            return self._number("serial", str(value), "REDACTED-{}")
        return self.text(value) if isinstance(value, str) else value

    def text(self, text: str) -> str:
        text = _UUID.sub(lambda m: self._number("gpu", m[0], m[1] + "-00000000-0000-0000-0000-{:0>12}"), text)
        text = _MAC.sub("00:00:00:00:00:00", text)
        text = _ADDRESS.sub(self._address, text)
        if _HEX_UUID.match(text):
            text = self._number("uuid", text, "00000000-0000-0000-0000-{:0>12}")
        for hidden in self._hide:
            text = re.sub(rf"(?<![\w-]){re.escape(hidden)}(?![\w-])", "host", text)
        return text

    def _number(self, kind: str, found: str, form: str) -> str:
        if found not in self._known:
            self._counts[kind] = self._counts.get(kind, 0) + 1
            self._known[found] = form.format(self._counts[kind])
        return self._known[found]

    @staticmethod
    def _address(found: re.Match[str]) -> str:
        text = found[0]
        numbers = [int(n) for n in text.split(".")]
        # Versions look like addresses, too (cuDNN 9.1.0.70): only private ranges name a machine here.
        private = numbers[0] == 10 or numbers[:2] == [192, 168] or (numbers[0] == 172 and 16 <= numbers[1] < 32)
        return "192.0.2.1" if private and max(numbers) < 256 else text
