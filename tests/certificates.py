"""Certificates for servers on 127.0.0.1, made by the openssl program: one that is in order, and ones that are not."""

from __future__ import annotations

import ssl
import subprocess
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Literal

Flaw = Literal["none", "name", "expired", "early", "self-signed"]

_CONFIG = """
[ca]
default_ca = authority
[authority]
database = {folder}/database
new_certs_dir = {folder}
serial = {folder}/serial
default_md = sha256
policy = any
copy_extensions = copy
[any]
commonName = supplied
"""


@dataclass(frozen=True)
class Certificates:
    """Makes certificates in ``folder``; ``authority`` is the file of the authority that signs all but the self-signed one."""

    folder: Path
    authority: Path

    def server(self, flaw: Flaw) -> tuple[Path, Path]:
        """The files of a certificate and its key: for another name than 127.0.0.1, no longer or not yet valid, or signed by
        itself.
        """
        key, made = self.folder / f"{flaw}.key", self.folder / f"{flaw}.pem"
        if made.exists():
            return made, key
        name = "DNS:elsewhere.example" if flaw == "name" else "IP:127.0.0.1"
        new = ("req", "-newkey", "rsa:2048", "-nodes", "-subj", f"/CN={flaw}", "-addext", f"subjectAltName={name}")
        if flaw == "self-signed":
            _openssl(*new, "-x509", "-days", "2", "-keyout", str(key), "-out", str(made))
            return made, key
        asked = self.folder / f"{flaw}.csr"
        _openssl(*new, "-keyout", str(key), "-out", str(asked))
        first = datetime.now(UTC) + timedelta(days={"expired": -9, "early": 9}.get(flaw, -1))
        dates = (first, first + timedelta(days=3))
        begin, end = (f"{date:%Y%m%d%H%M%SZ}" for date in dates)
        _openssl(
            "ca", "-batch", "-notext", "-config", str(self.folder / "config"), "-cert", str(self.authority), "-keyfile",
            str(self.folder / "authority.key"), "-startdate", begin, "-enddate", end, "-in", str(asked), "-out", str(made),
        )  # fmt: skip
        return made, key

    def context(self, flaw: Flaw) -> ssl.SSLContext:
        """What a server needs to show the certificate."""
        context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
        context.load_cert_chain(*self.server(flaw))
        return context


def make_certificates(folder: Path) -> Certificates:
    """An authority of its own, in an empty ``folder``."""
    authority = folder / "authority.pem"
    new = ("req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "2", "-subj", "/CN=authority")
    _openssl(*new, "-keyout", str(folder / "authority.key"), "-out", str(authority))
    (folder / "config").write_text(_CONFIG.format(folder=folder))
    (folder / "database").touch()
    (folder / "serial").write_text("01\n")
    return Certificates(folder, authority)


def _openssl(*arguments: str) -> None:
    subprocess.run(["openssl", *arguments], check=True, capture_output=True)
