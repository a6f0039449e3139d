"""Users: their passwords, and what they may do in which virtual host.

They stand in a file, TOML or JSON, that the broker reads when it starts and when it gets SIGHUP; no client changes it:

    [users.anna]
    password = "scrypt$16384$8$1$SALT$HASH"         # `xump users` makes such a line
    [users.anna.vhosts."/"]
    configure = "^anna\\."
    write = ".*"
    read = ".*"

    [vhosts."/"]

A regular expression says whether the name of a queue or exchange holds a match of it; an empty one matches no name.
"""

from __future__ import annotations

import base64
import hashlib
import hmac
import os
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from xump._parsing import json_of, toml_of

SCRYPT_N = 1 << 14
PERMISSIONS = ("configure", "write", "read")


class BadUsers(ValueError):
    """A file of users that is wrong; says where."""


@dataclass(frozen=True)
class User:
    """A user."""

    name: str
    """The name."""
    password: str = ""
    """As `hash_password` gives it; empty: none, for certificates."""
    vhosts: Mapping[str, Mapping[str, re.Pattern[str]]] = field(default_factory=dict)
    """By virtual host and permission, which names of queues and exchanges it is for."""
    impersonates: bool = False
    """Whether the user may publish under other names."""

    def may_enter(self, vhost: str) -> bool:
        """Whether the user may use the virtual host."""
        return vhost in self.vhosts

    def may_all(self, vhost: str, permission: str) -> bool:
        """Whether the user may do so with all queues and exchanges, as the pattern says at a glance."""
        patterns = self.vhosts.get(vhost)
        return patterns is not None and patterns[permission].pattern in ("", ".*")

    def may(self, vhost: str, permission: str, name: str) -> bool:
        """Whether the user may configure, write or read a queue or exchange."""
        patterns = self.vhosts.get(vhost)
        return patterns is not None and patterns[permission].search(name) is not None


class Users:
    """Those that may log in."""

    def __init__(self, users: Mapping[str, User], loopback_only: frozenset[str] = frozenset()) -> None:
        self._users = dict(users)
        self._loopback_only = loopback_only
        self._verified: dict[str, bytes] = {}
        """Of each user the password that was right, hashed with `_key`: scrypt takes tens of milliseconds, by intention."""
        self._key = os.urandom(32)

    def authenticate(self, name: str, password: str | None, is_loopback: bool) -> User | None:
        """The user, or None. Without a password it is somebody whose certificate was checked. `is_loopback` says whether the
        client is on this machine."""
        user = self._users.get(name)
        if name in self._loopback_only and not is_loopback:
            return None
        if password is None:
            return user
        return user if self._holds(name, password, user.password if user is not None else NOBODY) and user is not None else None

    def get(self, name: str) -> User | None:
        """The user of this name, or None."""
        return self._users.get(name)

    def renew(self, user: User, secret: bytes) -> User | None:
        """The user as the file has it now, if the password is right."""
        now = self._users.get(user.name)
        return now if now is not None and self._holds(user.name, secret.decode(errors="replace"), now.password) else None

    def was_right(self, name: str, password: str) -> bool:
        """Whether this password was right before, so that it takes no time to check it."""
        return hmac.compare_digest(self._verified.get(name, b""), self._quick(password))

    def _holds(self, name: str, password: str, stored: str) -> bool:
        if self.was_right(name, password):
            return True
        if not password_holds(password, stored):
            return False
        self._verified[name] = self._quick(password)
        return True

    def _quick(self, password: str) -> bytes:
        return hmac.digest(self._key, password.encode(), "sha256")


def hash_password(password: str, n: int = SCRYPT_N) -> str:
    """The text that a file of users has instead of a password. `n` is what it costs to try one, a power of 2."""
    salt = os.urandom(16)
    return _joined(n, salt, hashlib.scrypt(password.encode(), salt=salt, n=n, r=8, p=1))


def password_holds(password: str, stored: str) -> bool:
    """Whether it is the password that was hashed."""
    try:
        name, n, r, p, salt, digest = stored.split("$")
        found = hashlib.scrypt(password.encode(), salt=base64.b64decode(salt), n=int(n), r=int(r), p=int(p))
        return name == "scrypt" and hmac.compare_digest(found, base64.b64decode(digest))
    except ValueError:
        return False


def _joined(n: int, salt: bytes, digest: bytes) -> str:
    salt_text, digest_text = (base64.b64encode(part).decode() for part in (salt, digest))
    return f"scrypt${n}$8$1${salt_text}${digest_text}"


NOBODY = _joined(SCRYPT_N, b"\0" * 16, b"\0" * 64)
"""No password has this; checking it takes as long as checking another, so that nobody learns which users there are."""


def guest() -> Users:
    """The users of a broker without a file: guest with the password guest, from this machine only."""
    everything = {permission: re.compile("") for permission in PERMISSIONS}
    user = User("guest", hash_password("guest", 2), _Everywhere(everything))
    return Users({"guest": user}, frozenset({"guest"}))


class _Everywhere(dict[str, Mapping[str, re.Pattern[str]]]):
    """The same permissions in each virtual host."""

    def __init__(self, patterns: Mapping[str, re.Pattern[str]]) -> None:
        super().__init__()
        self._patterns = patterns

    def __contains__(self, vhost: object) -> bool:
        return True

    def get(self, vhost: str, default: Any = None) -> Any:
        return self._patterns


def read_users(path: str | Path) -> tuple[Users, list[str]]:
    """The users, and the names of the virtual hosts, of a file. Raises `BadUsers` or `OSError`."""
    raw = Path(path).read_bytes()
    try:
        given = json_of(raw) if str(path).endswith(".json") else toml_of(raw)
    except ValueError as error:
        raise BadUsers(f"{path} cannot be read: {error}") from None
    if not isinstance(given, dict) or set(given) - {"users", "vhosts"}:
        raise BadUsers(f"{path}: expected the tables `users` and `vhosts` and no other")
    for name in given:
        if not isinstance(given[name], dict):
            raise BadUsers(f"{path}: `{name}` must be a table")
    vhosts = list(given.get("vhosts", {"/": {}}))
    users = {name: _user(name, about, vhosts) for name, about in given.get("users", {}).items()}
    return Users(users), vhosts


def _user(name: str, about: Any, vhosts: list[str]) -> User:
    if not isinstance(about, dict) or set(about) - {"password", "vhosts", "impersonates"}:
        raise BadUsers(f"user {name!r}: expected `password`, `vhosts`, `impersonates` and no other")
    password = about.get("password", "")
    if not isinstance(password, str) or (password and not password.startswith("scrypt$")):
        raise BadUsers(f"user {name!r}: `password` must be a text that `xump users` made, not the password itself")
    places = {}
    if not isinstance(about.get("vhosts", {}), dict):
        raise BadUsers(f"user {name!r}: `vhosts` must be a table of virtual hosts")
    for vhost, patterns in about.get("vhosts", {}).items():
        if vhost not in vhosts:
            raise BadUsers(f"user {name!r}: there is no virtual host {vhost!r}; there are {', '.join(map(repr, vhosts))}")
        if not isinstance(patterns, dict) or set(patterns) - set(PERMISSIONS):
            raise BadUsers(f"user {name!r}, virtual host {vhost!r}: expected `configure`, `write` and `read` and no other")
        places[vhost] = {permission: _pattern(name, patterns.get(permission, "")) for permission in PERMISSIONS}
    return User(name, password, places, bool(about.get("impersonates", False)))


def _pattern(name: str, text: object) -> re.Pattern[str]:
    try:
        return re.compile(str(text) or "^$")            # as in RabbitMQ, an empty one is for the empty name only
    except re.error as error:
        raise BadUsers(f"user {name!r}: {text!r} is no regular expression: {error}") from None
